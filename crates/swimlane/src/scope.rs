//! Named scopes: a line of source makes a phase, and no list of phases has to be kept.
//!
//! A record names its scope by the FNV-1a hash of the name literal, which the compiler computes. The literal
//! itself goes into the section `simpler_phase` of the object, where [`PhaseNames`](crate::PhaseNames) finds it.
//! The section is nothing but NUL-terminated names; empty ones are padding.

use core::cell::Cell;
use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;

use crate::record::NamedScope;
use crate::writer::Writer;

/// The section that holds the names.
pub const SECTION: &str = "simpler_phase";
/// Bytes that a name may have, as in the log; the C header unrolls its hash to this length.
pub const NAME_BYTES_MAX: usize = 64;

/// FNV-1a, 64 bits, of the name's bytes.
pub const fn fnv1a(name: &str) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    let bytes = name.as_bytes();
    let (mut hash, mut at) = (OFFSET_BASIS, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(PRIME);
        at += 1;
    }
    hash
}

/// The bytes of a name as the section holds it; `BYTES` is the length and one more.
///
/// # Panics
///
/// The name is empty, longer than [`NAME_BYTES_MAX`], or holds a NUL: in [`phase_scope!`](crate::phase_scope)
/// the compiler says so.
pub const fn section_entry<const BYTES: usize>(name: &str) -> [u8; BYTES] {
    let bytes = name.as_bytes();
    assert!(!bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX, "a scope's name has 1 to 64 bytes");
    assert!(bytes.len() + 1 == BYTES, "the entry is the name and a NUL");
    let (mut entry, mut at) = ([0; BYTES], 0);
    while at < bytes.len() {
        assert!(bytes[at] != 0, "a scope's name holds no NUL");
        entry[at] = bytes[at];
        at += 1;
    }
    entry
}

/// Opens a named scope of the thread: gives a guard whose drop records it.
///
/// The recorder is a `&SimplerPhaseRecorder`, or an `Option` of one: None records nothing.
///
/// ```
/// use simpler_swimlane::{SimplerPhaseRecorder, phase_scope};
///
/// fn bind_tensors(recorder: Option<&SimplerPhaseRecorder<'_>>) {
///     let _scope = phase_scope!(recorder, "bind_tensors");
///     // …
/// }
/// bind_tensors(None);
/// ```
#[macro_export]
macro_rules! phase_scope {
    ($recorder:expr, $name:literal) => {{
        #[used]
        #[unsafe(link_section = "simpler_phase")]
        static NAME: [u8; $name.len() + 1] = $crate::section_entry($name);
        $crate::PhaseScope::enter($recorder, const { $crate::fnv1a($name) })
    }};
}

/// Where the scopes of one thread are recorded, for Rust ([`phase_scope!`](crate::phase_scope)) and for C
/// (`SIMPLER_PHASE_SCOPE`) at once, so that their scopes nest. The layout is that of `simpler/swimlane.h`.
///
/// One thread uses it.
#[repr(C)]
pub struct SimplerPhaseRecorder<'a> {
    context: *mut c_void,
    counter: unsafe extern "C" fn(context: *mut c_void) -> u64,
    record: unsafe extern "C" fn(context: *mut c_void, hash: u64, start: u64, end: u64, depth: u32),
    /// Scopes that are open.
    depth: Cell<u32>,
    sink: PhantomData<&'a ScopeSink<'a>>,
}

const _: () = assert!(size_of::<SimplerPhaseRecorder<'_>>() == 32);
const _: () = assert!(offset_of!(SimplerPhaseRecorder<'_>, context) == 0);
const _: () = assert!(offset_of!(SimplerPhaseRecorder<'_>, counter) == 8);
const _: () = assert!(offset_of!(SimplerPhaseRecorder<'_>, record) == 16);
const _: () = assert!(offset_of!(SimplerPhaseRecorder<'_>, depth) == 24);

/// What a recorder records into.
pub struct ScopeSink<'a> {
    writer: Writer<'a, NamedScope>,
    cycles: &'a dyn Fn() -> u64,
}

impl fmt::Debug for SimplerPhaseRecorder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimplerPhaseRecorder").field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl fmt::Debug for ScopeSink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopeSink").field("writer", &self.writer).finish_non_exhaustive()
    }
}

impl<'a> ScopeSink<'a> {
    /// Records through `writer`; `cycles` reads the device counter.
    pub const fn new(writer: Writer<'a, NamedScope>, cycles: &'a dyn Fn() -> u64) -> Self {
        Self { writer, cycles }
    }
}

/// # Safety
///
/// `context` is the sink of the recorder that holds this function.
unsafe extern "C" fn read_counter(context: *mut c_void) -> u64 {
    // SAFETY: the caller's obligation; the recorder borrows its sink.
    let sink = unsafe { &*context.cast_const().cast::<ScopeSink<'_>>() };
    (sink.cycles)()
}

/// # Safety
///
/// As for [`read_counter`].
unsafe extern "C" fn append_scope(context: *mut c_void, hash: u64, start: u64, end: u64, depth: u32) {
    // SAFETY: as in `read_counter`.
    let sink = unsafe { &*context.cast_const().cast::<ScopeSink<'_>>() };
    // What is lost was counted in the pool.
    sink.writer.append(NamedScope { start, end, name_hash: hash, depth, reserved: 0 });
}

impl<'a> SimplerPhaseRecorder<'a> {
    /// A recorder into `sink`, no scope open.
    pub const fn new(sink: &'a ScopeSink<'a>) -> Self {
        Self {
            context: core::ptr::from_ref(sink).cast_mut().cast(),
            counter: read_counter,
            record: append_scope,
            depth: Cell::new(0),
            sink: PhantomData,
        }
    }

    /// What an orchestration gets: good while this is not moved, on this thread.
    pub const fn as_ptr(&self) -> *mut Self {
        core::ptr::from_ref(self).cast_mut()
    }

    fn cycles(&self) -> u64 {
        // SAFETY: `new` has put the two together, and the sink is borrowed.
        unsafe { (self.counter)(self.context) }
    }
}

/// An open scope; its drop records it.
#[must_use = "the scope ends when the guard is dropped"]
#[derive(Debug)]
pub struct PhaseScope<'r> {
    recorder: Option<&'r SimplerPhaseRecorder<'r>>,
    name_hash: u64,
    start: u64,
}

impl<'r> PhaseScope<'r> {
    /// Reads the counter. [`phase_scope!`](crate::phase_scope) is the way here, which leaves the name behind.
    #[inline]
    pub fn enter(recorder: impl Into<Option<&'r SimplerPhaseRecorder<'r>>>, name_hash: u64) -> Self {
        let recorder = recorder.into();
        let start = recorder.map_or(0, |recorder| {
            recorder.depth.set(recorder.depth.get().wrapping_add(1));
            recorder.cycles()
        });
        Self { recorder, name_hash, start }
    }
}

impl Drop for PhaseScope<'_> {
    #[inline]
    fn drop(&mut self) {
        let Some(recorder) = self.recorder else { return };
        let end = recorder.cycles();
        let depth = recorder.depth.get().wrapping_sub(1);
        recorder.depth.set(depth);
        // SAFETY: `SimplerPhaseRecorder::new` has put the two together, and the sink is borrowed.
        unsafe { (recorder.record)(recorder.context, self.name_hash, self.start, end, depth) };
    }
}
