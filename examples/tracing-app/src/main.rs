//! A small order desk, instrumented with `tracing` alone. `install` is the only line that knows the host log.
//!
//! ```sh
//! cargo run --package tracing-app -- out/log
//! cargo run --package simpler-cli -- timing out/log
//! ```

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use simpler_host_log::{Config, Threshold, tracing_layer};
use tracing::{debug, info, info_span, warn};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: tracing-app LOG_FOLDER")?;
    let config =
        Config { threshold: Threshold::INFO, directory: Some(Path::new(&folder)), ..Config::default() };
    tracing_layer::install("shop", &config)?;

    let day = info_span!("day", orders = 4).entered();
    for number in 1..=4 {
        order(number);
    }
    // A worker of its own, told which span its work belongs to.
    let audit = info_span!(parent: &day, "audit");
    std::thread::spawn(move || audit.in_scope(|| work(Duration::from_micros(200))))
        .join()
        .map_err(|_| "the audit failed")?;
    Ok(())
}

fn order(number: u32) {
    let _order = info_span!("order", number, customer = "Ada L.").entered();
    debug!("below the threshold, so nothing is formatted");
    info_span!("order.check").in_scope(|| work(Duration::from_micros(50)));
    info_span!("order.pack", weight_g = tracing::field::Empty).in_scope(|| {
        work(Duration::from_micros(100));
        tracing::Span::current().record("weight_g", 250 * number);
    });
    if number == 3 {
        warn!(number, "packed late");
    }
    info!(number, "sent");
}

/// Stands for something that takes this long.
fn work(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
