//! Device phase timing: the fixed phases, stamped on the device, reduced on the host.
