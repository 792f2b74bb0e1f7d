//! A build without the feature `dfx` (SIMPLER_DFX=0): the swimlane is gone, and nothing else.

#![cfg(not(feature = "dfx"))]
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_runtime::{CallConfig, RunArgs};
use simpler_swimlane::Level;
use support::*;

#[test]
fn a_build_without_diagnostics_refuses_the_swimlane_and_nothing_else() {
    let chip = small_chip();
    let id = chip.register(&image("empty", EMPTY, &[])).unwrap();
    let config = CallConfig { swimlane: Level::AicoreTasks, ..CallConfig::default() };
    let error = run(&chip, id, &RunArgs { config, ..RunArgs::default() }).unwrap_err();
    assert_eq!(error.code, -5);
    assert!(error.text.contains("without the feature dfx"), "{error}");
    run(&chip, id, &RunArgs::default()).unwrap();
}
