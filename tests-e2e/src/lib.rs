//! Whole programs against each other.
