//! Named scopes of Rust: what is recorded, and that their names are in the very program.

mod support;

use std::cell::Cell;

use simpler_swimlane::{
    NamedScope, NamesError, PhaseNames, RecordKind, ScopeSink, SimplerPhaseRecorder, fnv1a, phase_scope,
};
use support::{DROPPED, Device, ShutGate, TOTAL, value};

#[test]
fn the_hash_is_fnv_1a_of_64_bits() {
    const IN_A_CONSTANT: u64 = fnv1a("foobar");
    assert_eq!(
        [fnv1a(""), fnv1a("a"), IN_A_CONSTANT],
        [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]
    );
}

fn scope(name: &str, start: u64, end: u64, depth: u32) -> NamedScope {
    NamedScope { start, end, name_hash: fnv1a(name), depth, reserved: 0 }
}

fn work(recorder: &SimplerPhaseRecorder<'_>, early: bool) -> Option<()> {
    let _outer = phase_scope!(recorder, "outer");
    {
        let _inner = phase_scope!(Some(recorder), "inner");
        if early {
            return None;
        }
    }
    let _other = phase_scope!(recorder, "other");
    Some(())
}

#[test]
fn a_scope_is_recorded_when_it_ends_on_whichever_path_with_its_nesting() {
    let device = Device::small(2, 4, 8);
    let drain = device.drain();
    let gate = ShutGate::default();
    let now = Cell::new(0);
    let cycles = || {
        now.set(now.get() + 1);
        now.get()
    };
    let sink = ScopeSink::new(device.thread_writer(1, &gate), &cycles);
    let recorder = SimplerPhaseRecorder::new(&sink);
    assert_eq!(work(&recorder, false), Some(()));
    assert_eq!(work(&recorder, true), None);
    let collected = drain.finish();
    assert_eq!(
        collected.records.named_scopes[1],
        [
            scope("inner", 2, 3, 1),
            scope("other", 4, 5, 1),
            scope("outer", 1, 6, 0),
            scope("inner", 8, 9, 1),
            scope("outer", 7, 10, 0),
        ]
    );
}

#[test]
fn scopes_of_both_languages_nest_in_each_other() {
    // What the header's two functions do, with the words at its offsets.
    #[repr(C)]
    struct AsC {
        context: *mut std::ffi::c_void,
        counter: unsafe extern "C" fn(*mut std::ffi::c_void) -> u64,
        record: unsafe extern "C" fn(*mut std::ffi::c_void, u64, u64, u64, u32),
        depth: Cell<u32>,
    }
    let device = Device::small(8, 4, 8);
    let drain = device.drain();
    let gate = ShutGate::default();
    let now = Cell::new(100);
    let cycles = || now.replace(now.get() + 1);
    let sink = ScopeSink::new(device.thread_writer(0, &gate), &cycles);
    let recorder = SimplerPhaseRecorder::new(&sink);
    let outer = phase_scope!(&recorder, "in Rust");
    // SAFETY: the layout is the header's, which `header.rs` compares; everything is on this thread.
    let c = unsafe { &*recorder.as_ptr().cast::<AsC>() };
    // SAFETY: the function of the recorder, with its context.
    let cycles_of_c = || unsafe { (c.counter)(c.context) };
    c.depth.set(c.depth.get() + 1);
    let start = cycles_of_c();
    drop(phase_scope!(&recorder, "in Rust in C"));
    let end = cycles_of_c();
    c.depth.set(c.depth.get() - 1);
    // SAFETY: as above.
    unsafe { (c.record)(c.context, fnv1a("in C"), start, end, c.depth.get()) };
    drop(outer);
    assert_eq!(
        drain.finish().records.named_scopes[0],
        [scope("in Rust in C", 102, 103, 2), scope("in C", 101, 104, 1), scope("in Rust", 100, 105, 0)]
    );
}

#[test]
fn without_a_recorder_nothing_happens() {
    let nobody: Option<&SimplerPhaseRecorder<'_>> = None;
    drop(phase_scope!(nobody, "unheard"));
}

#[test]
fn a_scope_that_finds_no_buffer_is_counted() {
    let device = Device::small(1, 1, 1);
    let drain = device.drain();
    let gate = ShutGate::default();
    let cycles = || 1;
    let sink = ScopeSink::new(device.thread_writer(0, &gate), &cycles);
    let recorder = SimplerPhaseRecorder::new(&sink);
    for _ in 0..3 {
        drop(phase_scope!(&recorder, "counted"));
    }
    assert_eq!(value(device.head_word(RecordKind::NamedScope, 0, TOTAL)), 3);
    assert_eq!(value(device.head_word(RecordKind::NamedScope, 0, DROPPED)), 2);
    assert!(drain.finish().reconciliation.is_exact());
}

#[test]
fn the_programs_own_names_are_found_in_its_section() {
    let image = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let names = PhaseNames::from_elf(&image).unwrap();
    for name in ["outer", "inner", "other", "unheard", "in Rust", "in Rust in C"] {
        assert_eq!(names.get(fnv1a(name)), Some(name));
        assert_eq!(names.label(fnv1a(name)).to_string(), name);
    }
    assert_eq!(names.get(fnv1a("nobody's")), None);
    assert_eq!(names.label(0xabc).to_string(), "phase_0000000000000abc");

    let mut both = PhaseNames::new();
    both.add_elf(&image).unwrap();
    both.add_elf(&image).unwrap();
    assert_eq!(both, names, "one name twice is one");
}

#[test]
fn bytes_that_are_no_object_or_a_broken_one_are_an_error_and_no_panic() {
    let not_elf = PhaseNames::from_elf(b"no ELF").unwrap_err();
    assert_eq!(not_elf, NamesError::NotElf);
    assert_eq!(not_elf.to_string(), "not a 64-bit ELF object");
    assert_eq!(PhaseNames::from_elf(b""), Err(NamesError::NotElf));

    let image = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    for bytes in (0..1024).chain((0..64).map(|part| image.len() / 64 * part)) {
        // Any answer is right that is one.
        let _ = PhaseNames::from_elf(&image[..bytes]);
    }
    let mut broken = image.clone();
    for at in 0..256 {
        broken[at] ^= 0xff;
        let _ = PhaseNames::from_elf(&broken);
        broken[at] ^= 0xff;
    }
    // A section whose bytes lie outside: its offset and size are in the last of the section headers.
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap()) as usize;
    let (headers, count) = (word(40), u16::from_le_bytes([image[60], image[61]]) as usize);
    for section in 0..count {
        let mut broken = image.clone();
        broken[headers + section * 64 + 24..][..16].fill(0xf0);
        let _ = PhaseNames::from_elf(&broken);
    }
}
