//! The command `simpler demo`: its arguments, its folder, its refusals.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use simpler_tests_e2e::{Demo, last_json, output, root, simpler};

fn refused(arguments: &[&str]) -> String {
    let output = output(simpler().arg("demo").args(arguments)).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!sentence.trim().is_empty() && !sentence.contains("panicked"), "{sentence}");
    sentence
}

#[test]
fn the_same_model_and_prompt_give_the_same_text_on_every_chip_and_run() {
    let arguments = ["--model", "tiny", "--tokens", "12", "--prompt", "one prompt for all"];
    let (first, second) = (Demo::run(&arguments).unwrap(), Demo::run(&arguments).unwrap());
    assert_eq!(first.json["text"], second.json["text"]);
    assert_eq!(first.json["token_ids"], second.json["token_ids"]);
    assert_eq!(first.json["token_ids"].as_array().unwrap().len(), 12);
    let text_of = |chip: &str| {
        let line = first.stdout.lines().find_map(|line| line.strip_prefix(chip));
        line.unwrap_or_else(|| panic!("no line for {chip}")).to_owned()
    };
    assert_eq!(text_of("chip 0: "), first.json["text"].as_str().unwrap());
    assert_eq!(text_of("chip 0: "), text_of("chip 1: "));
}

#[test]
fn another_prompt_gives_another_text() {
    let text = |prompt: &str| {
        let demo =
            Demo::run(&["--model", "tiny", "--chips", "1", "--tokens", "16", "--prompt", prompt]).unwrap();
        demo.json["token_ids"].clone()
    };
    assert_ne!(text("a first prompt"), text("quite another one"));
}

#[test]
fn a_folder_of_an_earlier_demo_is_replaced_and_any_other_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = || {
        let mut command = simpler();
        command.args(["demo", "--tokens", "2", "--chips", "1", "--json", "--out"]).arg(&out);
        output(&mut command).unwrap()
    };
    assert!(run().status.success());
    let stale = out.join("log/host.1.log");
    fs::write(&stale, "from an earlier run\n").unwrap();
    assert!(run().status.success());
    assert!(!stale.exists(), "the second demo's log holds nothing of the first's");

    let precious = folder.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("thesis.txt"), "years of work").unwrap();
    let sentence = refused(&["--tokens", "2", "--out", precious.to_str().unwrap()]);
    assert!(sentence.contains("precious"), "{sentence}");
    assert!(precious.join("thesis.txt").exists());
}

#[test]
fn bad_arguments_get_a_sentence_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    refused(&["--tokens", "0", "--out", out]);
    refused(&["--chips", "0", "--out", out]);
    refused(&["--chips", "1000", "--out", out]);
    refused(&["--tokens", "100000000", "--out", out]);
    refused(&["--model", "/nonexistent.gguf", "--out", out]);
    refused(&["--prompt", "", "--out", out]);
    let junk = folder.path().join("junk.gguf");
    fs::write(&junk, b"GGUF\x03\0\0\0 and then nothing that makes sense").unwrap();
    refused(&["--model", junk.to_str().unwrap(), "--out", out]);
    assert!(!Path::new(out).exists(), "nothing was written");
}

#[test]
fn the_trace_is_a_chrome_trace_with_a_process_per_pid() {
    let demo = Demo::run(&["--model", "tiny", "--tokens", "3"]).unwrap();
    let text = fs::read_to_string(demo.folder.path().join("demo/trace.json")).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let complete: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(complete.len() as u64, demo.json["spans"].as_u64().unwrap());
    let roots = complete.iter().filter(|event| event["name"] == "simpler_run").count();
    assert_eq!(roots, 6, "a prefill and two decodes on each of two chips");
    let pids: std::collections::BTreeSet<u64> =
        complete.iter().filter_map(|event| event["pid"].as_u64()).collect();
    assert!(pids.len() >= 3, "{pids:?}");
}

#[test]
fn timing_prints_the_demos_table_from_the_log_alone() {
    let demo = Demo::run(&["--model", "tiny", "--tokens", "4"]).unwrap();
    let timing = output(simpler().arg("timing").arg(demo.log())).unwrap();
    assert!(timing.status.success());
    let table = String::from_utf8_lossy(&timing.stdout).into_owned();
    assert!(table.contains("simpler_run: mean="), "{table}");
    assert!(demo.stdout.contains(table.trim_end()), "the demo prints what `simpler timing` prints");
    let check = output(simpler().args(["check", "--strict", "--json"]).arg(demo.log())).unwrap();
    assert!(check.status.success(), "a demo's log passes the strict check");
    let facts = last_json(&check.stdout).unwrap();
    assert_eq!(facts["missing_root"], 0);
    assert_eq!(facts["orphans"], 0);
    assert_eq!(facts["invocations"], 8);
}

/// Nothing in the chain can be a constant: a kernel's source decides the text and its callable's `hid`.
#[test]
fn a_changed_kernel_changes_the_text_and_the_hid_of_the_callables_that_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let kernels = folder.path().join("kernels");
    fs::create_dir(&kernels).unwrap();
    for entry in fs::read_dir(root().join("kernels")).unwrap() {
        let path = entry.unwrap().path();
        // A folder beside them is not the decoder's.
        if path.is_file() {
            fs::copy(&path, kernels.join(path.file_name().unwrap())).unwrap();
        }
    }
    let arguments = ["--model", "tiny", "--chips", "1", "--tokens", "24", "--prompt", "the same prompt"];
    let folder_argument = kernels.to_str().unwrap();
    let run = || Demo::run(&[&arguments[..], &["--kernels", folder_argument]].concat()).unwrap().json;
    let hids = |json: &serde_json::Value| {
        let callables = json["callables"].as_array().unwrap().clone();
        callables.iter().map(|one| one["hid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let plain = Demo::run(&arguments).unwrap().json;
    let copied = run();
    assert_eq!(plain["text"], copied["text"], "the same sources elsewhere give the same text");
    assert_eq!(hids(&plain), hids(&copied), "and the same identity: no path is part of it");

    let source = kernels.join("rmsnorm.c");
    let text = fs::read_to_string(&source).unwrap();
    let changed = text.replacen("sqrtf(", "2.0f * sqrtf(", 1);
    assert_ne!(text, changed, "the kernel has the line that this test changes");
    fs::write(&source, changed).unwrap();
    let after = run();
    assert_ne!(after["text"], plain["text"]);
    let changed = hids(&after);
    assert_eq!(changed.len(), 2);
    assert!(
        changed.iter().zip(hids(&plain)).all(|(after, before)| *after != before),
        "both callables use the kernel"
    );
}
