//! A build without the feature `dfx` (SIMPLER_DFX=0): the swimlane is gone, and nothing else.

#![cfg(not(feature = "dfx"))]
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_runtime::{RunArgs, SwimlaneConfig};
use simpler_swimlane::Level;
use support::*;

#[test]
fn a_build_without_diagnostics_refuses_the_swimlane_and_nothing_else() {
    let chip = small_chip();
    let error = chip.set_swimlane(SwimlaneConfig { level: Level::AicoreTasks, output: None }).unwrap_err();
    assert_eq!(error.code, -5);
    assert!(error.text.contains("without the feature dfx"), "{error}");
    chip.set_swimlane(SwimlaneConfig::default()).unwrap();
    let id = chip.register(&image("empty", EMPTY, &[])).unwrap();
    run(&chip, id, &RunArgs::default()).unwrap();
}
