//! Invocations to the formats of other tools.
