//! The header says what the Rust types say, and its scopes are recorded, in every language and compiler.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use simpler_swimlane::{
    AicoreTask, AicpuTask, FREE_PLACES, Level, NAME_BYTES_MAX, NamedScope, OrchPhase, PhaseNames, RecordKind,
    SWIMLANE_HEADER, SchedKind, SchedPhase, fnv1a,
};

/// A compiler for one language and standard.
#[derive(Clone, Copy, Debug)]
struct Compiler {
    program: &'static str,
    language: &'static str,
    standard: &'static str,
}

/// gcc and g++ always, clang where there is one.
fn compilers() -> Vec<Compiler> {
    let all = [
        Compiler { program: "gcc", language: "c", standard: "-std=c11" },
        Compiler { program: "g++", language: "c++", standard: "-std=c++17" },
        Compiler { program: "g++", language: "c++", standard: "-std=c++11" },
        Compiler { program: "clang", language: "c", standard: "-std=c11" },
        Compiler { program: "clang++", language: "c++", standard: "-std=c++17" },
    ];
    let is_here = |compiler: &Compiler| {
        let found = Command::new(compiler.program).arg("--version").output().is_ok();
        if !found {
            eprintln!("skipped: no {} on this machine", compiler.program);
        }
        found || compiler.program.starts_with('g')
    };
    all.into_iter().filter(is_here).collect()
}

/// Compiles a source in `folder`, warned of nothing; the compiler's words when it refuses.
fn compile(
    folder: &Path,
    compiler: Compiler,
    source: &str,
    flags: &[&str],
    output: &str,
) -> Result<PathBuf, String> {
    std::fs::write(folder.join("source.x"), format!("{source}\n")).unwrap();
    let result = Command::new(compiler.program)
        .current_dir(folder)
        .args([compiler.standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wshadow", "-Wconversion"])
        .args(flags)
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .args(["-x", compiler.language, "source.x", "-o", output])
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", compiler.program));
    match result.status.success() {
        true => Ok(folder.join(output)),
        false => Err(String::from_utf8_lossy(&result.stderr).into_owned()),
    }
}

fn run(program: &Path) -> String {
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What must hold in C.
fn facts() -> Vec<(String, u64)> {
    let mut facts = Vec::new();
    macro_rules! layout {
        ($type:ident as $c_type:ident { $($field:ident),* $(,)? }) => {
            facts.push((format!("sizeof({})", stringify!($c_type)), size_of::<$type>() as u64));
            facts.push((format!("simpler_alignof({})", stringify!($c_type)), align_of::<$type>() as u64));
            $({
                let expression = format!("offsetof({}, {})", stringify!($c_type), stringify!($field));
                facts.push((expression, offset_of!($type, $field) as u64));
            })*
        };
    }
    layout!(AicpuTask as SimplerAicpuTask { dispatch, finish, reg_task_id, reserved });
    layout!(AicoreTask as SimplerAicoreTask { start, end, token, reg_task_id, receive_to_start });
    layout!(SchedPhase as SimplerSchedPhase {
        start,
        end,
        loop_iter,
        kind,
        tasks,
        detail,
        depths_at_start,
        depths_at_end,
        reserved,
    });
    layout!(OrchPhase as SimplerOrchPhase { start, end, task_id, submit_idx, reserved });
    layout!(NamedScope as SimplerNamedScope { start, end, name_hash, depth, reserved });
    let of = |expression: &str, value: u64| (expression.to_owned(), value);
    // The words that the two sides share: their Rust types are pinned to the same numbers where they stand.
    for (field, offset) in
        [("buffer", 0), ("seq", 8), ("total", 12), ("dropped", 16), ("count", 20), ("committed", 24)]
    {
        facts.push(of(&format!("offsetof(SimplerActiveHead, {field})"), offset));
    }
    for (field, offset) in [("buffers", 0), ("head", 32), ("tail", 36)] {
        facts.push(of(&format!("offsetof(SimplerFreeQueue, {field})"), offset));
    }
    for (field, offset) in [("index", 0), ("kind", 4), ("buffer", 8), ("seq", 16), ("count", 20)] {
        facts.push(of(&format!("offsetof(SimplerReadyPlace, {field})"), offset));
    }
    for (field, offset) in [("context", 0), ("counter", 8), ("record", 16), ("depth", 24)] {
        facts.push(of(&format!("offsetof(SimplerPhaseRecorder, {field})"), offset));
    }
    for (expression, value) in [
        ("sizeof(SimplerActiveHead)", 64),
        ("sizeof(SimplerFreeQueue)", 128),
        ("sizeof(SimplerSwimlanePool)", 192),
        ("offsetof(SimplerSwimlanePool, free)", 64),
        ("sizeof(SimplerReadyPlace)", 24),
        ("sizeof(SimplerPhaseRecorder)", 32),
        ("SIMPLER_SWIMLANE_FREE_PLACES", FREE_PLACES as u64),
        ("SIMPLER_PHASE_NAME_BYTES_MAX", NAME_BYTES_MAX as u64),
        ("SIMPLER_SWIMLANE_OFF", Level::Off as u64),
        ("SIMPLER_SWIMLANE_AICORE_TASKS", Level::AicoreTasks as u64),
        ("SIMPLER_SWIMLANE_AICPU_TASKS", Level::AicpuTasks as u64),
        ("SIMPLER_SWIMLANE_SCHED_PHASES", Level::SchedulerPhases as u64),
        ("SIMPLER_SWIMLANE_ORCH_PHASES", Level::OrchestratorPhases as u64),
        ("SIMPLER_RECORD_AICPU_TASK", RecordKind::AicpuTask as u64),
        ("SIMPLER_RECORD_AICORE_TASK", RecordKind::AicoreTask as u64),
        ("SIMPLER_RECORD_SCHED_PHASE", RecordKind::SchedPhase as u64),
        ("SIMPLER_RECORD_ORCH_PHASE", RecordKind::OrchPhase as u64),
        ("SIMPLER_RECORD_NAMED_SCOPE", RecordKind::NamedScope as u64),
    ] {
        facts.push(of(expression, value));
    }
    for kind in SchedKind::ALL {
        facts.push((format!("SIMPLER_SCHED_{}", kind.name().to_uppercase()), kind as u64));
    }
    facts
}

fn unit(facts: &[(String, u64)]) -> String {
    let mut text = String::from(
        "#include <simpler/swimlane.h>\n#include <simpler/swimlane.h>\n\
         #ifdef __cplusplus\n#define simpler_alignof alignof\n#define simpler_assert static_assert\n\
         #else\n#define simpler_alignof _Alignof\n#define simpler_assert _Static_assert\n#endif\n",
    );
    for (expression, value) in facts {
        writeln!(text, "simpler_assert((uint64_t)({expression}) == {value}u, \"{expression}\");").unwrap();
    }
    text
}

#[test]
fn the_header_has_the_layout_and_the_values_of_the_rust_types() {
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        let compiled = compile(folder.path(), compiler, &unit(&facts()), &["-c"], "layout.o");
        assert_eq!(compiled.err(), None, "{compiler:?}");
    }
}

#[test]
fn a_wrong_number_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    for index in 0..facts().len() {
        let mut wrong = facts();
        wrong[index].1 ^= 1;
        // Each compiler reads the same header: one is enough, two languages take turns.
        let compiler = compilers()[index % 2];
        let compiled = compile(folder.path(), compiler, &unit(&wrong), &["-c", "-fsyntax-only"], "layout.o");
        assert!(compiled.is_err_and(|words| words.contains(&wrong[index].0)), "{}", wrong[index].0);
    }
}

#[test]
fn the_text_is_that_of_the_folder() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/simpler/swimlane.h");
    assert_eq!(std::fs::read_to_string(path).unwrap(), SWIMLANE_HEADER);
}

/// Names of every length that is allowed, and of every byte that a literal takes without an escape.
fn sample_names() -> Vec<String> {
    let mut names: Vec<String> =
        ["a", "foobar", "bind_tensors", "Größe", "{}[]<>|~^!"].map(str::to_owned).into();
    names.extend((1..=NAME_BYTES_MAX).map(|bytes| "name_0123456789".chars().cycle().take(bytes).collect()));
    names
}

/// A line of C for each name, with the name, its length and its hash put in.
fn for_each_name(line: &str) -> String {
    let filled = |name: String| {
        let hash = format!("UINT64_C({:#018x})", fnv1a(&name));
        line.replace("NAME", &name).replace("BYTES", &name.len().to_string()).replace("HASH", &hash)
    };
    sample_names().into_iter().map(filled).collect()
}

#[test]
fn the_hash_is_that_of_rust_with_and_without_optimisation() {
    let source = format!(
        "#include <simpler/swimlane.h>\n#include <inttypes.h>\n#include <stdio.h>\n\
         int main(void) {{\nprintf(\"%016\" PRIx64 \"\\n\", simpler_fnv1a(\"\", 0));\n{}return 0;\n}}",
        for_each_name("printf(\"%016\" PRIx64 \"\\n\", simpler_fnv1a(\"NAME\", sizeof(\"NAME\") - 1));\n")
    );
    let mut expected = String::from("cbf29ce484222325\n");
    for name in sample_names() {
        writeln!(expected, "{:016x}", fnv1a(&name)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        for optimisation in ["-O0", "-O2"] {
            let program = compile(folder.path(), compiler, &source, &[optimisation], "hash").unwrap();
            assert_eq!(run(&program), expected, "{compiler:?} {optimisation}");
        }
    }
}

#[test]
fn the_hash_of_a_literal_is_a_constant_in_an_optimised_object() {
    // In C++ the language demands it of a constexpr; in C the linker misses a function unless the comparison was
    // folded away.
    let in_c = format!(
        "#include <simpler/swimlane.h>\nvoid not_folded(void);\nint main(void) {{\n{}return 0;\n}}",
        for_each_name("if (simpler_fnv1a(\"NAME\", BYTES) != HASH) not_folded();\n")
    );
    let in_cpp = format!(
        "#include <simpler/swimlane.h>\nint main() {{\n{}return 0;\n}}",
        for_each_name("static_assert(simpler_fnv1a(\"NAME\", BYTES) == HASH, \"\");\n")
    );
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        let is_cpp = compiler.language == "c++";
        let source = if is_cpp { &in_cpp } else { &in_c };
        let linked = compile(folder.path(), compiler, source, &["-O2"], "folded");
        assert_eq!(linked.err(), None, "{compiler:?}");
        if !is_cpp && compiler.program == "gcc" {
            let unoptimised = compile(folder.path(), compiler, source, &["-O0"], "folded");
            assert!(unoptimised.is_err_and(|words| words.contains("not_folded")), "the test can fail");
        }
    }
}

/// An orchestration of nested scopes that leaves them by falling off, by `return` and by `break`.
const SCOPES: &str = r#"
    #include <simpler/swimlane.h>
    #include <inttypes.h>
    #include <stdio.h>
    static uint64_t now;
    static uint64_t counter(void *context) { (void)context; return ++now; }
    static void record(void *context, uint64_t hash, uint64_t start, uint64_t end, uint32_t depth) {
        printf("%s %016" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu32 "\n", (const char *)context, hash, start,
               end, depth);
    }
    static int work(SimplerPhaseRecorder *recorder, int early) {
        SIMPLER_PHASE_SCOPE(recorder, "outer");
        SIMPLER_PHASE_SCOPE(recorder, "second of the block");
        for (int turn = 0; turn < 2; turn++) {
            SIMPLER_PHASE_SCOPE(recorder, "inner");
            if (early) break;
        }
        if (early) return 1;
        { SIMPLER_PHASE_SCOPE(recorder, "last"); }
        return 0;
    }
    int main(int argc, char **argv) {
        (void)argv;
        char context[] = "ctx";
        SimplerPhaseRecorder recorder = {context, counter, record, 0};
        work(&recorder, argc - 1);
        work(&recorder, argc);
        uint64_t before = now;
        work(NULL, 0);
        printf("%d %" PRIu32 "\n", now == before, recorder.depth);
        return 0;
    }
"#;

#[test]
fn scopes_of_c_nest_and_end_on_every_path_and_their_names_are_in_the_object() {
    let mut expected = String::new();
    let mut line = |name: &str, start: u32, end: u32, depth: u32| {
        writeln!(expected, "ctx {:016x} {start} {end} {depth}", fnv1a(name)).unwrap();
    };
    line("inner", 3, 4, 2);
    line("inner", 5, 6, 2);
    line("last", 7, 8, 2);
    line("second of the block", 2, 9, 1);
    line("outer", 1, 10, 0);
    line("inner", 13, 14, 2);
    line("second of the block", 12, 15, 1);
    line("outer", 11, 16, 0);
    expected.push_str("1 0\n");
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        for optimisation in ["-O0", "-O2"] {
            let program = compile(folder.path(), compiler, SCOPES, &[optimisation], "scopes").unwrap();
            assert_eq!(run(&program), expected, "{compiler:?} {optimisation}");
            let names = PhaseNames::from_elf(&std::fs::read(program).unwrap()).unwrap();
            let mut found: Vec<_> = names.iter().map(|(_, name)| name).collect();
            found.sort_unstable();
            assert_eq!(found, ["inner", "last", "outer", "second of the block"], "{compiler:?}");
            // As the runtime gets it: a shared object, and before linking.
            for flags in [["-shared", "-fPIC"], ["-c", "-fPIC"]] {
                let object = compile(
                    folder.path(),
                    compiler,
                    SCOPES,
                    &[&flags[..], &[optimisation]].concat(),
                    "object",
                );
                assert_eq!(PhaseNames::from_elf(&std::fs::read(object.unwrap()).unwrap()), Ok(names.clone()));
            }
        }
    }
}

#[test]
fn a_name_that_is_too_long_or_empty_does_not_compile() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, fits) in [(0, false), (1, true), (NAME_BYTES_MAX, true), (NAME_BYTES_MAX + 1, false)] {
        let name = "n".repeat(bytes);
        let source = format!(
            "#include <simpler/swimlane.h>\nvoid f(SimplerPhaseRecorder *r);\n\
             void f(SimplerPhaseRecorder *r) {{ SIMPLER_PHASE_SCOPE(r, \"{name}\"); }}"
        );
        for compiler in compilers() {
            let compiled = compile(folder.path(), compiler, &source, &["-c"], "name.o");
            match fits {
                true => assert_eq!(compiled.err(), None, "{bytes} bytes {compiler:?}"),
                false => assert!(compiled.is_err_and(|words| words.contains("1 to 64 bytes"))),
            }
        }
    }
}
