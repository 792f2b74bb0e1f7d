//! A message that processes pass each other which are forked from one that has made it.
#![allow(dead_code, reason = "each test file uses its own part")]

use crate::support::DEADLINE;

/// A pipe of bytes.
pub(crate) struct Baton {
    ends: [i32; 2],
}

impl Baton {
    /// For this process and its children.
    pub(crate) fn new() -> Baton {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        Baton { ends }
    }

    /// Lets one more taker go on.
    pub(crate) fn pass(&self, byte: u8) {
        // SAFETY: one readable byte.
        assert_eq!(unsafe { libc::write(self.ends[1], (&raw const byte).cast(), 1) }, 1);
    }

    /// Waits for a byte.
    pub(crate) fn take(&self) -> u8 {
        let mut poll = libc::pollfd { fd: self.ends[0], events: libc::POLLIN, revents: 0 };
        // SAFETY: one description.
        assert_eq!(unsafe { libc::poll(&raw mut poll, 1, DEADLINE.as_millis() as i32) }, 1, "nobody passes");
        let mut byte = 0_u8;
        // SAFETY: room for a byte.
        assert_eq!(unsafe { libc::read(self.ends[0], (&raw mut byte).cast(), 1) }, 1);
        byte
    }
}
