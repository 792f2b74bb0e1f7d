//! The simulated chip: memory, AICPU threads, AICores, registers, device counter.
