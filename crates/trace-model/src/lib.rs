//! What a log says: from parsed records to invocations, call trees, callables and their statistics.
//!
//! A [`TraceBuilder`] takes records in the order in which they stand in the log. It separates the *lives*
//! of a process id by their clock anchors and hosts, drops exact duplicates and interns names and attributes.
//! [`TraceBuilder::finish`] groups the spans into [`Invocation`]s: one (life, pid, inv) whose roots overlap
//! in time. From the finished [`Trace`] everything else is computed on demand: [`Callable`]s with their
//! stages, [`Rounds`], [`Steps`] over several ranks, the [`CallTree`] and the [`SelfTimes`] of a callable, the
//! [`Dispatches`] that parents handed to children, the foreign [`Producer`]s, the [`HostPhases`] of the bindings, the
//! [`Facts`] that `simpler check` states, and the [`warnings`] that come before any number. [`Trace::select`] makes a
//! trace of a part of the log, and all of these answer for that part.
//!
//! The rule behind all of it is that *missing is never 0*: what a log does not hold is `None`.
//!
//! The crate is pure. Reading bytes is the work of `simpler-trace-ingest`, text and JSON that of
//! `simpler-trace-export`.
//!
//! ```
//! use simpler_record_format::{Input, SpanParse, parse_span};
//! use simpler_trace_model::TraceBuilder;
//!
//! let mut builder = TraceBuilder::new();
//! let line = b"[STRACE] v=1 pid=41 tid=41 inv=1 hid=b7e2 depth=0 name=simpler_run ts=1000 dur=500 \n";
//! let SpanParse::Span(span, _) = parse_span(line, Input::Whole) else { panic!() };
//! builder.span(&span, None);
//! let trace = builder.finish();
//! assert_eq!(trace.callables()[0].roots[0].stats.mean_ns, 500);
//! ```

mod alignment;
mod build;
mod callable;
mod diff;
mod digest;
mod dispatches;
mod external;
mod facts;
mod group;
mod host_phases;
mod hosts;
mod intern;
mod invocation;
mod overlap;
mod parallel;
mod ranks;
mod rounds;
mod select;
mod self_time;
mod span;
mod statistics;
mod steps;
mod task_slots;
mod tree;
mod vocabulary;
mod wall_time;
mod warnings;

pub use alignment::{Alignment, DeviceClock, Moment, Placed};
pub use build::{Admission, Anchor, Counts, Drops, Life, Trace, TraceBuilder};
pub use callable::{Callable, Label, Named, decode_tie};
pub use diff::{CallableChange, Change, Diff, Incomparable, Matched, Side, StageChange, StageVerdict, diff};
pub use digest::{Batch, Keep, Lexicon};
pub use dispatches::{Dispatch, Dispatches, Link};
pub use external::{ExternalName, Producer};
pub use facts::{Facts, NAMES_MAX, SLOTS_MAX};
pub use host_phases::{BindPhaseLine, HostPass, HostPhase, HostPhaseRecord, HostPhases, PhaseSource};
pub use hosts::Host;
pub use invocation::{Invocation, Kind};
pub use overlap::{NotOverlapped, RunIdentity};
pub use rounds::{Round, Rounds, Trimmed};
pub use select::{Criterion, NothingLeft, Selected, Selection};
pub use self_time::{SelfTime, SelfTimes};
pub use span::{Attributes, Name, NameId, Span, ThreadId};
pub use statistics::{Ranks, Stats, mean_ns, median_ns};
pub use steps::{AlignedBy, DeviceGap, Excess, LateBy, Rank, Step, StepRun, Steps};
pub use task_slots::{SlotInterval, SlotTimes, TaskSlots};
pub use tree::{CallTree, Node, parents};
pub use vocabulary::{Family, Stage, family, producer, stage};
pub use wall_time::{NoWallTime, WallTime, utc};
pub use warnings::warnings;
