//! The headers say what the Rust types say: layout, values and roundings, in every language and compiler.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::process::Command;

use simpler_log_abi::{
    DROP_REASONS, DropReason, HEADERS, LOG_DIRECTORY_BYTES, Level, PRODUCERS_CLOSED, SimplerHostLogState,
    SimplerHostSpan, SimplerSpanContext, Threshold,
};
use support::{compile, compilers, include};

/// What must hold in C, from the Rust types.
fn facts() -> Vec<(String, u64)> {
    let mut facts = Vec::new();
    macro_rules! layout {
        ($type:ident { $($field:ident),* $(,)? }) => {
            facts.push((format!("sizeof({})", stringify!($type)), size_of::<$type>() as u64));
            facts.push((format!("simpler_alignof({})", stringify!($type)), align_of::<$type>() as u64));
            $({
                let expression = format!("offsetof({}, {})", stringify!($type), stringify!($field));
                facts.push((expression, offset_of!($type, $field) as u64));
            })*
        };
    }
    layout!(SimplerHostLogState {
        threshold,
        clock_anchor_pid,
        log_directory_bound,
        log_directory,
        sink_owner_pid,
        sink_process_pid,
        sink_context,
        sink_enqueue,
        dropped_record_count,
        pending_record_count,
        sink_producer_state,
        dropped_by_reason,
        reported_drop_count,
        next_invocation_id,
        span_context,
        anchor_stderr_pid,
        anchor_mono_ns,
        anchor_wall_ns,
        anchor_thread,
    });
    layout!(SimplerHostSpan { inv, hid, depth, reserved, ts, dur, name, attrs });
    layout!(SimplerSpanContext { inv, hid, depth, reserved });
    let level = |level: Level| level as u64;
    let reason = |reason: DropReason| reason as u64;
    for (name, value) in [
        ("SIMPLER_LOG_DEBUG", level(Level::Debug)),
        ("SIMPLER_LOG_INFO", level(Level::Info)),
        ("SIMPLER_LOG_TIMING", level(Level::Timing)),
        ("SIMPLER_LOG_WARN", level(Level::Warn)),
        ("SIMPLER_LOG_ERROR", level(Level::Error)),
        ("SIMPLER_LOG_NUL", Threshold::NUL.get() as u64),
        ("SIMPLER_LOG_DIRECTORY_BYTES", LOG_DIRECTORY_BYTES as u64),
        ("SIMPLER_PRODUCERS_CLOSED", PRODUCERS_CLOSED),
        ("SIMPLER_DROP_QUEUE_FULL", reason(DropReason::QueueFull)),
        ("SIMPLER_DROP_CLAIM_EXHAUSTED", reason(DropReason::ClaimExhausted)),
        ("SIMPLER_DROP_OUTPUT_FAILED", reason(DropReason::OutputFailed)),
        ("SIMPLER_DROP_NOT_ADMITTED", reason(DropReason::NotAdmitted)),
        ("SIMPLER_DROP_REASONS", DROP_REASONS as u64),
        ("sizeof(((SimplerHostLogState *)0)->threshold)", 4),
        ("sizeof(((SimplerHostLogState *)0)->log_directory)", LOG_DIRECTORY_BYTES as u64),
        ("sizeof(((SimplerHostLogState *)0)->sink_producer_state)", 8),
        ("sizeof(((SimplerHostLogState *)0)->dropped_by_reason)", 8 * DROP_REASONS as u64),
        ("sizeof(((SimplerHostSpan *)0)->depth)", 4),
    ] {
        facts.push((name.to_owned(), value));
    }
    facts
}

fn unit(facts: &[(String, u64)]) -> String {
    let mut text = String::from(
        "#include <simpler/host_log_state.h>\n#include <simpler/log_level.h>\n#include <stddef.h>\n\
         #ifdef __cplusplus\n#define simpler_alignof alignof\n#define simpler_assert static_assert\n\
         #else\n#define simpler_alignof _Alignof\n#define simpler_assert _Static_assert\n#endif\n",
    );
    for (expression, value) in facts {
        writeln!(text, "simpler_assert((uint64_t)({expression}) == {value}u, \"{expression}\");").unwrap();
    }
    text
}

#[test]
fn the_headers_have_the_layout_and_the_values_of_the_rust_types() {
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        let compiled =
            compile(folder.path(), compiler, &[("layout.x", &unit(&facts()))], &["-c"], "layout.o");
        assert_eq!(compiled.err(), None, "{compiler:?}");
    }
}

#[test]
fn a_wrong_number_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    for index in 0..facts().len() {
        let mut wrong = facts();
        wrong[index].1 ^= 1;
        // Each compiler reads the same headers: one is enough, two languages take turns.
        let compiler = compilers()[index % 2];
        let compiled = compile(folder.path(), compiler, &[("layout.x", &unit(&wrong))], &["-c"], "layout.o");
        assert!(compiled.is_err_and(|words| words.contains(&wrong[index].0)), "{}", wrong[index].0);
    }
}

#[test]
fn each_header_stands_alone_and_may_come_twice() {
    let folder = tempfile::tempdir().unwrap();
    for (name, _) in HEADERS {
        let text = format!(
            "#include <simpler/{name}>\n#include <simpler/{name}>\nint used(void);\nint used(void) {{ return 0; }}\n"
        );
        for compiler in compilers() {
            for off in ["-DSIMPLER_HOST_STRACE=1", "-DSIMPLER_HOST_STRACE=0"] {
                let flags = [off, "-Wshadow", "-Wconversion", "-c"];
                let compiled = compile(folder.path(), compiler, &[("alone.x", &text)], &flags, "alone.o");
                assert_eq!(compiled.err(), None, "{name} {compiler:?} {off}");
            }
        }
    }
}

#[test]
fn the_texts_are_those_of_the_folder() {
    let mut names: Vec<String> = std::fs::read_dir(include().join("simpler"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, HEADERS.map(|(name, _)| name));
    for (name, text) in HEADERS {
        assert_eq!(std::fs::read_to_string(include().join("simpler").join(name)).unwrap(), text);
    }
}

#[test]
fn the_roundings_and_the_map_to_cann_are_those_of_rust() {
    const LADDER: &str = r#"
        #include <simpler/log_level.h>
        #include <stdio.h>
        int main(void) {
            for (int32_t n = -70; n <= 70; n++) {
                printf("%d %d %d %d %d %s\n", n, simpler_log_is_threshold(n), simpler_log_round_threshold(n),
                       simpler_log_round_record(n), simpler_log_cann_level(simpler_log_round_threshold(n)),
                       simpler_log_level_name(n));
            }
            return 0;
        }
    "#;
    let mut expected = String::new();
    for n in -70..=70 {
        let (threshold, level) = (Threshold::normalize(n), Level::round_record(n));
        let is_threshold = i32::from(Threshold::from_ladder(n).is_some());
        let (wish, record, cann, name) = (threshold.get(), level as i32, threshold.cann(), level.name());
        writeln!(expected, "{n} {is_threshold} {wish} {record} {cann} {name}").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        let program = compile(folder.path(), compiler, &[("ladder.x", LADDER)], &[], "ladder").unwrap();
        let output = Command::new(program).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{compiler:?}");
    }
}

#[test]
fn a_file_with_every_feature_macro_and_system_header_takes_the_headers_too() {
    const CROWDED: &str = "
        #ifndef _GNU_SOURCE
        #define _GNU_SOURCE
        #endif
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <link.h>
        #include <poll.h>
        #include <pthread.h>
        #include <sys/file.h>
        #include <sys/mman.h>
        #include <time.h>
        #include <unistd.h>
        #include <simpler/strace.h>
        #include <simpler/host_log_binding.h>
        int crowded(void);
        int crowded(void) { SIMPLER_SPAN(\"x\"); LOG_INFO(\"%d\", (int)getpid()); return 0; }
    ";
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        let compiled =
            compile(folder.path(), compiler, &[("crowded.x", CROWDED)], &["-c", "-O2"], "crowded.o");
        assert_eq!(compiled.err(), None, "{compiler:?}");
    }
}
