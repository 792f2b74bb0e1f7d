//! The C-visible types of the host log: shared state, span, level ladder.
