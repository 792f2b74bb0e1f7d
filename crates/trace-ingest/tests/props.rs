//! Whatever the bytes, and however they are cut into blocks.

use proptest::prelude::*;
use simpler_trace_ingest::{Found, Scanner};

/// What scanning `blocks` one after the other finds, as text that can be compared.
fn scan(blocks: &[&[u8]]) -> Vec<String> {
    let mut found = Vec::new();
    let mut take = |offset: u64, one: Found<'_>| found.push(format!("{offset} {one:?}"));
    let mut scanner = Scanner::new();
    for block in blocks {
        scanner.push(block, &mut take);
    }
    scanner.finish(&mut take);
    found
}

/// A piece of a log: a record, a part of one, or what others write between them.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let envelope = prop_oneof![
        Just("[mono_ns=1500][T0x7f00][TIMING] emit_host_span: "),
        Just("[mono_ns=1500][T0x7f00][INFO] poll: "),
        Just("[mono_ns=1500][T0x7f00][TIMING] clock_anchor: "),
        Just("[mono_ns=1500][T0x7f00][TIMING] host.identity: "),
        Just(""),
    ];
    let body = prop_oneof![
        Just("[STRACE] v=1 pid=41 tid=42 inv=1 hid=b7e2 depth=0 name=simpler_run ts=1000 dur=500 a=1"),
        Just("[STRACE] v=1 pid=41 tid=42 inv=1 hid=b7e2 depth=0 name=simpler_run ts=1000 dur=500 "),
        Just("[STRACE] v=2 pid=41"),
        Just("[STRACE] v="),
        Just("[CLOCK_ANCHOR] v=1 pid=7 mono_ns=1 wall_ns=2"),
        Just("[HOST_IDENTITY] v=1 pid=7 host=00000000000000b7 name=n7"),
        Just(
            "[HOSTLOG_DROPS] v=1 pid=7 new=1 total=1 queue_full=1 claim_exhausted=0 output_failed=0 not_admitted=0"
        ),
        Just("hello"),
    ];
    let end = prop_oneof![
        Just("\n"),
        Just("\n"),
        Just("\n"),
        Just("\r\n"),
        Just("~\n"),
        Just(""),
        Just("'"),
        Just("\x1b[0m\n"),
        Just("\\n\",")
    ];
    let text = (envelope, body, end, any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(envelope, body, end, cut, whole)| {
            let text = format!("{envelope}{body}{end}").into_bytes();
            if whole { text } else { text[..cut.index(text.len().max(1)).min(text.len())].to_vec() }
        },
    );
    prop_oneof![
        8 => text,
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::sample::select(b"x[ \n\0'".to_vec()).prop_map(|byte| vec![byte; 700]),
        1 => Just(b"y".repeat(6000)),
        1 => Just(b"[mono_ns=".repeat(200)),
    ]
}

fn log() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        scan(&[&bytes]);
    }

    #[test]
    fn where_the_blocks_are_cut_makes_no_difference(
        log in log(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(log.len() + 1)).collect();
        cuts.extend([0, log.len()]);
        cuts.sort_unstable();
        let blocks: Vec<&[u8]> = cuts.windows(2).map(|cut| &log[cut[0]..cut[1]]).collect();
        prop_assert_eq!(scan(&blocks), scan(&[&log]));
    }

    #[test]
    fn a_byte_at_a_time_is_as_good_as_all_at_once(log in log()) {
        let bytes: Vec<&[u8]> = log.chunks(1).collect();
        prop_assert_eq!(scan(&bytes), scan(&[&log]));
    }
}
