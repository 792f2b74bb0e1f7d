//! The chip's threads: started with it, or when they are first needed, and joined with it.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::board::Lane;
use crate::launch::Chip;

/// The threads of a chip.
#[derive(Default)]
pub(crate) struct Pool {
    aicpu: Vec<JoinHandle<()>>,
    cores: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts the AICPU threads that the profile launches, and `core_threads` for the cores. If one cannot be
    /// started, those that were are ended again.
    pub(crate) fn start(chip: &Arc<Chip>, core_threads: usize) -> io::Result<Self> {
        let mut pool = Self::default();
        let started = pool.start_all(chip, core_threads);
        if started.is_err() {
            pool.stop(chip);
        }
        started.map(|()| pool)
    }

    fn start_all(&mut self, chip: &Arc<Chip>, core_threads: usize) -> io::Result<()> {
        for index in 0..chip.profile().aicpu_launched {
            let chip = Arc::clone(chip);
            let thread = Builder::new().name(format!("aicpu-{index}")).spawn(move || chip.run_thread())?;
            self.aicpu.push(thread);
        }
        for index in 0..core_threads {
            let chip = Arc::clone(chip);
            let thread = Builder::new()
                .name(format!("aicore-{index}"))
                .spawn(move || chip.cores().run_thread(Lane::Shared, index))?;
            self.cores.push(thread);
        }
        Ok(())
    }

    pub(crate) fn core_threads(&self) -> usize {
        self.cores.len()
    }

    /// Waits for a launch that is under way, then ends all threads.
    pub(crate) fn stop(&mut self, chip: &Chip) {
        // The AICPU threads first: a launch ends only while there are threads for its cores.
        chip.stop();
        self.aicpu.drain(..).for_each(join);
        chip.cores().stop();
        self.cores.drain(..).for_each(join);
        chip.together().join();
    }
}

/// A thread for each core, for kernels that may wait for each other. Most chips never run such kernels, so the threads
/// are started when a core is first told to.
#[derive(Default)]
pub(crate) struct TogetherThreads {
    started: OnceLock<bool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl TogetherThreads {
    /// Starts the threads if that was not done; whether all of them could be.
    pub(crate) fn start(&self, chip: &Arc<Chip>) -> bool {
        *self.started.get_or_init(|| {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            for index in 0..chip.profile().cores() {
                let chip = Arc::clone(chip);
                let thread = Builder::new()
                    .name(format!("together-{index}"))
                    .spawn(move || chip.cores().run_thread(Lane::Together, index));
                match thread {
                    Ok(thread) => threads.push(thread),
                    Err(_) => return false,
                }
            }
            true
        })
    }

    /// Waits for the threads, which have been told to end.
    fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        threads.into_iter().for_each(join);
    }
}

fn join(thread: JoinHandle<()>) {
    // The last owner of a chip may be a program that one of the chip's own threads drops; it ends by itself.
    if thread.thread().id() == std::thread::current().id() {
        return;
    }
    // A thread of the pool catches what its program throws; there is nothing more to report here.
    drop(thread.join());
}
