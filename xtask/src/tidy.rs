//! The rules that no compiler checks, as tests: layers, comment tags, names, and what must not be committed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cargo;

/// Lines above an atomic access in which its `ORDERING:` comment may stand.
const TAG_REACH_LINES: usize = 14;

/// Checks every rule and prints each breach with its place.
pub(crate) fn tidy() -> Result<()> {
    let mut breaches = Vec::new();
    let metadata = metadata()?;
    layers(&metadata, &mut breaches);
    let files = tracked_files()?;
    for path in &files {
        let Ok(text) = fs::read_to_string(path) else { continue };
        names(path, &mut breaches);
        places(path, &text, &mut breaches);
        if path.extension().is_some_and(|extension| extension == "rs") {
            rust_file(path, &text, &mut breaches);
        }
    }
    dependencies_are_explained(&metadata, &mut breaches)?;
    claims_have_their_tests(&mut breaches)?;
    if breaches.is_empty() {
        println!("tidy: {} files, no breach", files.len());
        return Ok(());
    }
    for breach in &breaches {
        eprintln!("{breach}");
    }
    bail!("{} breaches of the rules in CONTRIBUTING.md", breaches.len())
}

/// Files that git tracks or would track.
fn tracked_files() -> Result<Vec<PathBuf>> {
    let output = std::process::Command::new("git")
        // Whose the checkout is does not matter for a list of its files.
        .args(["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .output()
        .context("cannot start git")?;
    if !output.status.success() {
        bail!("git ls-files: {}", output.status);
    }
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

/// The workspace as cargo sees it.
fn metadata() -> Result<serde_json::Value> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .context("cargo metadata")?;
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}

/// Who may depend on whom.
fn layers(metadata: &serde_json::Value, breaches: &mut Vec<String>) {
    let mut normal: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default().to_owned();
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        // A dependency of kind null is a normal one; loom stands behind a target condition and is a test tool.
        let chosen = dependencies
            .filter(|dependency| dependency["kind"].is_null() && dependency["target"].is_null())
            .filter(|dependency| dependency["optional"] != true)
            .filter_map(|dependency| dependency["name"].as_str())
            .map(str::to_owned);
        normal.insert(name, chosen.collect());
    }
    let mut only = |package: &str, allowed: &[&str]| match normal.get(package) {
        None => breaches.push(format!("layers: {package} is not in the workspace")),
        Some(found) => {
            for extra in found.iter().filter(|name| !allowed.contains(&name.as_str())) {
                breaches.push(format!("layers: {package} must not depend on {extra}"));
            }
        }
    };
    only("simpler-log-abi", &[]);
    only("simpler-device-phase", &[]);
    // Its host's side is optional.
    only("simpler-swimlane", &[]);
    only("simpler-kernel-abi", &[]);
    only("simpler-record-format", &["simpler-log-abi"]);
    only("simpler-relax", &["libc"]);
    only("simpler-onboard", &["simpler-log-abi", "simpler-platform", "libloading", "thiserror"]);
    only("simpler-host-log-c", &["simpler-host-log", "simpler-log-abi"]);
    // What it exports is written once, and the objects are nothing else.
    for object in ["simpler-host-runtime-a2a3sim", "simpler-host-runtime-a5sim"] {
        only(object, &["simpler-host-log", "simpler-host-runtime"]);
    }
    only("simpler-sim-context", &["simpler-host-log"]);
    only("simpler-host-log-macros", &["proc-macro2", "quote", "syn"]);
    only(
        "simpler-host-log",
        &["simpler-host-log-macros", "simpler-log-abi", "simpler-record-format", "libc"],
    );
    // The writing and the reading side meet in record-format and log-abi only; the binary and the tests hold both.
    let writing =
        ["simpler-host-log", "simpler-runtime", "simpler-worker", "simpler-sim-npu", "simpler-decoder"];
    let reading = ["simpler-trace-model", "simpler-trace-ingest", "simpler-trace-export"];
    for (package, found) in &normal {
        let side = |names: &[&str]| found.iter().any(|name| names.contains(&name.as_str()));
        if reading.contains(&package.as_str()) && side(&writing) {
            breaches.push(format!("layers: {package} reads logs and must not depend on what writes them"));
        }
        if writing.contains(&package.as_str()) && side(&reading) {
            breaches.push(format!("layers: {package} writes logs and must not depend on what reads them"));
        }
    }
    let devices = ["simpler-sim-npu", "simpler-onboard"];
    if normal.get("simpler-runtime").is_some_and(|found| devices.iter().any(|name| found.contains(*name))) {
        breaches.push("layers: simpler-runtime knows a device only through simpler-platform".to_owned());
    }
}

/// Names that say nothing.
fn names(path: &Path, breaches: &mut Vec<String>) {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if ["utils", "util", "common", "helpers", "helper", "manager", "misc"].contains(&stem) {
        breaches.push(format!("{}: the name says nothing; name the thing", path.display()));
    }
}

/// Paths of a machine have no place in the repository.
fn places(path: &Path, text: &str, breaches: &mut Vec<String>) {
    let folders = ["work", "root", "home"].map(|folder| format!("/{folder}/"));
    for (number, line) in text.lines().enumerate() {
        for folder in &folders {
            let local = line.match_indices(folder.as_str()).any(|(at, _)| {
                !line[..at].ends_with(|before: char| before.is_alphanumeric() || "._-}$~".contains(before))
            });
            if local {
                breaches.push(format!("{}:{}: a path of somebody's machine", path.display(), number + 1));
            }
        }
    }
}

fn rust_file(path: &Path, text: &str, breaches: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let mut breach =
        |number: usize, what: &str| breaches.push(format!("{}:{}: {what}", path.display(), number + 1));
    let is_xtask = path.starts_with("xtask");
    let opening = lines.iter().find(|line| !line.starts_with("#!") && !line.trim().is_empty());
    if !opening.is_some_and(|line| line.starts_with("//!")) {
        breach(0, "a file opens with //! and its idea");
    }
    let is_test = path
        .components()
        .any(|part| ["tests", "tests-e2e", "benches"].iter().any(|folder| part.as_os_str() == *folder));
    for (number, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        let ordered = ["Acquire", "Release", "AcqRel", "SeqCst"]
            .iter()
            .any(|name| code.contains(&format!("Ordering::{name}")));
        if ordered && !is_test && !is_xtask {
            let above = &lines[number.saturating_sub(TAG_REACH_LINES)..=number];
            if !above.iter().any(|line| line.contains("ORDERING:")) {
                breach(number, "an atomic access without its ORDERING: comment");
            }
        }
        if !is_xtask && code.contains("#[ignore") {
            breach(number, "no test is ignored; one that cannot run says `skipped: why`");
        }
        if is_test && code.contains("thread::sleep(") {
            breach(number, "tests poll with a deadline, they do not sleep");
        }
    }
    // `sync.rs` alone may name such a thing: it is where loom's stand-in for the futex is.
    if path.starts_with("crates/host-log/src") && !path.ends_with("sync.rs") {
        let barred =
            ["Mutex", "Condvar", "RwLock", "OnceLock", "OnceCell", "LazyLock", "parking_lot", "println!"];
        for (number, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            // A test may say that it skips something.
            let says_skipped = code.starts_with("eprintln!(\"skipped: ");
            if !code.starts_with("//") && !says_skipped && barred.iter().any(|name| code.contains(name)) {
                breach(number, "host-log holds nothing that a fork could leave locked");
            }
        }
    }
}

/// Every test that a table of promises names is there, so that none of them is a promise alone.
fn claims_have_their_tests(breaches: &mut Vec<String>) -> Result<()> {
    let analyzer: fn(&str) -> Option<Vec<String>> = |file| {
        let (package, file) = file.split_once("::")?;
        let file = file.replace("::", "/");
        Some(["tests", "src"].map(|folder| format!("crates/{package}/{folder}/{file}.rs")).into())
    };
    let host_log: fn(&str) -> Option<Vec<String>> = |file| {
        let (prefix, file) = file.split_once('/').unwrap_or(("host-log", file));
        let package = match prefix {
            "abi" => "log-abi",
            "format" => "record-format",
            "c" => "host-log-c",
            other => other,
        };
        Some(vec![format!("crates/{package}/tests/{file}.rs")])
    };
    for (table, places) in [("docs/analyzer-claims.md", analyzer), ("docs/host-log-contract.md", host_log)] {
        let text = fs::read_to_string(table).with_context(|| format!("cannot read {table}"))?;
        let rows =
            text.lines().enumerate().filter_map(|(number, line)| Some((number, line.strip_prefix("| ")?)));
        for (number, row) in rows {
            // What stands in backquotes is every second part.
            for test in row.split('`').skip(1).step_by(2) {
                let Some((file, name)) = test.rsplit_once("::") else { continue };
                let is_there = |place: &String| {
                    fs::read_to_string(place).is_ok_and(|source| source.contains(&format!("fn {name}(")))
                };
                if !places(file).is_some_and(|places| places.iter().any(is_there)) {
                    breaches.push(format!("{table}:{}: there is no test {test}", number + 1));
                }
            }
        }
    }
    Ok(())
}

/// Every foreign dependency of any crate has its line of reason, and every line has its dependency.
fn dependencies_are_explained(metadata: &serde_json::Value, breaches: &mut Vec<String>) -> Result<()> {
    let reasons = fs::read_to_string("docs/dependencies.md").context("cannot read docs/dependencies.md")?;
    let fuzz = fs::read_to_string("fuzz/Cargo.toml").context("cannot read fuzz/Cargo.toml")?;
    let mut used: BTreeSet<String> = BTreeSet::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        used.extend(dependencies.filter_map(|dependency| dependency["name"].as_str()).map(str::to_owned));
    }
    let section = fuzz.split("[dependencies]").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    used.extend(lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.trim().to_owned()));
    used.retain(|name| !name.starts_with("simpler-"));
    let explained: BTreeSet<String> = reasons
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .map(|(name, _)| name.to_owned())
        .filter(|name| name != "crate" && name != "---")
        .collect();
    for name in used.difference(&explained) {
        breaches.push(format!("docs/dependencies.md: no line of reason for {name}"));
    }
    for name in explained.difference(&used) {
        breaches.push(format!("docs/dependencies.md: nothing depends on {name}"));
    }
    Ok(())
}
