//! simpler_run: bind, runner_run, validate, over the task graph and its executor.
