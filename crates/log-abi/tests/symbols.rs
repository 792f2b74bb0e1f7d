//! What a plugin that is made of the headers alone shows to others, and what spans that are compiled out leave.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::process::Command;

use support::{Compiler, PLUGIN, compile, compilers, exports, nm};

/// A plugin of two files, with everything the headers offer.
fn plugin(is_cpp: bool) -> [(&'static str, String); 2] {
    let entry = if is_cpp { "extern \"C\" " } else { "" };
    let first = format!(
        r#"
        #include <simpler/strace.h>
        {entry}int plugin_second(int n);
        {entry}__attribute__((visibility("default"))) int plugin_entry(int n);
        int plugin_entry(int n) {{
            SIMPLER_INVOCATION("plugin_root", 7);
            SIMPLER_SPAN_ATTRS("plugin_attributed", "plugin_key=%d", n);
            SIMPLER_SPAN(SIMPLER_EXT("plugin", "scoped")); SIMPLER_SPAN("plugin_same_line");
            SIMPLER_SPAN_BEGIN(open, "plugin_by_hand");
            SIMPLER_SPAN_BEGIN_ATTRS(described, "plugin_by_hand_too", "plugin_key=%s", "v");
            SIMPLER_INVOCATION_BEGIN(inner, "plugin_inner", 8);
            SIMPLER_INVOCATION_END(inner);
            SIMPLER_SPAN_END_ATTRS(described);
            SIMPLER_SPAN_END(open);
            if (unified_log_host_span_enabled()) {{
                SimplerHostSpan span = {{0, 0, 0, 0, 0, 0, "plugin_raw", NULL}};
                unified_log_host_span(&span);
            }}
            LOG_ERROR("plain");
            LOG_INFO("n=%d", n);
            return plugin_second(n);
        }}
        "#
    );
    let second = format!(
        r#"
        #include <simpler/unified_log.h>
        {entry}int plugin_second(int n);
        int plugin_second(int n) {{
            unified_log_debug(__func__, "n=%d", n);
            return n;
        }}
        "#
    );
    [("first.x", first), ("second.x", second)]
}

#[test]
fn a_plugin_of_two_files_needs_nothing_and_exports_its_entry_and_the_binder() {
    let folder = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        let [first, second] = plugin(compiler.is_cpp());
        let sources = [(first.0, &*first.1), (second.0, &*second.1)];
        for level in ["-O0", "-O2", "-Os"] {
            let flags = [&PLUGIN[..], &[level]].concat();
            let object = compile(folder.path(), compiler, &sources, &flags, "plugin.so").unwrap();
            assert_eq!(
                exports(&object),
                ["plugin_entry", "simpler_host_log_bind_state"],
                "{compiler:?} {level}"
            );
        }
    }
}

#[test]
fn files_of_c_and_of_cpp_share_one_logger() {
    let folder = tempfile::tempdir().unwrap();
    let all = compilers();
    let [(_, first), _] = plugin(true);
    let [_, (_, second)] = plugin(false);
    compile(
        folder.path(),
        all[1],
        &[("first.x", &first)],
        &["-c", "-fPIC", "-fvisibility=hidden"],
        "first.o",
    )
    .unwrap();
    compile(
        folder.path(),
        all[0],
        &[("second.x", &second)],
        &["-c", "-fPIC", "-fvisibility=hidden"],
        "second.o",
    )
    .unwrap();
    let linked = std::process::Command::new("g++")
        .current_dir(folder.path())
        .args(PLUGIN)
        .args(["first.o", "second.o", "-o", "plugin.so"])
        .output()
        .unwrap();
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    let symbols = nm(&[], &folder.path().join("plugin.so"));
    let modules = symbols.iter().filter(|line| line.ends_with(" simpler_log_module")).count();
    assert_eq!(modules, 1, "{symbols:#?}");
}

/// A module of C++ with both scopes, and what shows whether they were emitted.
const SCOPES: &str = r#"
    #include <simpler/strace.h>
    template <class Scope> void within(const char *name) { Scope scope(name); }
    extern "C" __attribute__((visibility("default"))) int scopes_entry(SimplerHostLogState *state);
    extern "C" int scopes_entry(SimplerHostLogState *state) {
        if (simpler_host_log_adopt(state) != SIMPLER_BIND_OK) {
            return 1;
        }
        simpler::InvocationScope root("scopes_root", 7);
        simpler::SpanScope span("scopes_span");
        SIMPLER_SPAN("scopes_macro");
        within<simpler::SpanScope>("scopes_template");
        LOG_WARN("scopes_text");
        return 0;
    }
"#;

fn cpp() -> impl Iterator<Item = Compiler> {
    compilers().into_iter().filter(Compiler::is_cpp)
}

#[test]
fn the_scopes_of_cpp_are_hidden_without_any_flag() {
    let folder = tempfile::tempdir().unwrap();
    for compiler in cpp() {
        for off in ["1", "0"] {
            let define = format!("-DSIMPLER_HOST_STRACE={off}");
            let flags = ["-shared", "-fPIC", "-O0", "-Wl,-z,defs", &define];
            let object =
                compile(folder.path(), compiler, &[("scopes.x", SCOPES)], &flags, "scopes.so").unwrap();
            let exported = exports(&object);
            assert_eq!(exported, ["scopes_entry", "simpler_host_log_bind_state"], "{compiler:?} {off}");
        }
    }
}

#[test]
fn files_with_spans_and_files_without_link_into_one_module() {
    const MAIN: &str = r#"
        #include <simpler/strace.h>
        template <class Scope> void within(const char *name) { Scope scope(name); }
        extern "C" void without(void);
        extern "C" void with(void);
        extern "C" void with(void) {
            simpler::InvocationScope root("with_root", 7);
            simpler::SpanScope span("with_span");
            SIMPLER_SPAN("with_macro");
            within<simpler::SpanScope>("with_template");
            SimplerSpanScope by_hand;
            simpler_span_begin(&by_hand, "with_hand");
            simpler_span_end(&by_hand);
        }
        int main() {
            static SimplerHostLogState state;
            state.threshold = SIMPLER_LOG_TIMING;
            simpler_host_log_bind_state(&state);
            with();
            without();
            return 0;
        }
    "#;
    let without = MAIN[..MAIN.find("int main").unwrap()]
        .replace("extern \"C\" void without(void);", "")
        .replace("with_", "without_")
        .replace("with(", "without(");
    let folder = tempfile::tempdir().unwrap();
    for compiler in cpp() {
        for level in ["-O0", "-O2"] {
            for (name, text, define, object) in [
                ("main.x", MAIN, "-DSIMPLER_HOST_STRACE=1", "main.o"),
                ("without.x", &*without, "-DSIMPLER_HOST_STRACE=0", "without.o"),
            ] {
                compile(folder.path(), compiler, &[(name, text)], &["-c", level, define], object).unwrap();
            }
            // Either order: a weak symbol is the first one's.
            for order in [["main.o", "without.o"], ["without.o", "main.o"]] {
                let program = folder.path().join("mixed");
                let linked = Command::new(compiler.program)
                    .current_dir(folder.path())
                    .args(order)
                    .args(["-o", "mixed"])
                    .output()
                    .unwrap();
                assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
                let ran = Command::new(program).output().unwrap();
                let said = String::from_utf8_lossy(&ran.stderr);
                let names: Vec<&str> =
                    said.lines().filter_map(|line| line.split_once(" name=")?.1.split(' ').next()).collect();
                let expected = ["with_template", "with_hand", "with_macro", "with_span", "with_root"];
                assert_eq!(names, expected, "{compiler:?} {level} {order:?}: {said}");
            }
        }
    }
}

#[test]
fn a_plugin_keeps_to_its_own_symbols_whatever_was_loaded_before() {
    const LOADER: &str = r#"
        #include <dlfcn.h>
        #include <simpler/host_log_state.h>
        #include <stdio.h>
        #include <string.h>
        int main(int count, char **arguments) {
            static SimplerHostLogState state;
            int (*entry)(SimplerHostLogState *) = NULL;
            void *before, *plugin, *symbol;
            state.threshold = 25;
            before = count == 3 ? dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
            plugin = before == NULL ? NULL : dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
            symbol = plugin == NULL ? NULL : dlsym(plugin, "scopes_entry");
            if (symbol == NULL) {
                printf("%s", dlerror());
                return 2;
            }
            memcpy(&entry, &symbol, sizeof entry);
            return entry(&state);
        }
    "#;
    let folder = tempfile::tempdir().unwrap();
    let c = compilers()[0];
    let loader = compile(folder.path(), c, &[("loader.x", LOADER)], &["-ldl"], "loader").unwrap();
    for compiler in cpp() {
        let flags = ["-shared", "-fPIC", "-O0", "-Wl,-z,defs"];
        let plugin = compile(folder.path(), compiler, &[("scopes.x", SCOPES)], &flags, "scopes.so").unwrap();
        compile(folder.path(), compiler, &[("scopes.x", SCOPES)], &["-c", "-O0"], "scopes.o").unwrap();
        // Everything that the plugin defines weakly, under the same names and open to all, ends the program.
        let mut others = String::from("extern void abort(void);\n");
        let symbols = nm(&["--defined-only"], &folder.path().join("scopes.o"));
        let weak = symbols.iter().filter_map(|line| {
            let (kind, name) = line[16..].trim_start().split_once(' ')?;
            (["W", "V"].contains(&kind) && !name.starts_with("DW.ref")).then_some(name)
        });
        for (number, name) in weak.enumerate() {
            let function = format!("void other{number}(void)");
            others += &format!("{function} __asm__(\"{name}\");\n{function} {{ abort(); }}\n");
        }
        assert!(others.contains("SpanScope") && others.contains("simpler_log_module"), "{others}");
        let other =
            compile(folder.path(), c, &[("other.x", &others)], &["-shared", "-fPIC"], "other.so").unwrap();
        let ran = Command::new(&loader).args([&other, &plugin]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{compiler:?} {}: {said}", ran.status);
        assert_eq!(said.matches("[STRACE]").count(), 4, "{said}");
    }
}

#[test]
fn nothing_may_jump_over_the_beginning_of_a_span() {
    let folder = tempfile::tempdir().unwrap();
    for begins in
        ["SIMPLER_SPAN(\"x\")", "SIMPLER_SPAN_ATTRS(\"x\", \"n=%d\", n)", "SIMPLER_INVOCATION(\"x\", 1)"]
    {
        let goto = format!("if (n) {{ goto out; }} {begins}; n = 2; out: return n;");
        let case =
            format!("switch (n) {{ case 1: n = 2; {begins}; n = 3; break; case 2: n = 4; }} return n;");
        for jump in [goto, case] {
            let text =
                format!("#include <simpler/strace.h>\nint jump(int n);\nint jump(int n) {{ {jump} }}\n");
            for compiler in compilers() {
                // gcc says so on demand alone, and cannot be asked by a header.
                let flags = if compiler.program == "gcc" { "-Wjump-misses-init" } else { "-O0" };
                let words = compile(folder.path(), compiler, &[("jump.x", &text)], &["-c", flags], "jump.o");
                let is_refused = words.as_ref().is_err_and(|words| words.contains("jump"));
                assert!(is_refused, "{compiler:?} {jump}: {words:?}");
            }
        }
    }
}

/// Whether `bytes` holds `text`.
fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn spans_that_are_compiled_out_leave_no_symbol_and_no_string() {
    let folder = tempfile::tempdir().unwrap();
    // The names of its own functions would be found among the strings.
    let names =
        ["plugin_root", "plugin_attributed", "plugin_key", "ext.plugin", "plugin_by_hand", "plugin_inner"];
    let marks = ["[STRACE]", "emit_host_span", "simpler_span", "simpler_invocation", "host_span", "strace"];
    for compiler in compilers() {
        let [first, _] = plugin(compiler.is_cpp());
        // Spans by hand are the caller's own strings, behind a question that is never answered with yes.
        let text = first.1.replace("unified_log_host_span(&span);", "(void)span;");
        for level in ["-O0", "-O2"] {
            for off in ["1", "0"] {
                let define = format!("-DSIMPLER_HOST_STRACE={off}");
                let flags = ["-c", "-fPIC", level, &define];
                let object = compile(folder.path(), compiler, &[(first.0, &text)], &flags, "off.o").unwrap();
                let bytes = std::fs::read(&object).unwrap();
                let found: Vec<&str> =
                    names.iter().chain(&marks).copied().filter(|text| holds(&bytes, text)).collect();
                match off {
                    "0" => assert!(found.is_empty(), "{compiler:?} {level}: {found:?}"),
                    // The other build has them, so this test would see them.
                    _ => assert!(found.len() >= names.len(), "{compiler:?} {level}: {found:?}"),
                }
            }
        }
    }
}
