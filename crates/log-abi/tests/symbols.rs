//! What a plugin that is made of the headers alone shows to others, and what spans that are compiled out leave.

mod support;

use support::{PLUGIN, compile, compilers, exports, nm};

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
