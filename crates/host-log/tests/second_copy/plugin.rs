//! A shared object that logs through a copy of the logger of its own: what `second_copy` loads.

use std::ffi::c_int;
use std::time::Duration;

use simpler_host_log as log;

log::export_binder!();

/// Emits one text record.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_text(number: c_int) {
    log::log_info!("from the plugin {number}");
}

/// Emits a span inside whatever this thread is in, which calls `inside` while it is open.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_span(inside: Option<extern "C" fn()>) {
    let _span = log::span!("simpler_run.plugin", number = 1);
    if let Some(inside) = inside {
        inside();
    }
}

/// Runs an invocation of the plugin's own and gives its number.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_invocation() -> u64 {
    let _run = log::Invocation::begin("plugin_run", 0xb0b);
    let _span = log::span!("plugin_run.part");
    log::context().inv
}

/// What the setting up of a log says here: 1 done, 0 not the owner, −1 another error.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_start_writer() -> c_int {
    verdict(log::start_writer())
}

/// See [`plugin_start_writer`].
#[unsafe(no_mangle)]
pub extern "C" fn plugin_init() -> c_int {
    verdict(log::init(&log::Config::default()))
}

fn verdict(outcome: Result<(), log::Error>) -> c_int {
    match outcome {
        Ok(()) => 1,
        Err(error) if error.kind() == log::ErrorKind::NotTheOwner => 0,
        Err(_) => -1,
    }
}

/// Waits for the plugin's records; 1 once they are written.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_flush() -> c_int {
    c_int::from(log::flush(Duration::from_secs(20)).is_ok())
}

/// Tries to stop the writer, as an owner would before a fork; 1 if it says that it may fork.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_quiesce() -> c_int {
    let outcome = log::prepare_to_fork(Duration::from_millis(100));
    log::close(Duration::from_millis(100));
    c_int::from(outcome.is_ok())
}
