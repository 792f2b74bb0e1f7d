//! The records of the `log` crate in the host log (feature `log`).
//!
//! A program, or a library in it, that says `log::info!` needs one line more: [`install`]. From then on each
//! record is one of ours, with our envelope, clock, destination and accounting.
//!
//! - Levels: TRACE and DEBUG become DEBUG, the others keep their name. `log` has no TIMING: that is for spans.
//! - In front of the text stands the record's target, dotted (`my_app::net` as `my_app.net`), since `log` does
//!   not know the function; then the file and the line where they are known, as with our own macros.
//! - Key-value pairs follow the text as ` key=value`, if the program turns on that feature of `log`.
//! - Our threshold decides, at every record: a change by [`set_threshold`](crate::set_threshold) or by another
//!   module is heeded at once. Therefore `log::max_level` stays at its widest, where a copy of the threshold
//!   would go stale. A program may lower it as a second bar of its own.
//! - `log::logger().flush()` waits up to one second for what was accepted.
//!
//! This is for programs, and for libraries that stay loaded: a logger cannot be uninstalled, so the module that
//! holds it must not be unloaded.
//!
//! ```
//! use simpler_host_log::{self as host_log, Config, Threshold, log_facade};
//!
//! let dir = tempfile::tempdir()?;
//! host_log::init(&Config { threshold: Threshold::INFO, directory: Some(dir.path()), ..Config::default() })?;
//! log_facade::install()?;
//!
//! log::info!("{} pages are left", 3);
//! log::logger().flush();
//! let file = dir.path().join(format!("host.{}.log", host_log::pid()));
//! assert!(std::fs::read_to_string(file)?.trim_end().ends_with("] 3 pages are left"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use core::time::Duration;

use ::log::kv::{Key, Value, VisitSource};
use ::log::{LevelFilter, Log, Metadata, Record, SetLoggerError};

use crate::__private::base_name;
use crate::target::Func;
use crate::{Level, Location};

/// How long [`Log::flush`] waits.
const FLUSH: Duration = Duration::from_millis(1000);

/// The host log as a `log::Log`. All of its state is the process's log.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostLogger;

/// Makes the host log the logger of this program's `log` records.
///
/// # Errors
///
/// When the program has a logger already, this one included.
pub fn install() -> Result<(), SetLoggerError> {
    static LOGGER: HostLogger = HostLogger;
    ::log::set_logger(&LOGGER)?;
    ::log::set_max_level(LevelFilter::Trace);
    Ok(())
}

fn level_of(level: ::log::Level) -> Level {
    match level {
        ::log::Level::Trace | ::log::Level::Debug => Level::Debug,
        ::log::Level::Info => Level::Info,
        ::log::Level::Warn => Level::Warn,
        ::log::Level::Error => Level::Error,
    }
}

impl Log for HostLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        crate::enabled(level_of(metadata.level()))
    }

    fn log(&self, record: &Record<'_>) {
        let level = level_of(record.level());
        if !crate::enabled(level) {
            return;
        }
        let file = record.file().map(base_name);
        let location = file.zip(record.line()).map(|(file, line)| Location { file, line });
        crate::log(level, Func::of(record.target()).as_str(), location, format_args!("{}", Body(record)));
    }

    /// Waits up to one second for the records that were accepted. If that was not enough, a record says so.
    fn flush(&self) {
        if let Err(timeout) = crate::flush(FLUSH) {
            crate::log(Level::Warn, "flush", None, format_args!("{timeout}"));
        }
    }
}

/// A record's text and its pairs.
struct Body<'a>(&'a Record<'a>);

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_fmt(*self.0.args())?;
        self.0.key_values().visit(&mut Pairs(f)).map_err(|_| fmt::Error)
    }
}

struct Pairs<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl<'kvs> VisitSource<'kvs> for Pairs<'_, '_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), ::log::kv::Error> {
        Ok(write!(self.0, " {key}={value}")?)
    }
}
