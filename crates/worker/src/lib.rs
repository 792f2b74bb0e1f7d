//! Workers: the L3 parent, its forked L2 chip children, their mailboxes.
