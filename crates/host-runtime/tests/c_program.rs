//! A program of C that owns its log loads the runtime objects and runs a scene with them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::owner::{lines_of, spans, the_anchor};
use support::{PLATFORMS, build, built, host_runtime, image, includes, objects, roots, sim_context, tree};

/// The program, compiled without a warning and linked with the log's owner.
fn program(folder: &Path) -> PathBuf {
    let text = include_str!("c/scene.c");
    let includes = includes();
    let log = format!("-I{}/../host-log-c/include", env!("CARGO_MANIFEST_DIR"));
    let mut flags = vec!["-c", "-O1", "-D_DEFAULT_SOURCE", "-D_GNU_SOURCE", &*log];
    flags.extend(includes.iter().map(String::as_str));
    build::compile(folder, build::compilers()[0], &[("scene.x", text)], &flags, "scene.o")
        .unwrap_or_else(|words| panic!("{words}"));
    let linked = Command::new("gcc")
        .current_dir(folder)
        .args(["scene.o", "-o", "scene"])
        .arg(built("simpler-host-log-c", "libsimpler_host_log.a"))
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s"])
        .output()
        .unwrap();
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    folder.join("scene")
}

#[test]
fn a_program_of_c_runs_a_scene_and_its_log_tells_the_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let scene = simpler_scenes::vector_add(1_000, 3);
    let (objects, hid) = (objects(&scene), image(&scene).hid());
    for platform in PLATFORMS {
        let logs = folder.path().join(platform);
        let child = Command::new(&program)
            .arg(&logs)
            .args([sim_context(), host_runtime(platform)])
            .args([&objects.orchestration, &objects.kernels[0].0])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{platform} {}: {stderr}", output.status);

        let lines = lines_of(&logs, pid);
        the_anchor(&lines);
        let spans = spans(&lines);
        let roots = roots(&spans);
        assert_eq!(roots.len(), 3, "{platform}: one tree a run, and none for a refused one");
        for (index, root) in roots.iter().enumerate() {
            assert_eq!((root.hid, root.depth), (hid, 0));
            let attrs = format!("run_id=42 dispatch_id={} slot_id=0 ", index + 1);
            assert!(root.attrs.starts_with(&attrs), "{}", root.attrs);
            let tree = tree(&spans, root.inv);
            for (depth, name) in [
                (1, "simpler_run.bind"),
                (2, "simpler_run.bind.args"),
                (2, "simpler_run.bind.prebuilt"),
                (1, "simpler_run.runner_run"),
                (2, "simpler_run.runner_run.device_wall"),
                (3, "simpler_run.runner_run.device_wall.orch"),
                (3, "simpler_run.runner_run.device_wall.sched"),
                (1, "simpler_run.validate"),
                (0, "simpler_run"),
            ] {
                assert_eq!(tree.iter().filter(|span| **span == (depth, name)).count(), 1, "{name}: {tree:?}");
            }
            assert!(tree.iter().all(|(_, name)| name.starts_with("simpler_run")), "{tree:?}");
        }
        // The program's own invocations go on around them: no number is had twice.
        let own: Vec<_> = spans.iter().filter(|span| span.name == "the_program").collect();
        assert_eq!(own.len(), 3);
        let mut numbers: Vec<u64> = own.iter().chain(&roots).map(|root| root.inv).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 6);
        for own in own {
            assert_eq!(tree(&spans, own.inv), [(1, "ext.scene.round"), (0, "the_program")]);
        }
    }
}
