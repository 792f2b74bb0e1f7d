//! What was wrong, where, and how often.

use simpler_record_format::{Fault, Field, Malformed};
use std::fmt;
use std::sync::Arc;

/// How many complaints are kept in full; the rest are only counted. A damaged log can have as many as it
/// has records.
const KEPT_MAX: usize = 100;

/// Why something in the bytes is not a plain record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A span record is cut, unterminated, or glued to something else.
    Torn,
    /// A field of a span record is not what the grammar says.
    Malformed(Malformed),
    /// A span record of another version.
    UnknownVersion(u64),
    /// A span record repeats an earlier one.
    Duplicate,
    /// A span claims to end after its record was made.
    ImpossibleTime,
    /// A copy of a record stands in quotes.
    Quoted,
    /// A writer cut its record at the length limit.
    TruncatedRecord,
    /// Text of some other origin follows a span record on its line for longer than any record; it was left
    /// out of the attributes.
    OverlongAttributes,
    /// A clock anchor that is not whole.
    DamagedAnchor,
    /// A drop report that is not whole.
    DamagedDropReport,
    /// The reasons of a drop report do not add up to its total.
    InconsistentDropReport,
    /// A host identity that is not whole.
    DamagedHostIdentity,
    /// The source could not be read to its end: it is cut, its packing is damaged, or the device failed.
    Unreadable,
}

impl Reason {
    /// The stable name of the kind, as it stands in JSON.
    pub fn kind(self) -> &'static str {
        KINDS[self.index()]
    }

    fn index(self) -> usize {
        match self {
            Reason::Torn => 0,
            Reason::Malformed(_) => 1,
            Reason::UnknownVersion(_) => 2,
            Reason::Duplicate => 3,
            Reason::ImpossibleTime => 4,
            Reason::Quoted => 5,
            Reason::TruncatedRecord => 6,
            Reason::OverlongAttributes => 7,
            Reason::DamagedAnchor => 8,
            Reason::DamagedDropReport => 9,
            Reason::InconsistentDropReport => 10,
            Reason::Unreadable => 11,
            Reason::DamagedHostIdentity => 12,
        }
    }
}

/// By [`Reason::index`].
const KINDS: [&str; 13] = [
    "torn",
    "malformed",
    "unknown_version",
    "duplicate",
    "impossible_time",
    "quoted",
    "truncated_record",
    "overlong_attributes",
    "damaged_anchor",
    "damaged_drop_report",
    "inconsistent_drop_report",
    "unreadable",
    "damaged_host_identity",
];

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Torn => f.write_str("a [STRACE] record is cut or glued to something else"),
            Reason::Malformed(Malformed { field, fault }) => {
                let key = Field::key(*field);
                match fault {
                    Fault::Missing => write!(f, "a [STRACE] record has something else where {key} should be"),
                    Fault::NotANumber => write!(f, "a [STRACE] record has no plain number after {key}"),
                    Fault::OutOfRange => {
                        write!(f, "a [STRACE] record has a number after {key} that is too large")
                    }
                    Fault::Empty => write!(f, "a [STRACE] record has nothing after {key}"),
                }
            }
            Reason::UnknownVersion(version) => {
                write!(f, "a [STRACE] record has the unknown version {version}")
            }
            Reason::Duplicate => f.write_str("a [STRACE] record repeats an earlier one"),
            Reason::ImpossibleTime => f.write_str("a [STRACE] record claims a time after it was made"),
            Reason::Quoted => f.write_str("a copy of a record stands in quotes and is left out"),
            Reason::TruncatedRecord => f.write_str("a record was cut by its writer at the length limit"),
            Reason::OverlongAttributes => {
                f.write_str("a [STRACE] record is followed by other text on its line")
            }
            Reason::DamagedAnchor => f.write_str("a clock anchor record is not whole"),
            Reason::DamagedDropReport => f.write_str("a [HOSTLOG_DROPS] record is not whole"),
            Reason::InconsistentDropReport => {
                f.write_str("the reasons of a [HOSTLOG_DROPS] record do not add up to its total")
            }
            Reason::DamagedHostIdentity => f.write_str("a [HOST_IDENTITY] record is not whole"),
            Reason::Unreadable => f.write_str("the source cannot be read beyond this point"),
        }
    }
}

/// One thing that was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The source, as the user named it.
    pub source: Arc<str>,
    /// Where in the source's (unpacked) bytes.
    pub offset: u64,
    /// What.
    pub reason: Reason,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: byte {}: {}", self.source, self.offset, self.reason)
    }
}

/// All complaints: how many of each kind, and the first of them in full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaints {
    counts: [u64; KINDS.len()],
    first: Vec<Complaint>,
}

impl Complaints {
    pub(crate) fn push(&mut self, source: &Arc<str>, offset: u64, reason: Reason) {
        self.counts[reason.index()] += 1;
        if self.first.len() < KEPT_MAX {
            self.first.push(Complaint { source: Arc::clone(source), offset, reason });
        }
    }

    /// The first complaints, in the order in which they were met.
    pub fn first(&self) -> &[Complaint] {
        &self.first
    }

    /// How many there are of each kind that occurs.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KINDS.into_iter().zip(self.counts).filter(|&(_, count)| count > 0)
    }

    /// How many there are in all.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}
