//! A block of a stream: what a thread makes of it by itself, and what is then made of that in the order of the log.
//!
//! Spans become a [`Batch`], so that little is left to do in order; all else is rare and is kept as it was found.

use crate::complaint::{Complaints, Reason};
use crate::scan::{Found, Scanner, Sink, scan_lines};
use simpler_record_format::{ClockAnchor, DeviceClockAnchor, DropReport, RawHostIdentity};
use simpler_trace_model::{Admission, Batch, BindPhaseLine, Keep, Lexicon, TraceBuilder};
use std::sync::Arc;

/// What was found besides spans.
#[derive(Debug)]
enum Note {
    Anchor(ClockAnchor),
    Host { pid: u64, host: u64, name: Box<[u8]> },
    DeviceAnchor(DeviceClockAnchor),
    Drops(DropReport),
    BindPhase(BindPhaseLine),
    JoinedLine,
    Fault(Reason),
}

/// All that a block holds.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Where in the stream it begins.
    base: u64,
    spans: Batch,
    /// How many spans stand in front of each, and its offset in the stream.
    notes: Vec<(u32, u64, Note)>,
}

/// A thread that decodes blocks.
pub(crate) struct Decoder {
    keep: Keep,
    lexicon: Lexicon,
}

/// A block that is being filled.
struct Filling<'a> {
    decoder: &'a mut Decoder,
    block: &'a mut Block,
}

impl Decoder {
    pub(crate) fn new(keep: Keep) -> Decoder {
        Decoder { keep, lexicon: Lexicon::new(keep) }
    }

    /// Reads whole lines, with which a block begins.
    pub(crate) fn lines(&mut self, block: &mut Block, lines: &[u8]) {
        let base = block.base;
        scan_lines(lines, base, &mut Filling { decoder: self, block });
    }

    /// Reads the next part of a line that is too long to be looked at as a whole.
    pub(crate) fn part(&mut self, block: &mut Block, scanner: &mut Scanner, part: &[u8]) {
        scanner.push(part, &mut Filling { decoder: self, block });
    }

    /// Reads what the last part left open, at the end of a stream.
    pub(crate) fn rest(&mut self, block: &mut Block, scanner: Scanner) {
        scanner.finish(&mut Filling { decoder: self, block });
    }
}

impl Block {
    /// Empties it for what begins at `base` of a stream.
    pub(crate) fn begin(&mut self, base: u64) {
        self.base = base;
        self.spans.clear();
        self.notes.clear();
    }

    /// Adds that the stream could not be read beyond `offset`.
    pub(crate) fn unreadable(&mut self, offset: u64) {
        self.notes.push((self.spans.len() as u32, offset, Note::Fault(Reason::Unreadable)));
    }

    /// Gives all to the builder. The blocks of a log come in their order.
    pub(crate) fn deliver(
        &self,
        decoder: usize,
        source: &Arc<str>,
        builder: &mut TraceBuilder,
        complaints: &mut Complaints,
    ) {
        builder.counts_mut().heads += self.spans.len() as u64;
        builder.learn(decoder, &self.spans);
        let mut at = 0;
        let mut spans = |builder: &mut TraceBuilder, complaints: &mut Complaints, to: usize| {
            builder.spans(decoder, &self.spans, at..to, |_, offset, admission| {
                let reason = match admission {
                    Admission::Kept => return,
                    Admission::Duplicate => Reason::Duplicate,
                    Admission::Impossible => Reason::ImpossibleTime,
                };
                complaints.push(source, self.base + u64::from(offset), reason);
            });
            at = to;
        };
        for (before, offset, note) in &self.notes {
            spans(builder, complaints, *before as usize);
            match note {
                Note::Anchor(anchor) => builder.anchor(*anchor),
                Note::Host { pid, host, name } => {
                    builder.host_identity(&RawHostIdentity { pid: *pid, host: *host, name });
                }
                Note::DeviceAnchor(anchor) => builder.device_anchor(*anchor),
                Note::Drops(report) => builder.drop_report(report),
                Note::BindPhase(line) => builder.bind_phase(line),
                Note::JoinedLine => builder.counts_mut().joined_lines += 1,
                Note::Fault(reason) => {
                    count(builder, *reason);
                    complaints.push(source, *offset, *reason);
                }
            }
        }
        spans(builder, complaints, self.spans.len());
    }
}

impl Sink for Filling<'_> {
    fn found(&mut self, offset: u64, found: Found<'_>) {
        let Filling { decoder, block } = self;
        let note = match found {
            Found::Span(span, mono_ns) => {
                decoder.lexicon.add(&mut block.spans, within(block.base, offset), &span, mono_ns);
                return;
            }
            Found::Anchor(anchor) => Note::Anchor(anchor),
            Found::Host(RawHostIdentity { pid, host, name }) => Note::Host { pid, host, name: name.into() },
            // What it is for is not wanted.
            Found::DeviceAnchor(_) | Found::BindPhase(_) if decoder.keep == Keep::Durations => return,
            Found::DeviceAnchor(anchor) => Note::DeviceAnchor(anchor),
            Found::Drops(report) => Note::Drops(report),
            Found::BindPhase(phase) => Note::BindPhase(BindPhaseLine::from(&phase)),
            Found::JoinedLine => Note::JoinedLine,
            Found::Fault(reason) => Note::Fault(reason),
        };
        block.notes.push((block.spans.len() as u32, offset, note));
    }

    fn line(&mut self, offset: u64, bytes: &[u8]) -> Option<usize> {
        let Filling { decoder, block } = self;
        decoder.lexicon.add_line(&mut block.spans, within(block.base, offset), bytes)
    }
}

/// An offset in a block. No block is so long that this would not fit.
fn within(base: u64, offset: u64) -> u32 {
    u32::try_from(offset.saturating_sub(base)).unwrap_or(u32::MAX)
}

fn count(builder: &mut TraceBuilder, reason: Reason) {
    let counts = builder.counts_mut();
    match reason {
        Reason::Torn => (counts.heads, counts.torn) = (counts.heads + 1, counts.torn + 1),
        Reason::Malformed(_) => (counts.heads, counts.malformed) = (counts.heads + 1, counts.malformed + 1),
        Reason::UnknownVersion(_) => {
            (counts.heads, counts.unknown_version) = (counts.heads + 1, counts.unknown_version + 1);
        }
        Reason::TruncatedRecord => counts.truncated_records += 1,
        Reason::Quoted => counts.quoted += 1,
        Reason::DamagedAnchor => counts.damaged_anchors += 1,
        Reason::DamagedHostIdentity => counts.damaged_host_identities += 1,
        Reason::DamagedDropReport => counts.damaged_drop_reports += 1,
        Reason::Duplicate
        | Reason::ImpossibleTime
        | Reason::OverlongAttributes
        | Reason::InconsistentDropReport => {}
        Reason::Unreadable => counts.unreadable += 1,
    }
}
