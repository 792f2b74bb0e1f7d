//! A program that logs with `log` alone. Two lines know the host log: the one that sets it up, and `install`.
//!
//! ```sh
//! cargo run --package log-app -- out/log
//! ```

use std::error::Error;
use std::path::Path;

use simpler_host_log::{Config, Threshold, log_facade};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: log-app LOG_FOLDER")?;
    let directory = Some(Path::new(&folder));
    simpler_host_log::init(&Config { threshold: Threshold::INFO, directory, ..Config::default() })?;
    log_facade::install()?;

    log::info!("{} pages are left", 3);
    log::debug!("below the threshold, so nothing is formatted");
    log::warn!(target: "audit", page = 2; "printed twice");
    Ok(())
}
