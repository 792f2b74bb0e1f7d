//! What runs in a child that has no chip: functions of the host program, and orchestrations over a worker below.
//!
//! Both are closures that the parent had before the fork and the child inherited with its memory. They are called by the
//! digest of their name, as chip callables are by that of their content. A closure is memory of the parent's, so it cannot
//! be registered after the fork; a chip callable can, and a worker below passes it on to its chips.

use std::rc::Rc;

use sha2::{Digest as _, Sha256};

use crate::mailbox::Digest;
use crate::{Callable, CallableImage, Endpoint, RunArgs, RunError, Worker};

/// A function of a sub worker.
pub(crate) type Function = Rc<dyn Fn(&RunArgs) -> Result<(), RunError>>;
/// An orchestration of a worker.
pub(crate) type Orchestration = Rc<dyn Fn(&mut Worker, &RunArgs) -> Result<(), RunError>>;

/// The kinds of closures.
pub(crate) const FUNCTION: &str = "function";
pub(crate) const ORCHESTRATION: &str = "orchestration";

/// The identity of a closure: its kind and its name.
pub(crate) fn digest_of(kind: &str, name: &str) -> Digest {
    let mut digest = Sha256::new();
    for part in ["simpler closure, schema 1", kind, name] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

fn find<T>(of: &[(Digest, T)], digest: &Digest) -> Result<usize, RunError> {
    of.iter().position(|(known, _)| known == digest).ok_or_else(|| RunError {
        code: -1,
        text: "the callable is not one that this worker was given".to_owned(),
    })
}

/// A sub worker.
pub(crate) struct SubWorker(pub(crate) Vec<(Digest, Function)>);

/// A worker below, and what it is to run.
pub(crate) struct Nested {
    pub(crate) worker: Worker,
    pub(crate) orchestrations: Vec<(Digest, Orchestration)>,
}

impl Endpoint for SubWorker {
    unsafe fn run(&mut self, callable: &Digest, args: &RunArgs) -> Result<(), RunError> {
        let (_, function) = &self.0[find(&self.0, callable)?];
        function(args)
    }

    fn prepare(&mut self, callable: &Digest) -> Result<u64, RunError> {
        find(&self.0, callable).map(|slot| slot as u64)
    }
}

impl Endpoint for Nested {
    unsafe fn run(&mut self, callable: &Digest, args: &RunArgs) -> Result<(), RunError> {
        let (_, orchestration) = &self.orchestrations[find(&self.orchestrations, callable)?];
        let outcome = orchestration(&mut self.worker, args);
        // One that fails half-way, say, has runs that it did not wait for.
        self.worker.settle();
        outcome
    }

    fn prepare(&mut self, callable: &Digest) -> Result<u64, RunError> {
        find(&self.orchestrations, callable).map(|slot| slot as u64)
    }

    /// With the chips below; orchestrations have slots of their own, so there is none to give.
    fn register(&mut self, image: &CallableImage) -> Result<u64, RunError> {
        self.worker.register(image.clone())?;
        Ok(0)
    }

    fn unregister(&mut self, callable: &Digest) -> Result<(), RunError> {
        Ok(self.worker.unregister(Callable(*callable))?)
    }

    fn close(&mut self) -> Result<(), RunError> {
        Ok(self.worker.close()?)
    }
}
