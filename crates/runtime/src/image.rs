//! A callable as bytes: one orchestration object and its kernel objects.

use std::path::Path;

use simpler_kernel_abi::CoreKind;
use simpler_kernel_compiler::{CallableObjects, digest, embedded_kernels};

use crate::{RunError, code};

/// A kernel object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelImage {
    /// The kernel's name.
    pub name: String,
    /// The object's bytes.
    pub bytes: Vec<u8>,
    /// The kind of core it runs on.
    pub kind: CoreKind,
}

/// A callable, ready to be registered with any number of chips.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallableImage {
    /// The callable's name, for people.
    pub name: String,
    /// The orchestration object's bytes.
    pub orchestration: Vec<u8>,
    /// The kernels by index.
    pub kernels: Vec<KernelImage>,
}

impl CallableImage {
    /// Reads compiled objects.
    ///
    /// # Errors
    /// Code −1 with the file that cannot be read.
    pub fn load(objects: &CallableObjects) -> Result<Self, RunError> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|error| RunError::refused(format!("cannot read {}: {error}", path.display())))
        };
        let kernels = objects.kernels.iter().map(|(path, kind)| {
            let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            Ok(KernelImage { name, bytes: read(path)?, kind: *kind })
        });
        Ok(Self {
            name: objects.name.clone(),
            orchestration: read(&objects.orchestration)?,
            kernels: kernels.collect::<Result<_, RunError>>()?,
        })
    }

    /// The identity of the content: SHA-256 over the digests of the orchestration and of each kernel with its kind.
    /// The name is not part of it.
    pub fn digest(&self) -> [u8; 32] {
        let mut descriptor = digest(&self.orchestration).to_vec();
        for kernel in &self.kernels {
            descriptor.push(kernel.kind as u8);
            descriptor.extend_from_slice(&digest(&kernel.bytes));
        }
        digest(&descriptor)
    }

    /// The trace identity; see [`hid`](crate::hid()).
    pub fn hid(&self) -> u64 {
        crate::hid(&self.orchestration)
    }

    /// Whether these are the kernels that the orchestration object was built for.
    pub(crate) fn verify(&self) -> Result<(), RunError> {
        let refuse = |why: String| Err(RunError { code: -(code::INVALID_ARGUMENTS as i32), text: why });
        let embedded = match embedded_kernels(&self.orchestration) {
            Ok(embedded) => embedded,
            Err(error) => return refuse(format!("{}: {error}", self.name)),
        };
        if embedded.len() != self.kernels.len() {
            let (own, built) = (self.kernels.len(), embedded.len());
            return refuse(format!("{}: {own} kernels are given, it was built for {built}", self.name));
        }
        for (index, (kernel, built)) in self.kernels.iter().zip(&embedded).enumerate() {
            if kernel.kind != built.kind || digest(&kernel.bytes) != built.digest {
                return refuse(format!(
                    "{}: kernel {index} ({}) is not the object that the orchestration was built for ({})",
                    self.name, kernel.name, built.name
                ));
            }
        }
        Ok(())
    }
}
