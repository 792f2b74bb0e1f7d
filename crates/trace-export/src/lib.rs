//! What a trace looks like outside: text for people, JSON for programs, and the formats of other tools.
//!
//! - [`text`]: the callable table, the rounds table and the call tree, in the formats that scripts parse
//! - [`json`]: the same and the integrity facts, as one object on one line
//! - [`steps`], [`self_time`], [`dispatches`]: which rank is late and on which side, where a call's time goes with nothing
//!   counted twice, and how long a parent's hand-over takes; as text, and in the JSON
//! - [`diff`]: two logs against each other, as text and as JSON
//! - [`chrome`]: a timeline for Perfetto and `chrome://tracing`, streamed
//! - [`swimlane`]: the same with a lane for all that runs side by side, on the host and, with the [`chip_records`] of
//!   its runs, on the device; [`host_phase_records`] say what a binding was made of
//! - [`merge`]: another program's trace, copied into either
//!
//! Everything here writes to an [`std::io::Write`] and computes nothing that the model does not offer.
//!
//! A program that made a log and wants to show it, all in one process:
//!
//! ```no_run
//! use simpler_trace_export::{chrome, text};
//! use simpler_trace_ingest::{Source, read};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let reading = read(&[Source::path("out/demo/log")])?;
//! for warning in simpler_trace_model::warnings(&reading.trace) {
//!     eprintln!("{warning}");
//! }
//! let callables = reading.trace.callables();
//! text::table(&mut std::io::stdout().lock(), &callables)?;
//! let file = std::fs::File::create("out/demo/trace.json")?;
//! let spans = chrome::write(&mut std::io::BufWriter::new(file), &reading.trace, chrome::Lanes::Thread)?;
//! let decode = callables.iter().find(|callable| callable.display_label() == "decode");
//! # let _ = (spans, decode);
//! # Ok(())
//! # }
//! ```

pub mod chip_records;
pub mod chrome;
pub mod diff;
pub mod dispatches;
mod event;
pub mod host_phase_records;
pub mod json;
mod lanes;
pub mod merge;
pub mod self_time;
#[cfg(feature = "arrow")]
pub mod span_table;
pub mod steps;
pub mod swimlane;
pub mod text;
mod writer;
