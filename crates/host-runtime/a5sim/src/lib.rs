//! `libsimpler_host_runtime_a5sim.so`: the functions of `host_runtime.h` over the simulated a5, and the log's binder.

use simpler_host_runtime::sim;

simpler_host_log::export_binder!();
simpler_host_runtime::export_host_runtime!(sim::A5SIM);
