//! Which child of a worker.

use std::fmt;

/// A child of a worker, by its kind and its index among those. A plain number is a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChildId {
    /// Runs chip callables.
    Chip(usize),
    /// A sub worker: runs functions of the host program.
    Sub(usize),
    /// A whole worker of the level below: runs orchestrations over its own children.
    Worker(usize),
    /// As a worker, on another host.
    Remote(usize),
}

impl From<usize> for ChildId {
    fn from(chip: usize) -> Self {
        Self::Chip(chip)
    }
}

impl fmt::Display for ChildId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chip(index) => write!(out, "chip {index}"),
            Self::Sub(index) => write!(out, "sub worker {index}"),
            Self::Worker(index) => write!(out, "worker {index}"),
            Self::Remote(index) => write!(out, "remote worker {index}"),
        }
    }
}
