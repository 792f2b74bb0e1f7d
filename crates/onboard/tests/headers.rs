//! The C side: layouts as in Rust, one source for sim and silicon, and what each build shows to others.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::path::Path;
use std::process::Command;

use simpler_onboard::{DEVICE_LOG_SOURCE, HEADERS, InitArgs, KernelArgs};
use support::{compile, file};

const WARNINGS: [&str; 6] = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-Wshadow", "-Wconversion"];

/// Program, language, standard.
const COMPILERS: [[&str; 3]; 5] = [
    ["gcc", "c", "-std=c11"],
    ["g++", "c++", "-std=c++11"],
    ["g++", "c++", "-std=c++17"],
    ["clang", "c", "-std=c11"],
    ["clang++", "c++", "-std=c++17"],
];

fn compilers() -> impl Iterator<Item = [&'static str; 3]> {
    COMPILERS.into_iter().filter(|[program, ..]| {
        let is_here = Command::new(program).arg("--version").output().is_ok();
        if !is_here {
            eprintln!("skipped: no {program} on this machine");
        }
        is_here || program.starts_with('g')
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Sim,
    Silicon,
}

/// Compiles a source for a target; the compiler's words when it refuses.
fn build(
    folder: &Path,
    [program, language, standard]: [&str; 3],
    target: Target,
    text: &str,
    flags: &[&str],
) -> Result<String, String> {
    let (source, object) = (folder.join("source.x"), folder.join("object"));
    std::fs::write(&source, format!("{text}\n")).unwrap();
    let include = |path: &str| format!("-I{}", file(path).display());
    let (silicon, own, host) =
        (include("include/silicon"), include("include"), include("../log-abi/include"));
    let search: &[&str] = match target {
        Target::Sim => &[&own, &host],
        Target::Silicon => &["-DSIMPLER_ONBOARD", &silicon, &own, &host],
    };
    let end = ["-x", language, source.to_str().unwrap(), "-o", object.to_str().unwrap()];
    compile(program, &[&[standard], &WARNINGS[..], search, flags, &end].concat())?;
    Ok(object.to_str().unwrap().to_owned())
}

/// `nm`'s kind and name of each symbol.
fn symbols(object: &str, arguments: &[&str]) -> Vec<(char, String)> {
    let output = Command::new("nm").args(arguments).arg(object).output().unwrap();
    assert!(output.status.success(), "nm: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| {
            let mut words = line.split_whitespace().rev();
            let name = words.next().unwrap().to_owned();
            (words.next().unwrap().chars().next().unwrap(), name)
        })
        .collect()
}

fn facts() -> Vec<(String, usize)> {
    let mut facts = Vec::new();
    macro_rules! layout {
        ($c:literal, $type:ident { $($field:ident),* }) => {
            facts.push((format!("sizeof({})", $c), size_of::<$type>()));
            facts.push((format!("simpler_alignof({})", $c), align_of::<$type>()));
            $(facts.push((format!("offsetof({}, {})", $c, stringify!($field)), offset_of!($type, $field)));)*
        };
    }
    layout!("SimplerAicpuInitArgs", InitArgs { log_level, device_id });
    layout!("SimplerAicpuKernelArgs", KernelArgs { device_wall_data_base, aicpu_launched, aicpu_logical });
    facts
}

fn unit(facts: &[(String, usize)]) -> String {
    let mut text = String::from(
        "#include <simpler/aicpu_args.h>\n#include <stddef.h>\n\
         #ifdef __cplusplus\n#define simpler_alignof alignof\n#define simpler_assert static_assert\n\
         #else\n#define simpler_alignof _Alignof\n#define simpler_assert _Static_assert\n#endif\n",
    );
    for (expression, value) in facts {
        writeln!(text, "simpler_assert({expression} == {value}, \"{expression}\");").unwrap();
    }
    text
}

#[test]
fn arguments_have_one_layout_in_both_languages() {
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        build(folder.path(), compiler, Target::Silicon, &unit(&facts()), &["-c"]).unwrap();
    }
    for index in 0..facts().len() {
        let mut wrong = facts();
        wrong[index].1 ^= 1;
        let refused = build(folder.path(), COMPILERS[index % 2], Target::Silicon, &unit(&wrong), &["-c"]);
        assert!(refused.is_err_and(|words| words.contains(&wrong[index].0)), "{}", wrong[index].0);
    }
}

/// A source that logs in every way that there is on both targets.
const ORCHESTRATION: &str = r#"
    #include <simpler/unified_log.h>
    #include <simpler/unified_log.h>
    #ifdef __cplusplus
    extern "C" {
    #endif
    __attribute__((visibility("default"))) int orchestrate(int n);
    int orchestrate(int n) {
        LOG_INFO("plain");
        LOG_ERROR("%d of %s", n, "them");
        LOG_WARN("%d %%", n);
        LOG_TIMING("took %d", n);
        LOG_DEBUG("%s", __func__);
        SIMPLER_LOG_AT(n, "at %d", n);
        unified_log_error(__func__, "n=%d", n);
        unified_log_warn(__func__, "n=%d", n);
        unified_log_timing(__func__, "n=%d", n);
        unified_log_info(__func__, "n=%d", n);
        unified_log_debug(__func__, "n=%d", n);
        unified_log_at(25, __func__, NULL, 0, "n=%d", n);
        return unified_log_enabled(SIMPLER_LOG_INFO) + unified_log_host_span_enabled();
    }
    #ifdef __cplusplus
    }
    #endif
"#;

#[test]
fn one_source_is_a_consumer_on_sim_and_calls_the_devices_log_on_silicon() {
    let folder = tempfile::tempdir().unwrap();
    let boundary = ["debug", "error", "info", "timing", "warn"].map(|level| format!("dev_vlog_{level}"));
    for compiler in compilers() {
        for level in ["-O0", "-O2"] {
            let flags = ["-fPIC", "-fvisibility=hidden", level];
            let shared = [&flags[..], &["-shared"]].concat();
            let sim = build(folder.path(), compiler, Target::Sim, ORCHESTRATION, &shared).unwrap();
            let exported: Vec<String> =
                symbols(&sim, &["-D", "--defined-only"]).into_iter().map(|(_, name)| name).collect();
            assert_eq!(exported, ["orchestrate", "simpler_host_log_bind_state"], "{compiler:?} {level}");

            let object = [&flags[..], &["-c"]].concat();
            let silicon = build(folder.path(), compiler, Target::Silicon, ORCHESTRATION, &object).unwrap();
            let all = symbols(&silicon, &[]);
            for (kind, name) in &all {
                let is_hosts = name.contains("simpler_host_log") || name.contains("unified_log");
                assert!(!is_hosts, "{compiler:?} {level}: {kind} {name}");
            }
            let mut asked: Vec<&String> =
                all.iter().filter(|(kind, _)| *kind == 'U').map(|(_, name)| name).collect();
            asked.retain(|name| name.starts_with("dev_vlog_"));
            asked.sort();
            assert_eq!(asked, boundary.iter().collect::<Vec<_>>(), "{compiler:?} {level}");
            // Nothing but the entry is for others.
            let defined: Vec<&(char, String)> =
                all.iter().filter(|(kind, _)| kind.is_ascii_uppercase() && *kind != 'U').collect();
            assert_eq!(defined, [&('T', "orchestrate".to_owned())], "{compiler:?} {level}");
        }
    }
}

#[test]
fn spans_of_the_host_are_compiled_out_on_silicon() {
    const SOURCE: &str = r#"
        #include <simpler/strace.h>
        #ifdef __cplusplus
        extern "C" {
        #endif
        int traced(int n);
        int traced(int n) {
            SIMPLER_INVOCATION("root", 7);
            SIMPLER_SPAN("scoped");
            SIMPLER_SPAN_ATTRS("attributed", "key=%d", n);
            SIMPLER_SPAN_BEGIN(open, "by_hand");
            SIMPLER_SPAN_END(open);
            if (unified_log_host_span_enabled()) {
                SimplerHostSpan span = {0, 0, 0, 0, 0, 0, "raw", NULL};
                unified_log_host_span(&span);
            }
            LOG_INFO("n=%d", n);
            return n;
        }
        #ifdef __cplusplus
        }
        #endif
    "#;
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        build(folder.path(), compiler, Target::Sim, SOURCE, &["-c"]).unwrap();
        // Even if a build asks for them.
        let flags = ["-c", "-O0", "-DSIMPLER_HOST_STRACE=1"];
        let object = build(folder.path(), compiler, Target::Silicon, SOURCE, &flags).unwrap();
        for (kind, name) in symbols(&object, &[]) {
            let is_hosts = ["span", "strace", "simpler_host_log", "unified_log"];
            assert!(!is_hosts.iter().any(|part| name.contains(part)), "{compiler:?}: {kind} {name}");
        }
    }
}

#[test]
fn device_code_may_call_the_boundary_itself_on_both() {
    const SOURCE: &str = r#"
        #include <simpler/device_log.h>
        #ifdef __cplusplus
        extern "C" {
        #endif
        __attribute__((visibility("default"))) void forward(const char *fmt, ...);
        __attribute__((__format__(__printf__, 1, 2))) void forward(const char *fmt, ...) {
            va_list arguments;
            va_start(arguments, fmt);
            dev_vlog_warn(__func__, fmt, arguments);
            va_end(arguments);
        }
        #ifdef __cplusplus
        }
        #endif
    "#;
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        let shared = ["-shared", "-fPIC", "-Wl,-z,defs"];
        let sim = build(folder.path(), compiler, Target::Sim, SOURCE, &shared).unwrap();
        let mut exported = symbols(&sim, &["-D", "--defined-only"]);
        exported.retain(|(_, name)| name != "forward");
        assert_eq!(exported, [('W', "simpler_host_log_bind_state".to_owned())], "{compiler:?}");
        build(folder.path(), compiler, Target::Silicon, SOURCE, &["-c"]).unwrap();
    }
}

#[test]
fn a_wrong_search_order_is_an_error_and_not_a_host_logger_on_silicon() {
    let folder = tempfile::tempdir().unwrap();
    let host_first = format!("-I{}", file("../log-abi/include").display());
    let source = "#include <simpler/unified_log.h>\n#include <simpler/device_log.h>";
    for compiler in compilers() {
        let refused =
            build(folder.path(), compiler, Target::Sim, source, &["-DSIMPLER_ONBOARD", &host_first, "-c"]);
        assert!(refused.is_err_and(|words| words.contains("search")), "{compiler:?}");
        let silicon_first = format!("-I{}", file("include/silicon").display());
        let source = format!("#include \"{}\"", file("include/silicon/simpler/unified_log.h").display());
        let refused = build(folder.path(), compiler, Target::Sim, &source, &[&silicon_first, "-c"]);
        assert!(refused.is_err_and(|words| words.contains("say -DSIMPLER_ONBOARD")), "{compiler:?}");
    }
}

#[test]
fn after_the_devices_header_the_hosts_is_empty() {
    let source = "#include <simpler/device_log.h>\n#include <simpler/unified_log.h>\n\
                  void f(void);\nvoid f(void) { LOG_INFO(\"x\"); }";
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        // Found although the search is that of sim.
        let object =
            build(folder.path(), compiler, Target::Sim, source, &["-DSIMPLER_ONBOARD", "-c"]).unwrap();
        for (kind, name) in symbols(&object, &[]) {
            let is_hosts = name.contains("simpler_host_log") || name.contains("unified_log");
            assert!(!is_hosts, "{compiler:?}: {kind} {name}");
        }
    }
}

#[test]
fn the_devices_end_is_c_and_cpp_and_exports_the_boundary_and_the_init_kernel() {
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        let flags = ["-shared", "-fPIC", "-O2"];
        let object = build(folder.path(), compiler, Target::Silicon, DEVICE_LOG_SOURCE, &flags).unwrap();
        let mut names: Vec<String> =
            symbols(&object, &["-D", "--defined-only"]).into_iter().map(|(_, name)| name).collect();
        names.sort();
        assert_eq!(
            names,
            [
                "dev_vlog_debug",
                "dev_vlog_error",
                "dev_vlog_info",
                "dev_vlog_timing",
                "dev_vlog_warn",
                "simpler_aicpu_init"
            ],
            "{compiler:?}"
        );
        // CANN's are looked for and may be missing.
        let asked = symbols(&object, &["-D", "--undefined-only"]);
        for name in ["CheckLogLevel", "DlogRecord"] {
            assert!(asked.contains(&('w', name.to_owned())), "{compiler:?}: {asked:?}");
        }
    }
}

#[test]
fn the_texts_are_those_of_the_folder() {
    for (name, text) in HEADERS {
        assert_eq!(std::fs::read_to_string(file("include").join(name)).unwrap(), text);
    }
    let count = |folder: &str| std::fs::read_dir(file(folder)).unwrap().count();
    assert_eq!(count("include/simpler") + count("include/silicon/simpler"), HEADERS.len());
}
