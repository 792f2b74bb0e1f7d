//! Which libraries are opened, and what is said of those that are not as they should be.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::ffi::OsString;

use simpler_log_abi::Threshold;
use simpler_onboard::{Cann, CannPaths, FOLDER_ENV, OnboardError};
use support::{NAME, StandIn};

const NEEDED: [&str; 13] = [
    "dlog_setlevel",
    "aclInit",
    "aclFinalize",
    "aclrtSetDevice",
    "aclrtResetDevice",
    "aclrtGetCurrentContext",
    "aclrtSetCurrentContext",
    "aclrtCreateStream",
    "aclrtDestroyStream",
    "aclrtSynchronizeStream",
    "aclrtMalloc",
    "aclrtFree",
    "aclrtMemcpy",
];
const NEEDED_TO_LAUNCH: [&str; 4] =
    ["aclrtBinaryLoadFromData", "aclrtBinaryUnLoad", "aclrtRegisterCpuFunc", "aclrtLaunchKernelWithHostArgs"];

/// Whether a file is mapped into this process.
fn is_mapped(path: &std::path::Path) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(path.to_str().unwrap())
}

#[test]
fn a_missing_library_is_named_with_all_names_that_were_tried() {
    let folder = tempfile::tempdir().unwrap();
    let paths = CannPaths { folder: Some(folder.path().to_owned()), ..CannPaths::default() };
    let error = Cann::load(&paths).unwrap_err().to_string();
    let opening = "cannot load CANN's library libascendalog.so or libunified_dlog.so: ";
    assert!(error.starts_with(opening), "{error}");
    assert!(error.contains(folder.path().join("libunified_dlog.so").to_str().unwrap()), "{error}");
    let stand_in = StandIn::new();
    let paths = CannPaths { acl: vec!["libascendcl.so".into()], ..stand_in.paths() };
    let error = Cann::load(&paths).unwrap_err().to_string();
    assert!(error.starts_with("cannot load CANN's library libascendcl.so: "), "{error}");
    let error = Cann::load(&CannPaths { acl: vec![], ..stand_in.paths() }).unwrap_err();
    assert_eq!(error.to_string(), "cannot load CANN's library : no name was given");
}

#[test]
fn the_first_name_that_loads_is_taken() {
    let stand_in = StandIn::new();
    let log = vec!["libabsent.so".into(), NAME.into()];
    Cann::load(&CannPaths { log, ..stand_in.paths() }).unwrap();
}

#[test]
fn a_missing_function_is_named_with_its_library() {
    for symbol in NEEDED {
        let stand_in = StandIn::without(symbol);
        let error = Cann::load(&stand_in.paths()).unwrap_err().to_string();
        let library = stand_in.paths().folder.unwrap().join(NAME);
        assert_eq!(error, format!("CANN's library {} has no function {symbol}", library.display()));
        assert_eq!(stand_in.calls(), [""; 0]);
    }
}

#[test]
fn a_release_that_cannot_launch_has_memory_all_the_same() {
    for symbol in NEEDED_TO_LAUNCH {
        let stand_in = StandIn::without(symbol);
        let npu = stand_in.open(Threshold::TIMING).unwrap();
        let error = npu.load_aicpu(b"image").err().unwrap();
        assert!(
            matches!(error, OnboardError::Symbol { symbol: missing, .. } if missing == symbol),
            "{error}"
        );
    }
}

#[test]
fn a_failed_load_closes_what_it_opened() {
    // The stand-in's own handle would keep its file mapped: these are others.
    let (whole, lacking) = (StandIn::new(), StandIn::without("aclrtMemcpy"));
    let folder = tempfile::tempdir().unwrap();
    let (log, acl) = (folder.path().join("liblog.so"), folder.path().join("libacl.so"));
    std::fs::copy(whole.paths().folder.unwrap().join(NAME), &log).unwrap();
    std::fs::copy(lacking.paths().folder.unwrap().join(NAME), &acl).unwrap();
    let paths = CannPaths { folder: None, acl: vec![acl.clone()], log: vec![log.clone()] };
    assert!(Cann::load(&paths).is_err());
    assert_eq!((is_mapped(&log), is_mapped(&acl)), (false, false));
    // And while it is loaded, both are; afterwards neither.
    let cann = Cann::load(&CannPaths { acl: vec![log.clone()], log: vec![acl.clone()], ..paths }).unwrap();
    assert_eq!((is_mapped(&log), is_mapped(&acl)), (true, true));
    drop(cann);
    assert_eq!((is_mapped(&log), is_mapped(&acl)), (false, false));
}

#[test]
fn the_environment_names_folder_and_libraries() {
    let none = CannPaths::from_lookup(|_| None);
    assert_eq!(none, CannPaths::default());
    assert_eq!(CannPaths::from_lookup(|_| Some(OsString::new())), CannPaths::default());
    let some = CannPaths::from_lookup(|name| {
        let value = match name {
            FOLDER_ENV => "/opt/cann/lib64",
            "SIMPLER_CANN_ACL" => "libacl_rt.so",
            "SIMPLER_CANN_LOG" => "libother.so",
            _ => return None,
        };
        Some(value.into())
    });
    let expected = CannPaths {
        folder: Some("/opt/cann/lib64".into()),
        acl: vec!["libacl_rt.so".into()],
        log: vec!["libother.so".into()],
    };
    assert_eq!(some, expected);
}
