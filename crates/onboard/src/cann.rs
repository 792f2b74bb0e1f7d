//! CANN's libraries in this process: found, opened, every function looked up once.

use std::env;
use std::error::Error as _;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::OnboardError;
use crate::signatures::{AclError, DeviceFunctions, LaunchFunctions, LogFunctions};

/// The folder of CANN's libraries; without it the dynamic loader's own search decides.
pub const FOLDER_ENV: &str = "SIMPLER_CANN_FOLDER";
/// The name or path of AscendCL's library, instead of the usual one.
const ACL_ENV: &str = "SIMPLER_CANN_ACL";
/// The name or path of the log's library, instead of the usual ones.
const LOG_ENV: &str = "SIMPLER_CANN_LOG";

/// Where CANN's libraries are. Of several names the first that loads is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannPaths {
    /// Their folder; None leaves the search to the dynamic loader. Absolute names ignore it.
    pub folder: Option<PathBuf>,
    /// Names of AscendCL's library.
    pub acl: Vec<PathBuf>,
    /// Names of the log's library.
    pub log: Vec<PathBuf>,
}

impl Default for CannPaths {
    /// The names that CANN installs, wherever the dynamic loader finds them.
    fn default() -> Self {
        Self {
            folder: None,
            acl: vec!["libascendcl.so".into()],
            log: vec!["libascendalog.so".into(), "libunified_dlog.so".into()],
        }
    }
}

impl CannPaths {
    /// The usual names, with what the environment says instead: [`FOLDER_ENV`], `SIMPLER_CANN_ACL`,
    /// `SIMPLER_CANN_LOG`. An empty value counts as none.
    pub fn from_env() -> Self {
        Self::from_lookup(|name| env::var_os(name))
    }

    /// As [`CannPaths::from_env`], from another environment than the process's.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let usual = Self::default();
        Self {
            folder: path(FOLDER_ENV),
            acl: path(ACL_ENV).map_or(usual.acl, |acl| vec![acl]),
            log: path(LOG_ENV).map_or(usual.log, |log| vec![log]),
        }
    }
}

/// CANN, loaded. The libraries stay open as long as the value, or anything opened through it, lives.
// FORK: a child inherits the mappings but none of the threads that CANN started; it may not use what it inherited.
pub struct Cann {
    pub(crate) device: DeviceFunctions,
    pub(crate) log: LogFunctions,
    launch: Result<LaunchFunctions, Missing>,
    /// Closed last to first: AscendCL's own library may use the log's.
    _acl: Opened,
    _log: Opened,
}

/// A function that only some releases have.
struct Missing {
    symbol: &'static str,
    library: String,
}

impl fmt::Debug for Cann {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cann").field("acl", &self._acl.name).field("log", &self._log.name).finish()
    }
}

impl Cann {
    /// Opens the libraries and looks every function up.
    ///
    /// # Errors
    ///
    /// A library that no name opens, or a function that its library lacks; what was opened is closed again. The
    /// functions that launch are newer than the others: they are missed when they are first used.
    pub fn load(paths: &CannPaths) -> Result<Arc<Self>, OnboardError> {
        let log_library = Opened::first_of(paths, &paths.log)?;
        let acl_library = Opened::first_of(paths, &paths.acl)?;
        let log = LogFunctions::resolve(&log_library)?;
        let device = DeviceFunctions::resolve(&acl_library)?;
        let launch = match LaunchFunctions::resolve(&acl_library) {
            Ok(functions) => Ok(functions),
            Err(OnboardError::Symbol { symbol, library }) => Err(Missing { symbol, library }),
            Err(other) => return Err(other),
        };
        Ok(Arc::new(Self { device, log, launch, _acl: acl_library, _log: log_library }))
    }

    /// The functions that launch, or which one this release lacks.
    pub(crate) fn launch_functions(&self) -> Result<&LaunchFunctions, OnboardError> {
        self.launch.as_ref().map_err(|missing| OnboardError::Symbol {
            symbol: missing.symbol,
            library: missing.library.clone(),
        })
    }
}

/// The result of a call as a `Result`.
pub(crate) const fn checked(function: &'static str, code: AclError) -> Result<(), OnboardError> {
    match code {
        0 => Ok(()),
        code => Err(OnboardError::Call { function, code }),
    }
}

/// libloading's own sentence only says that the loader failed; the loader's is behind it.
fn loaders_words(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// A library that is open.
pub(crate) struct Opened {
    library: Library,
    name: String,
}

impl Opened {
    /// The first of `names` that the loader opens.
    fn first_of(paths: &CannPaths, names: &[PathBuf]) -> Result<Self, OnboardError> {
        let mut refusals = Vec::new();
        for name in names {
            let path = paths.folder.as_ref().map_or_else(|| name.clone(), |folder| folder.join(name));
            // SAFETY: whoever names a library vouches that its initialisers may run in this process.
            match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => return Ok(Self { library, name: path.display().to_string() }),
                Err(error) => refusals.push(loaders_words(&error)),
            }
        }
        let tried: Vec<String> = names.iter().map(|name| name.display().to_string()).collect();
        let why = if refusals.is_empty() { "no name was given".to_owned() } else { refusals.join("; ") };
        Err(OnboardError::Library { library: tried.join(" or "), why })
    }

    /// The function behind a symbol.
    ///
    /// # Safety
    ///
    /// - `F` is a function pointer with the signature of `symbol`.
    /// - The result is not called after the library was closed.
    pub(crate) unsafe fn function<F: Copy>(&self, symbol: &'static str) -> Result<F, OnboardError> {
        // SAFETY: the caller vouches for the signature.
        match unsafe { self.library.get::<F>(symbol) } {
            Ok(function) => Ok(*function),
            Err(_) => Err(OnboardError::Symbol { symbol, library: self.name.clone() }),
        }
    }
}
