//! The host logger: spans and text records of one process, written whole or counted as lost, at the cost of
//! a copy.
//!
//! A record is a frame of fields (512 bytes, no allocation) that is copied into a claimed slot of a ring of 4096,
//! and rendered and written by one background thread to `host.<pid>.log` or stderr. The thread that emits it does no
//! I/O, takes no lock and waits for nobody; what does not fit is dropped, counted by reason, and told in the log
//! itself.
//!
//! How the pieces fit:
//!
//! - `emit` encodes and submits, `span` and `macros` are what users call; `log_facade` and `tracing_layer` are what
//!   users of those crates call, behind features;
//! - `foreign` are spans that are not the runtime's own, for those layers and for other languages;
//! - `identity` and `thread` are what a process and a thread know of themselves without asking the kernel;
//! - `queue`, `admission` and `wake` are the lock-free middle, `anchor` and `directory` the claims of the clock anchor
//!   and of the destination; they take their atomics from `sync`, so that `tests/loom.rs` runs this same code under
//!   loom;
//! - `region` is the memory that all of that lies in, a file that outlives the process; `stack` the open spans in it,
//!   `ticks` the processor's counter as a clock;
//! - `writer` empties the ring into a `destination`; `anchor_record` is the anchor's text,
//!   `host_identity` says which host its process is on;
//! - `fork` is the writer's life: start, flush, quiesce, close, and what a child inherits;
//! - `rings`, `recover` and `open_spans` look at the regions of other processes, living and dead.
//!
//! The state that all of it works on is the C-visible [`SimplerHostLogState`], so that other shared objects
//! of the process can submit to the same ring; `binding` is how a copy of this logger in one of them does.
//!
//! ```
//! use std::time::Duration;
//! use simpler_host_log as log;
//!
//! let dir = tempfile::tempdir()?;
//! log::init(&log::Config { directory: Some(dir.path()), ..Default::default() })?;
//! {
//!     let _run = log::Invocation::begin("simpler_run", 0x5eed);
//!     let _bind = log::span!("simpler_run.bind", ntensor = 4);
//! }
//! log::log_warn!("{} pages are left", 3);
//! log::flush(Duration::from_millis(1000))?;
//!
//! let file = dir.path().join(format!("host.{}.log", log::pid()));
//! let text = std::fs::read_to_string(file)?;
//! assert_eq!(text.lines().count(), 5); // the clock anchor, the host's identity, the two spans, the warning
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[doc(hidden)]
pub mod admission;
#[doc(hidden)]
pub mod anchor;
#[doc(hidden)]
pub mod directory;
#[doc(hidden)]
pub mod queue;
#[doc(hidden)]
pub mod sync;
#[doc(hidden)]
pub mod wake;

#[cfg(not(loom))]
mod anchor_record;
#[cfg(not(loom))]
mod binding;
#[cfg(not(loom))]
mod destination;
#[cfg(not(loom))]
mod emit;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod foreign;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod host_identity;
#[cfg(not(loom))]
mod identity;
#[cfg(all(feature = "log", not(loom)))]
pub mod log_facade;
#[cfg(not(loom))]
mod macros;
#[cfg(not(loom))]
pub mod open_spans;
#[cfg(not(loom))]
mod recover;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod rings;
#[cfg(not(loom))]
mod span;
#[cfg(not(loom))]
mod stack;
#[cfg(all(any(feature = "log", feature = "tracing"), not(loom)))]
mod target;
#[cfg(not(loom))]
mod thread;
#[cfg(not(loom))]
mod ticks;
#[cfg(all(feature = "tracing", not(loom)))]
pub mod tracing_layer;
#[cfg(not(loom))]
mod value;
#[cfg(not(loom))]
mod writer;

pub use simpler_log_abi::{DropReason, Level, SimplerHostLogState, Threshold};
pub use simpler_record_format::Location;

#[cfg(not(loom))]
pub use owner::*;

/// Everything that works on the process's state; models under loom have no process.
#[cfg(not(loom))]
mod owner {
    pub use crate::binding::{BIND_NULL, BIND_OFF_LADDER, BOUND, bind_object, bind_state, is_bound, state};
    pub use crate::emit::{enabled, log, set_threshold};
    pub use crate::error::{DrainTimeout, Error, ErrorKind};
    pub use crate::foreign::{ForeignAttributes, ForeignPlace, ForeignSpan};
    pub use crate::fork::{
        Config, Counts, WRITER_THREAD_NAME, close, counts, directory, flush, init, prepare_to_fork,
        set_directory, start_writer,
    };
    pub use crate::host_identity::{Host, host};
    pub use crate::identity::{monotonic_ns, pid, tid};
    pub use crate::recover::{Recovered, Recovery, Refused, recover, recover_stderr};
    pub use crate::span::{
        AttributedSpan, Attributes, Invocation, NoSpan, RootGuard, Span, SpanContext, SpanEvent, context,
        emit_span, emit_spans, replace_context, span_enabled,
    };

    /// What tests and benches look at; not for programs.
    #[doc(hidden)]
    pub mod diagnostics {
        use crate::emit;
        use crate::queue::{Claim, Run};
        use crate::region::Region;

        pub use crate::fork::writer_cpu_ns;
        #[cfg(any(fuzzing, test))]
        pub use crate::recover::trial;

        /// A position that is claimed and not yet published: a gap that stops the writer.
        #[derive(Debug)]
        pub struct Gap {
            region: &'static Region,
            claim: Claim,
        }

        /// Claims a position of the running writer's queue. The caller is not inside the gate, so it publishes
        /// before anybody quiesces with success.
        pub fn open_gap() -> Option<Gap> {
            crate::pid();
            let region = Region::current()?;
            Some(Gap { region, claim: region.ring.claim(&mut Run::new()).ok()? })
        }

        impl Gap {
            /// Publishes `record` in the gap and wakes the writer.
            pub fn publish(self, record: &[u8]) {
                let passed_mark = self.claim.passed_mark();
                self.region.ring.publish(self.claim, record, 0, |_| ());
                emit::published(self.region, passed_mark);
                self.region.doorbell.ring();
            }
        }

        /// How often the writer went to rest, and how often a producer, flush or quiesce woke it.
        pub fn sleeps_and_wakes() -> (u64, u64) {
            crate::pid();
            Region::current().map_or((0, 0), |region| region.doorbell.sleeps_and_wakes())
        }
    }

    /// What the macros expand to.
    #[doc(hidden)]
    pub mod __private {
        use core::sync::atomic::{AtomicU32, Ordering};

        pub use simpler_host_log_macros::write_message;
        use simpler_log_abi::Level;
        use simpler_record_format::Location;
        use simpler_record_format::frame::TextFrame;

        pub use crate::emit::emit_text;
        pub use crate::value::{PutDisplay, PutPlain, Value};

        /// Begins the frame of a text record.
        pub fn begin_text(level: Level, func: &str, file: &str, line: u32) -> TextFrame {
            TextFrame::new(level, func, Some(Location { file, line }))
        }

        /// The file's name without its folders.
        pub const fn base_name(path: &str) -> &str {
            let bytes = path.as_bytes();
            let mut start = bytes.len();
            while start > 0 && bytes[start - 1] != b'/' {
                start -= 1;
            }
            path.split_at(start).1
        }

        /// Where in the path of an item that a function encloses the function's name stands: found once for each
        /// place in the source, and looked up from then on.
        #[derive(Debug)]
        pub struct FunctionName {
            /// The name's start and its end; 0 until found.
            range: AtomicU32,
        }

        impl FunctionName {
            #[expect(clippy::new_without_default, reason = "only for statics in the macros")]
            pub const fn new() -> Self {
                Self { range: AtomicU32::new(0) }
            }

            /// The function that encloses the item with this path: `a::b::run::{{closure}}::here` gives `run`.
            /// Always with the same path.
            #[inline]
            pub fn within(&self, path_of_here: &'static str) -> &'static str {
                // Relaxed: whoever finds it finds the same.
                let range = match self.range.load(Ordering::Relaxed) {
                    0 => self.find(path_of_here),
                    range => range,
                };
                path_of_here.get((range >> 16) as usize..(range & 0xffff) as usize).unwrap_or(path_of_here)
            }

            #[cold]
            fn find(&self, path: &'static str) -> u32 {
                let mut end = path.len();
                loop {
                    end = path[..end].rfind("::").unwrap_or(0);
                    let start = path[..end].rfind("::").map_or(0, |colons| colons + 2);
                    if start == 0 || !path[start..end].starts_with("{{") {
                        // A path beyond what the range can say is shown whole.
                        let range = if end > 0 && end < 0xffff { (start << 16 | end) as u32 } else { 0xffff };
                        self.range.store(range, Ordering::Relaxed);
                        return range;
                    }
                }
            }
        }
    }
}
