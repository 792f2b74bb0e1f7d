//! The device's end of the log, compiled for this machine, over a stand-in for CANN's dlog.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::os::unix::{Library, Symbol};
use simpler_log_abi::Threshold;
use simpler_onboard::{INIT_ENTRY, InitArgs};
use support::{compile, file};
use tempfile::TempDir;

/// CANN's two functions, with a level that the test sets.
const DLOG: &str = r#"
    #include <stdarg.h>
    #include <stdint.h>
    #include <stdio.h>
    #ifdef __cplusplus
    extern "C" {
    #endif
    static int level = 0;
    static char text[8192];
    static int used;
    void stand_in_level(int to);
    void stand_in_level(int to) { level = to; }
    const char *stand_in_take(void);
    const char *stand_in_take(void) { used = 0; return text; }
    int32_t CheckLogLevel(int32_t module, int32_t of);
    int32_t CheckLogLevel(int32_t module, int32_t of) { return module == 36 && of >= level && level < 4; }
    void DlogRecord(int32_t module, int32_t of, const char *fmt, ...);
    __attribute__((format(printf, 3, 4))) void DlogRecord(int32_t module, int32_t of, const char *fmt, ...) {
        va_list arguments;
        used += sprintf(text + used, "%d %d|", module, of);
        va_start(arguments, fmt);
        used += vsprintf(text + used, fmt, arguments);
        va_end(arguments);
        used += sprintf(text + used, "\n");
    }
    #ifdef __cplusplus
    }
    #endif
"#;

/// An orchestration: one record of each level, and some that are not as usual.
const ORCHESTRATION: &str = r#"
    #include <simpler/unified_log.h>
    #ifdef __cplusplus
    extern "C" {
    #endif
    void each_level(void);
    void each_level(void) {
        LOG_DEBUG("debug %d", 1); LOG_INFO("info %d", 2); LOG_TIMING("timing %d", 3); LOG_WARN("warn %d", 4); LOG_ERROR("error %d", 5);
    }
    void unusual(void);
    void unusual(void) {
        const char *nothing = NULL;
        char longest[700];
        int n;
        for (n = 0; n < 699; n++) { longest[n] = 'x'; }
        longest[699] = 0;
        unified_log_error(NULL, "100 %%");
        unified_log_at(45, "f", "a/%s.c", 7, "%d", 1);
        unified_log_at(45, "f", "a/c.c", 0, "%d", 2);
        unified_log_at(45, "f", nothing, 7, "%d", 3);
        unified_log_at(45, "f", longest, 7, "%d", 4);
    }
    #ifdef __cplusplus
    }
    #endif
"#;

struct Device {
    _folder: TempDir,
    library: Library,
}

impl Device {
    fn new(program: &str, has_dlog: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("{text}\n")).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let sources = [
            file("device/device_log.c").to_str().unwrap().to_owned(),
            write("dlog.c", if has_dlog { DLOG } else { "typedef int nothing;" }),
            write("orchestration.c", ORCHESTRATION),
        ];
        let include = ["include/silicon", "include", "../log-abi/include"]
            .map(|path| format!("-I{}", file(path).display()));
        let object = folder.path().join("device.so");
        let mut arguments =
            vec!["-DSIMPLER_ONBOARD", "-Wall", "-Wextra", "-pedantic", "-Werror", "-shared", "-fPIC", "-O1"];
        arguments.extend(include.iter().map(String::as_str));
        arguments.extend(sources.iter().map(String::as_str));
        arguments.extend(["-o", object.to_str().unwrap()]);
        compile(program, &arguments).unwrap();
        // SAFETY: it has no initialisers.
        let library = unsafe { Library::new(&object) }.unwrap();
        Self { _folder: folder, library }
    }

    fn symbol<T>(&self, name: &str) -> Symbol<T> {
        // SAFETY: each caller gives the signature that the sources above have.
        unsafe { self.library.get(name) }.unwrap()
    }

    fn set_cann_level(&self, level: c_int) {
        let set: Symbol<unsafe extern "C" fn(c_int)> = self.symbol("stand_in_level");
        // SAFETY: as the source has it.
        unsafe { set(level) };
    }

    fn init(&self, log_level: i32) -> u32 {
        let init: Symbol<unsafe extern "C" fn(*const c_void) -> u32> = self.symbol(INIT_ENTRY);
        let args = InitArgs { log_level, device_id: 0 };
        // SAFETY: the arguments outlive the call.
        unsafe { init((&raw const args).cast()) }
    }

    fn call(&self, name: &str) {
        let function: Symbol<unsafe extern "C" fn()> = self.symbol(name);
        // SAFETY: as the source has it.
        unsafe { function() };
    }

    /// What CANN was given since the last question.
    fn records(&self) -> Vec<String> {
        let take: Symbol<unsafe extern "C" fn() -> *const c_char> = self.symbol("stand_in_take");
        // SAFETY: as the source has it.
        let text = unsafe { take() };
        // SAFETY: a C string that stays until the next record.
        let lines: Vec<String> =
            unsafe { CStr::from_ptr(text) }.to_str().unwrap().lines().map(str::to_owned).collect();
        // SAFETY: the text is 8192 bytes, written by nobody now.
        unsafe { text.cast_mut().write(0) };
        lines
    }

    fn levels_heard(&self) -> Vec<String> {
        self.call("each_level");
        let word = |record: String| record.split("] ").last().unwrap().split(' ').next().unwrap().to_owned();
        self.records().into_iter().map(word).collect()
    }
}

#[test]
fn before_the_init_kernel_nothing_is_written() {
    let device = Device::new("gcc", true);
    assert_eq!(device.levels_heard(), [""; 0]);
}

#[test]
fn each_threshold_is_heard_as_on_the_host() {
    let all = ["debug", "info", "timing", "warn", "error"];
    let device = Device::new("gcc", true);
    for threshold in Threshold::ALL {
        device.set_cann_level(threshold.cann());
        assert_eq!(device.init(threshold.get()), 0);
        // WARN hides TIMING, TIMING keeps it, though CANN's level is WARN for both.
        let silent = Threshold::ALL.iter().position(|other| *other == threshold).unwrap();
        assert_eq!(device.levels_heard(), all[silent..], "{threshold:?}");
    }
}

#[test]
fn timing_is_canns_warn_with_a_tag() {
    for program in ["gcc", "g++"] {
        let device = Device::new(program, true);
        device.set_cann_level(0);
        device.init(10);
        device.call("each_level");
        assert_eq!(
            device.records(),
            [
                "36 0|each_level: [orchestration.c:8] debug 1",
                "36 1|each_level: [orchestration.c:8] info 2",
                "36 2|[TIMING] each_level: [orchestration.c:8] timing 3",
                "36 2|each_level: [orchestration.c:8] warn 4",
                "36 3|each_level: [orchestration.c:8] error 5",
            ]
        );
    }
}

#[test]
fn the_environments_level_wins_and_is_latched() {
    let device = Device::new("gcc", true);
    // The environment chose INFO, the host's threshold is ERROR: what INFO admits is heard, TIMING with it.
    device.set_cann_level(1);
    device.init(40);
    assert_eq!(device.levels_heard(), ["info", "timing", "warn", "error"]);
    // It chose WARN: TIMING is for our threshold to say.
    for (log_level, heard) in [(10, &["timing", "warn", "error"][..]), (40, &["warn", "error"])] {
        device.set_cann_level(2);
        device.init(log_level);
        assert_eq!(device.levels_heard(), heard, "{log_level}");
        // What CANN says later is not asked.
        device.set_cann_level(0);
        assert_eq!(device.levels_heard(), heard, "{log_level}");
    }
}

#[test]
fn wrong_arguments_change_nothing() {
    let device = Device::new("gcc", true);
    device.set_cann_level(3);
    device.init(40);
    device.set_cann_level(0);
    for off in [26, 0, -1, 50] {
        assert_eq!(device.init(off), 1);
    }
    let init: Symbol<unsafe extern "C" fn(*const c_void) -> u32> = device.symbol(INIT_ENTRY);
    // SAFETY: null is answered.
    assert_eq!(unsafe { init(std::ptr::null()) }, 1);
    assert_eq!(device.levels_heard(), ["error"]);
}

#[test]
fn unusual_records_are_whole() {
    let device = Device::new("gcc", true);
    device.init(10);
    device.call("unusual");
    assert_eq!(
        device.records(),
        ["36 3|?: 100 %", "36 3|f: [%s.c:7] 1", "36 3|f: [c.c:0] 2", "36 3|f: 3", "36 3|f: 4"]
    );
}

#[test]
fn without_canns_functions_it_loads_and_is_silent() {
    let device = Device::new("gcc", false);
    assert_eq!(device.init(10), 0);
    device.call("each_level");
}
