//! The host logger: queue, writer, drop counts, fork quiesce, clock anchor, spans.
