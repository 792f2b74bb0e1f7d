//! Spans that are compiled out, seen from the object file: no instruction, no string, no symbol.
//!
//! The same probe is compiled both ways, so that what is looked for is known to be there otherwise.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol};

/// Compiles the probe to an object file.
fn probe(features: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("probe.o");
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let built = Command::new(cargo)
        .args(["rustc", "--quiet", "--package", "simpler-host-log", "--example", "span_probe"])
        .args(features)
        .args(["--", "-Ccodegen-units=1", &format!("--emit=obj={}", object.display())])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    std::fs::read(object).unwrap()
}

/// What the probe's object holds.
struct Probe {
    bytes: Vec<u8>,
    symbols: Vec<String>,
    with_spans: Code,
    without_spans: Code,
}

/// A function's machine code, and how many places in it the linker fills in.
#[derive(Debug, PartialEq, Eq)]
struct Code {
    bytes: Vec<u8>,
    relocations: usize,
}

impl Probe {
    fn compile(features: &[&str]) -> Probe {
        let bytes = probe(features);
        let file = object::File::parse(&*bytes).unwrap();
        let symbols = file.symbols().map(|symbol| symbol.name().unwrap().to_owned()).collect();
        let code = |name: &str| {
            let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name)).expect(name);
            let section = file.section_by_index(symbol.section_index().unwrap()).unwrap();
            let bytes = section.data_range(symbol.address(), symbol.size()).unwrap().unwrap().to_owned();
            let range = symbol.address()..symbol.address() + symbol.size();
            let relocations = section.relocations().filter(|(at, _)| range.contains(at)).count();
            Code { bytes, relocations }
        };
        let (with_spans, without_spans) = (code("probe_with_spans"), code("probe_without_spans"));
        Probe { symbols, with_spans, without_spans, bytes }
    }

    fn holds(&self, text: &str) -> bool {
        self.bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }

    fn names_the_log(&self) -> bool {
        self.symbols.iter().any(|symbol| symbol.contains("simpler_host_log"))
    }
}

/// The probe's names: of spans, of an attribute, and of the function that gives its value.
const TEXTS: [&str; 3] = ["probe_span_name", "probe_attribute_key", "probe_attribute_value"];

#[test]
fn spans_that_are_compiled_out_leave_nothing_in_the_object() {
    if std::env::var("RUSTFLAGS").is_ok_and(|flags| flags.contains("sanitizer")) {
        eprintln!("skipped: a sanitizer puts instructions of its own into every function");
        return;
    }
    let on = Probe::compile(&[]);
    assert!(TEXTS.iter().all(|text| on.holds(text)), "the default build has its names");
    assert!(on.names_the_log());
    assert!(on.with_spans.bytes.len() > on.without_spans.bytes.len());
    assert!(on.with_spans.relocations > 0);

    let off = Probe::compile(&["--no-default-features"]);
    let left: Vec<&str> = TEXTS.into_iter().filter(|text| off.holds(text)).collect();
    assert!(left.is_empty(), "left in the object: {left:?}");
    assert!(!off.names_the_log(), "{:?}", off.symbols);
    assert!(!off.without_spans.bytes.is_empty());
    assert_eq!(off.with_spans, off.without_spans);
    assert_eq!(off.without_spans, on.without_spans, "the work itself is the same in both");
}
