//! Bytes to records: files, directories, pipes, gz and zst, with a complaint for all that is not one.
//!
//! [`read`] opens each [`Source`], unpacks it by its magic bytes, and feeds the bytes in blocks to a
//! [`Scanner`], which finds records wherever they stand. What is complete goes into a
//! [`TraceBuilder`](simpler_trace_model::TraceBuilder); what is damaged is counted and kept as a
//! [`Complaint`] with file, byte offset and reason. Nothing that the bytes say stops the reading; only a
//! source that cannot be opened at all is an [`Error`]. [`profile_window`] reads something else: when another tool's
//! profile was taken.
//!
//! The scanner is fed, it does not pull: it holds no more than the few kilobytes that a record can span, and
//! its results do not depend on where the blocks are cut. Several of them can therefore work on chunks of
//! one file, and a [`Follower`] keeps one for each file that grows.
//!
//! ```no_run
//! use simpler_trace_ingest::{Source, read};
//!
//! let reading = read(&[Source::path("out/demo/log")])?;
//! println!("{} spans, {} torn", reading.trace.spans().len(), reading.trace.counts().torn);
//! # Ok::<(), simpler_trace_ingest::Error>(())
//! ```

mod block;
mod complaint;
mod follow;
mod profile;
mod progress;
mod scan;
mod source;

pub use complaint::{Complaint, Complaints, Reason};
pub use follow::{Follower, Notice, POLL_INTERVAL};
pub use profile::{ProfileError, profile_window};
pub use progress::Progress;
pub use scan::{Found, Scanner, Sink, scan_lines};
pub use simpler_trace_model::Keep;
pub use source::{ASK_INTERVAL, Error, ErrorKind, Options, Reader, Reading, Source, read, read_with, unpack};
