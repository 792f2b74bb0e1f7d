//! Orchestration and kernel sources to shared objects, with a content-keyed cache.
