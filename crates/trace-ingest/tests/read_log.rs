//! Whole logs, damaged in every way that logs are, read as the slow reference reads them.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod reference;

use proptest::prelude::*;
use std::fs;
use std::path::Path;

fn check(log: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, log).unwrap();
    reference::check(log, &path);
}

#[test]
fn the_corpus_of_read_log_agrees_with_the_reference() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/read_log");
    let mut replayed = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        // The name is on stderr when the check fails.
        eprintln!("{}", path.display());
        check(&fs::read(&path).unwrap());
        replayed += 1;
    }
    assert!(replayed > 20, "{} holds {replayed} files", folder.display());
}

/// A record as the encoder writes it, with some of its fields anything.
fn record() -> impl Strategy<Value = String> {
    let number = || {
        prop_oneof![
            8 => (0..5_u64).prop_map(|n| n.to_string()),
            1 => any::<u64>().prop_map(|n| n.to_string()),
            1 => prop::sample::select(vec!["", "-1", "1.5", "007", "18446744073709551616", "9223372036854775808"])
                .prop_map(str::to_owned),
        ]
    };
    let words = (
        prop::sample::select(vec!["1", "1", "1", "1", "2", "99999999999999999999"]),
        prop::sample::select(vec!["simpler_run", "simpler_run.bind", "node.submit", "a%20b~", "", "[", "x]"]),
        prop::sample::select(vec![
            "",
            "clk=dev",
            "a=1 b=2",
            "a=1~",
            "x=[y",
            "x\\y",
            r#"a=1\r\n"}"#,
            "\u{1b}[0m",
            " a ",
        ]),
        prop::sample::select(vec!["\n", "\n", "\n", "\n", "\r\n", "~\n", "", "[STRACE]", "'", "\r"]),
        prop::sample::select(vec![
            "[mono_ns=1500][T0x7f][TIMING] emit_host_span: ",
            "[mono_ns=1500][T0x7f][TIMING] emit_host_span: ",
            "[mono_ns=1500][T0x7f][INFO] f: ",
            "",
            "'",
            "{\"log\": \"",
        ]),
    );
    (words, number(), number(), number(), number(), number()).prop_map(
        |((version, name, attrs, end, envelope), pid, inv, depth, ts, dur)| {
            format!(
                "{envelope}[STRACE] v={version} pid={pid} tid=7 inv={inv} hid=b7e2 depth={depth} name={name} ts={ts} \
                 dur={dur} {attrs}{end}"
            )
        },
    )
}

/// A piece of a log, cut or with one byte changed now and then.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        8 => record(),
        1 => prop::sample::select(vec![
            "[mono_ns=1][T0x7f][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=1 mono_ns=1 wall_ns=5\n",
            "[mono_ns=2][T0x7f][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=1 mono_ns=2 wall_ns=5\n",
            "[mono_ns=2][T0x7f][TIMING] host.identity: [HOST_IDENTITY] v=1 pid=1 host=00000000000000b7 name=n\n",
            "[mono_ns=2][T0x7f][ERROR] host_log_drops: [HOSTLOG_DROPS] v=1 pid=1 new=1\n",
            "[mono_ns=2][T0x7f][TIMING] end: [f.c:1] bind phase=args start_ns=1 dur_ns=2 \n",
            "[mono_ns=2][T0x7f][INFO] f[STRACE] v=1 pid=1: text\n",
            "a word\n",
        ])
        .prop_map(str::to_owned),
    ];
    let change =
        (any::<prop::sample::Index>(), prop::sample::select(b" =[]\\\"'~\n\r0x9\x1b\0\x7f\xff".to_vec()));
    let damaged =
        (text, prop::option::weighted(0.4, change), any::<bool>()).prop_map(|(text, change, cut)| {
            let mut bytes = text.into_bytes();
            if let Some((at, byte)) = change {
                let at = at.index(bytes.len());
                if cut {
                    bytes.truncate(at);
                } else {
                    bytes[at] = byte;
                }
            }
            bytes
        });
    prop_oneof![
        20 => damaged,
        1 => Just(b"y".repeat(5000)),
        1 => Just(b"[mono_ns=".repeat(150)),
    ]
}

proptest! {
    #[test]
    fn a_damaged_log_is_read_as_the_reference_reads_it(pieces in prop::collection::vec(piece(), 0..40)) {
        check(&pieces.concat());
    }

    #[test]
    fn any_bytes_are_read_as_the_reference_reads_them(
        bytes in prop::collection::vec(prop::sample::select(b"[STRACE] v=1 \n\r~'\"mono_ns]T0x:\\".to_vec()), 0..600),
    ) {
        check(&bytes);
    }
}
