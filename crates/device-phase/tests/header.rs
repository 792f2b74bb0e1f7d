//! The C header has the layout of the crate, and its stores are those of [`PhaseStamper`].

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use simpler_device_phase::{
    EMIT_ORDER, HEADER_BYTES, PHASES, PhaseBufferLayout, PhaseStamper, RECORD_BYTES, TASK_SLOTS, TaskSlot,
};

/// Threads of a2a3 and of a5, and the smallest.
const THREADS: [usize; 3] = [1, 6, 14];

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// Compiles `text` with all warnings as errors and returns the program's output, or the compiler's words.
fn run(compiler: &str, language: &str, standard: &str, text: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("device.txt"), folder.path().join("program"));
    std::fs::write(&source, text).expect("a source");
    let output = Command::new(compiler)
        .args(["-x", language, standard, "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror", "-I"])
        .arg(include())
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let output = Command::new(&program).output().expect("the program starts");
    assert!(output.status.success());
    Ok(String::from_utf8(output.stdout).expect("numbers"))
}

/// A program that says what the header says.
fn numbers_in_c() -> String {
    let mut text = String::from("#include <simpler/device_phase.h>\n#include <stdio.h>\nint main(void) {\n");
    let mut print = |expression: &str| {
        writeln!(text, "    printf(\"%zu\\n\", (size_t)({expression}));").expect("a string grows");
    };
    for name in ["SIMPLER_PHASES", "SIMPLER_TASK_TIMING_SLOTS", "sizeof(SimplerPhaseHeader)"] {
        print(name);
    }
    print("sizeof(SimplerPhaseRecord)");
    print("sizeof(SimplerTaskTimingRecord)");
    for phase in [
        "RUN_WALL",
        "PREAMBLE",
        "SO_LOAD",
        "GRAPH_BUILD",
        "CONFIG_VALIDATE",
        "ARENA_WIRE",
        "SM_RESET",
        "POST_ORCH",
        "ORCH_WINDOW",
        "SCHED_WINDOW",
    ] {
        print(&format!("SIMPLER_PHASE_{phase}"));
    }
    for threads in THREADS {
        print(&format!("simpler_phase_tail_offset({threads})"));
        print(&format!("simpler_phase_bytes({threads})"));
    }
    text + "    return 0;\n}\n"
}

fn numbers_in_rust() -> Vec<usize> {
    let mut numbers = vec![PHASES, TASK_SLOTS, HEADER_BYTES, RECORD_BYTES, RECORD_BYTES];
    numbers.extend(EMIT_ORDER.map(|phase| phase as usize));
    for threads in THREADS {
        let layout = PhaseBufferLayout::new(threads);
        numbers.extend([layout.tail_offset(), layout.bytes()]);
    }
    numbers
}

#[test]
fn both_languages_have_the_same_layout() {
    for (compiler, language, standard) in [("gcc", "c", "-std=c11"), ("g++", "c++", "-std=c++17")] {
        let said = run(compiler, language, standard, &numbers_in_c()).expect("the header compiles");
        let said: Vec<usize> = said.lines().map(|line| line.parse().expect("a number")).collect();
        assert_eq!(said, numbers_in_rust(), "{compiler}");
    }
}

/// The same stamps in C, the buffer printed word by word.
const STAMPS: &str = r#"
#include <simpler/device_phase.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    size_t words = simpler_phase_bytes(6) / 8, i;
    uint64_t *buffer = (uint64_t *)malloc(words * 8);
    if (!buffer) return 1;
    buffer[0] = buffer[1] = 0;
    for (i = 2; i < words; i += 2) {
        buffer[i] = SIMPLER_PHASE_UNSET;
        buffer[i + 1] = 0;
    }
    for (i = 0; i < 8; i++) { /* threads 6 and 7 were not launched */
        simpler_phase_stamp(buffer, 6, i, (int)i + 2, 100 * i, 100 * i + 50);
        simpler_task_timing_dispatch(buffer, 6, i, (int)(2 * i), 70 + i);
        simpler_task_timing_dispatch(buffer, 6, i, (int)(2 * i), 60 + i);
        simpler_task_timing_dispatch(buffer, 6, i, (int)(2 * i), 80 + i);
        simpler_task_timing_finish(buffer, 6, i, (int)(2 * i), 95 + i);
        simpler_task_timing_finish(buffer, 6, i, (int)(2 * i), 90 + i);
        simpler_task_timing_dispatch(buffer, 6, i, 16, 1);
        simpler_task_timing_finish(buffer, 6, i, -1, 1);
        simpler_phase_stamp(buffer, 6, i, SIMPLER_PHASES, 1, 2);
        simpler_phase_stamp(NULL, 6, i, 0, 1, 2);
    }
    simpler_task_timing_publish(buffer, 6);
    simpler_task_timing_publish(NULL, 6);
    for (i = 0; i < words; i++) printf("%llu\n", (unsigned long long)buffer[i]);
    free(buffer);
    return 0;
}
"#;

#[test]
fn both_languages_stamp_the_same_words() {
    let layout = PhaseBufferLayout::new(6);
    let mut image = vec![0_u8; layout.bytes()];
    layout.write_reset_image(&mut image).expect("the image is as long as the layout");
    let mut words: Vec<u64> =
        image.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect();
    let phases = {
        let mut by_number = EMIT_ORDER;
        by_number.sort_by_key(|phase| *phase as usize);
        by_number
    };
    for thread in 0..8_usize {
        // SAFETY: the words are the layout of 6 threads, aligned, and outlive the stamper.
        let stamper = unsafe { PhaseStamper::new(words.as_mut_ptr().cast(), 6, thread) };
        let cycles = thread as u64;
        stamper.stamp(phases[thread + 2], 100 * cycles, 100 * cycles + 50);
        let slot = TaskSlot::new(2 * thread as i32).expect("a slot's number");
        for dispatch in [70, 60, 80] {
            stamper.task_dispatched(slot, dispatch + cycles);
        }
        for finish in [95, 90] {
            stamper.task_finished(slot, finish + cycles);
        }
    }
    // SAFETY: as above.
    unsafe { PhaseStamper::new(words.as_mut_ptr().cast(), 6, 0) }.publish_tail_use();
    assert_eq!(words[0], 1);
    for (compiler, language, standard) in [("gcc", "c", "-std=c11"), ("g++", "c++", "-std=c++17")] {
        let said = run(compiler, language, standard, STAMPS).expect("the header compiles");
        let said: Vec<u64> = said.lines().map(|line| line.parse().expect("a number")).collect();
        assert_eq!(said, words, "{compiler}");
    }
}
