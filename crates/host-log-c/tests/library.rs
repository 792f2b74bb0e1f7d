//! The library as C sees it: what it exports, how it is laid out, and a program that owns its log with it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

extern crate host_log as simpler_host_log;

mod support;

use std::ffi::{c_char, c_int};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use simpler_log_abi::SimplerHostLogState;

use support::build::{self, Compiler};
use support::owner::{envelope, flushed_lines, in_own_process, lines_of, log_to_folder, spans, the_anchor};
use support::{build_plugin, source};

/// A file of the library, built as it is now. Cargo builds for a test only what Rust can link, and that this
/// library is not.
fn built(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--package", env!("CARGO_PKG_NAME"), "--target-dir"])
        .arg(target)
        // Flags of this test's own build, a sanitizer say, are none of the library's.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo build: {}", String::from_utf8_lossy(&output.stderr));
    target.join("debug").join(name)
}

fn include() -> String {
    format!("-I{}/include", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_shared_library_exports_what_is_listed_and_stays_mapped() {
    let listed = include_str!("../exports.txt");
    let library = built("libsimpler_host_log.so");
    let exported = build::exports(&library);
    assert_eq!(exported, listed.lines().collect::<Vec<_>>());
    let dynamic = Command::new("readelf").arg("-d").arg(&library).output().unwrap();
    let dynamic = String::from_utf8_lossy(&dynamic.stdout).into_owned();
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn the_header_declares_every_export_and_no_more() {
    let header = include_str!("../include/simpler/host_log.h");
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '*', '#', '}']) && line.contains('('))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .collect();
    declared.sort_unstable();
    // The binder is declared with the state, for all modules.
    let listed = include_str!("../exports.txt").lines().filter(|name| *name != "simpler_host_log_bind_state");
    assert_eq!(declared, listed.collect::<Vec<_>>());
}

/// Builds a program of `source`, with the library linked in or beside it.
fn program(folder: &Path, compiler: Compiler, name: &str, shared: bool) -> PathBuf {
    // g++ defines it by itself; strict C needs it for fork.
    let gnu = if compiler.is_cpp() { "-UNOTHING" } else { "-D_GNU_SOURCE" };
    let (include, text) = (include(), source(&format!("{name}.c")));
    let flags = ["-c", "-O0", &include, gnu];
    build::compile(folder, compiler, &[("program.x", &text)], &flags, "program.o")
        .unwrap_or_else(|words| panic!("{compiler:?}: {words}"));
    let library = built(if shared { "libsimpler_host_log.so" } else { "libsimpler_host_log.a" });
    let linked = Command::new(compiler.program)
        .current_dir(folder)
        .args(["program.o", "-o", name])
        .arg(&library)
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s"])
        .output()
        .unwrap();
    assert!(linked.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&linked.stderr));
    folder.join(name)
}

fn own_a_log(compiler: Compiler, shared: bool) {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), compiler, "standalone", shared);
    let logs = folder.path().join("logs");
    let run = Command::new(&program)
        .arg(&logs)
        .env("LD_LIBRARY_PATH", built("x").parent().unwrap())
        .spawn_and_collect();
    let (parent, output) = run;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{compiler:?} {}: {stderr}", output.status);
    let child: i32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();

    let lines = lines_of(&logs, parent);
    the_anchor(&lines);
    let texts: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| envelope(line))
        .filter(|(envelope, _)| envelope.func != b"emit_host_span" && envelope.func != b"clock_anchor")
        .map(|(envelope, text)| (std::str::from_utf8(envelope.func).unwrap(), text))
        .collect();
    let from_the_header = texts[0];
    assert!(from_the_header.1.ends_with("] from the header"), "{texts:?}");
    let expected = [from_the_header, ("?", "not \u{fffd} text"), ("f", ""), from_the_header];
    assert_eq!(texts[..4], expected);
    assert!(texts[4].1.ends_with("] last words"));
    let found = spans(&lines);
    let seen: Vec<_> =
        found.iter().map(|span| (span.name.as_str(), span.inv, span.hid, span.depth)).collect();
    assert_eq!(
        seen,
        [
            ("ext.standalone.inner", 1, 0xabc, 1),
            ("standalone", 1, 0xabc, 0),
            ("by.hand", 7, 8, i64::from(i32::MAX)),
            ("ext.standalone.inner", 2, 0xabc, 1),
            ("standalone", 2, 0xabc, 0),
        ]
    );
    assert_eq!((found[2].dur, found[2].attrs.as_str()), (2, "k=v"));
    let lines = lines_of(&logs, child);
    the_anchor(&lines);
    assert_eq!(lines.len(), 4, "{lines:#?}");
}

#[test]
fn the_library_may_be_a_consumer_of_another_owner() {
    in_own_process("the_library_may_be_a_consumer_of_another_owner", || {
        type Bind = unsafe extern "C" fn(*mut SimplerHostLogState) -> c_int;
        type Init = unsafe extern "C" fn(i32, *const c_char, c_int) -> c_int;
        type EmitText = unsafe extern "C" fn(i32, *const c_char, *const c_char, usize) -> c_int;
        let dir = log_to_folder();
        let state = std::ptr::from_ref(host_log::state()).cast_mut();
        // SAFETY: the library's constructors do nothing.
        let library =
            unsafe { Library::open(Some(built("libsimpler_host_log.so")), RTLD_NOW | RTLD_LOCAL) }.unwrap();
        // SAFETY: the headers give these names these types.
        let bind = *unsafe { library.get::<Bind>("simpler_host_log_bind_state") }.unwrap();
        // SAFETY: as above.
        let init = *unsafe { library.get::<Init>("simpler_host_log_init") }.unwrap();
        // SAFETY: as above.
        let emit = *unsafe { library.get::<EmitText>("simpler_host_log_emit_text") }.unwrap();
        // SAFETY: null is refused.
        assert_eq!(unsafe { bind(std::ptr::null_mut()) }, 1);
        // SAFETY: this process's state lives on.
        assert_eq!(unsafe { bind(state) }, 0);
        // SAFETY: no directory.
        assert_eq!(unsafe { init(25, std::ptr::null(), 0) }, 9, "not the owner");
        for stop in ["simpler_host_log_prepare_to_fork", "simpler_host_log_close"] {
            // SAFETY: as above.
            let stop = *unsafe { library.get::<extern "C" fn(u32) -> c_int>(stop) }.unwrap();
            assert_eq!(stop(1000), 9, "not the owner's writer");
        }
        // SAFETY: five readable bytes.
        assert_eq!(unsafe { emit(30, c"f".as_ptr(), c"hello".as_ptr(), 5) }, 0);
        let lines = flushed_lines(dir.path());
        the_anchor(&lines);
        assert_eq!((lines.len(), envelope(&lines[1]).1), (2, "hello"));
    });
}

/// Runs a command and gives its pid with what it printed.
trait SpawnAndCollect {
    fn spawn_and_collect(&mut self) -> (i32, std::process::Output);
}

impl SpawnAndCollect for Command {
    fn spawn_and_collect(&mut self) -> (i32, std::process::Output) {
        use std::process::Stdio;
        let child = self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        (child.id() as i32, child.wait_with_output().unwrap())
    }
}

#[test]
fn a_program_of_c_or_cpp_owns_its_log_with_the_archive() {
    for compiler in build::compilers() {
        own_a_log(compiler, false);
    }
}

#[test]
fn a_program_owns_its_log_with_the_shared_library() {
    own_a_log(build::compilers()[0], true);
}

#[test]
fn a_close_that_does_not_drain_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), build::compilers()[0], "stalled", false);
    let (_reader, mut writer) = std::io::pipe().unwrap();
    let descriptor = writer.as_raw_fd();
    // SAFETY: the pipe is ours.
    let bytes = unsafe { libc::fcntl(descriptor, libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![b'x'; bytes.try_into().unwrap()]).unwrap();
    let status = Command::new(program).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn a_program_binds_the_modules_that_it_loads() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = build_plugin(folder.path(), build::compilers()[0], &[]);
    let text = "int dependent(void);\nvoid plugin_log(int n);\n\
                __attribute__((visibility(\"default\"))) int dependent(void) { plugin_log(0); return 0; }\n";
    let linked = ["-L.", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", "-l:plugin.so"];
    let flags = [&build::PLUGIN[..], &linked].concat();
    let dependent = build::compile(
        folder.path(),
        build::compilers()[0],
        &[("dependent.x", text)],
        &flags,
        "dependent.so",
    )
    .unwrap();
    for compiler in build::compilers() {
        let logs = tempfile::tempdir().unwrap();
        let program = program(folder.path(), compiler, "loader", false);
        let (pid, output) =
            Command::new(program).args([logs.path(), &plugin, &dependent]).spawn_and_collect();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{compiler:?} {}: {stderr}", output.status);
        let lines = lines_of(logs.path(), pid);
        the_anchor(&lines);
        assert_eq!((lines.len(), envelope(&lines[1]).1), (2, "[plugin.c:6] n=3"), "{lines:#?}");
    }
}

#[test]
fn the_header_has_the_layout_and_the_results_of_the_library() {
    // What src/host_log.rs has, which no test can ask, since the library has no Rust interface.
    const UNIT: &str = "
        #include <simpler/host_log.h>
        #ifdef __cplusplus
        #define ASSERT static_assert
        #else
        #define ASSERT _Static_assert
        #endif
        ASSERT(sizeof(SimplerHostLogCounts) == 56, \"counts\");
        ASSERT(offsetof(SimplerHostLogCounts, by_reason) == 16, \"by_reason\");
        ASSERT(offsetof(SimplerHostLogCounts, reported) == 48, \"reported\");
        ASSERT(SIMPLER_HOST_LOG_NOT_THE_OWNER == 9, \"results\");
    ";
    let folder = tempfile::tempdir().unwrap();
    for compiler in build::compilers() {
        let include = include();
        build::compile(folder.path(), compiler, &[("layout.x", UNIT)], &["-c", &include], "layout.o")
            .unwrap();
    }
}
