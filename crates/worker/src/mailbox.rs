//! The shared-memory mailbox between a parent and one child: frames whose state word says whose turn it is.
//!
//! A mailbox has three frames of one layout (RUNTIME §1.4): the base frame for bring-up, control requests and
//! shutdown, and two task frames, of which as many are in use as the child has said that it pipelines runs.
//! [`ParentEnd`] and [`ChildEnd`] are the two ends; each can only write its own words:
//!
//! | word | writer |
//! | --- | --- |
//! | opcode or callable, lease of a task, digest, configuration, arguments, trailer, `shutdown` | parent |
//! | `error`, `error_text`, `result`, `accepted`, lease of the base frame (its pipeline depth) | child |
//! | `state` | whoever's turn it is |
//!
//! # Why the protocol is sound
//!
//! Every state belongs to one side, and only that side stores the next one:
//!
//! ```text
//! base   IDLE(child, bring-up) → INIT_READY | INIT_FAILED → IDLE
//!        IDLE(parent) → CONTROL_REQUEST → CONTROL_DONE → IDLE          IDLE → SHUTDOWN
//! task   IDLE(parent) → TASK_READY → TASK_DONE | TASK_FAILED → IDLE
//! parent owns IDLE, INIT_*, CONTROL_DONE, TASK_DONE, TASK_FAILED; child owns CONTROL_REQUEST, TASK_READY
//! ```
//!
//! The owner writes its words with relaxed stores, then stores the next state with release; the other side
//! loads the state with acquire before it reads them. As ownership alternates, the reads of the former owner
//! happen before its release store, hence before the next owner's writes: no word is written while it can
//! be read, and an outcome is never seen without its error code and text.
//! One state has two possible writers: during bring-up and during a control request the child owns the base
//! frame, but the parent may have to end it just then. A SHUTDOWN in the state word could be overwritten by
//! the child's INIT_READY or CONTROL_DONE. So shutdown is a word of its own, which only the parent writes and
//! which nobody clears; the state is set as well only where the parent owns it.
//!
//! The state and the shutdown word are in `turn.rs`, which a loom model covers. A change of state is followed
//! by a ring of the other side's event count, which lives in the same memory: one per child for requests, one
//! per parent for replies, as the parent waits for all of its children.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use simpler_relax::EventCount;

use crate::arguments::{self, BLOB_WORDS, Blob};
use crate::call_config;
use crate::endpoint::Task;
use crate::image_transfer::Chunk;
use crate::shared_memory::Mapping;
use crate::turn::{State, Sticky, Turn};
use crate::{RunArgs, WorkerError};

/// The version in the trailer; a child refuses any other.
const PROTOCOL_VERSION: u64 = 3;
/// Task frames that the layout has: runs that a child can have at a time.
pub(crate) const TASK_FRAMES: usize = 2;
/// Longest error text: a sentence with a path and a linker's words. A longer one is cut and ends in `~`.
pub(crate) const ERROR_TEXT_BYTES: usize = 1024;

const _: () = assert!(TASK_FRAMES == simpler_runtime::PIPELINE_DEPTH_MAX);

/// Operands of a control request.
const OPERANDS: usize = 3;
/// Most bytes of an image that a request carries: what the arguments leave behind their counts and the operands.
pub(crate) const CHUNK_BYTES: usize = (BLOB_WORDS - 1 - OPERANDS) * 8;

/// A callable's identity in a frame.
pub(crate) type Digest = [u8; 32];

/// Control opcodes, with the specification's numbers.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opcode {
    Malloc = 0,
    Free = 1,
    CopyTo = 2,
    CopyFrom = 3,
    Prepare = 4,
    Register = 5,
    Unregister = 6,
}

#[repr(C)]
struct Frame {
    state: Turn,
    error: AtomicI32,
    /// A control opcode, or the parent's index of the callable (the child goes by the digest).
    callable_or_opcode: AtomicU64,
    call_config: call_config::Words,
    lease_slot: AtomicU64,
    lease_generation: AtomicU64,
    digest: [AtomicU64; 4],
    arguments: Blob,
    /// Sticky: 0, then 1 for ever. Only that of the base frame is used.
    shutdown: Sticky,
    protocol_version: AtomicU64,
    run_id: AtomicU64,
    slot_id: AtomicU64,
    generation: AtomicU64,
    dispatch_id: AtomicU64,
    /// The generation of the newest task that the child has taken up.
    accepted: AtomicU64,
    /// Room for the preparation disposition: 0, none.
    _preparation: AtomicU64,
    /// What a control request gave.
    result: AtomicU64,
    error_text_bytes: AtomicU32,
    _padding: AtomicU32,
    error_text: [AtomicU64; ERROR_TEXT_BYTES / 8],
}

const _: () = {
    assert!(std::mem::offset_of!(Frame, error) == 4);
    assert!(std::mem::offset_of!(Frame, callable_or_opcode) == 8);
    assert!(std::mem::offset_of!(Frame, call_config) == 16);
    assert!(std::mem::offset_of!(Frame, lease_slot) == 16 + 6 * 4 + 12 * 8 + 1024);
};

/// What a child reports as its failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl Frame {
    /// Ends a request: stores error code and text, then the state. The one place where a child answers, so
    /// that no outcome can be seen without them.
    fn answer(&self, failure: Option<&Failure>, state: State) {
        self.set_failure(failure);
        self.state.hand_over(state);
    }

    fn set_failure(&self, failure: Option<&Failure>) {
        let (code, text) = match failure {
            // A failure whose code is 0 would read as success.
            Some(failure) => (if failure.code == 0 { -1 } else { failure.code }, failure.text.as_str()),
            None => (0, ""),
        };
        let mut bytes = [0; ERROR_TEXT_BYTES];
        let used = cut(text, &mut bytes);
        // ORDERING: Relaxed for all: published by the frame's `hand_over`.
        self.error.store(code, Ordering::Relaxed);
        self.error_text_bytes.store(used as u32, Ordering::Relaxed);
        for (to, from) in self.error_text.iter().zip(bytes[..used.next_multiple_of(8)].as_chunks().0) {
            to.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
    }

    fn failure(&self) -> Option<Failure> {
        // ORDERING: Relaxed for all: the Acquire load of the state came before.
        let code = self.error.load(Ordering::Relaxed);
        if code == 0 {
            return None;
        }
        let used = (self.error_text_bytes.load(Ordering::Relaxed) as usize).min(ERROR_TEXT_BYTES);
        let bytes: Vec<u8> = self
            .error_text
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .take(used)
            .collect();
        Some(Failure { code, text: String::from_utf8_lossy(&bytes).into_owned() })
    }

    fn set_digest(&self, digest: &Digest) {
        for (to, from) in self.digest.iter().zip(digest.as_chunks().0) {
            // ORDERING: Relaxed: published by the frame's `hand_over`.
            to.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
    }

    fn digest(&self) -> Digest {
        let mut digest = [0; 32];
        for (to, from) in digest.as_chunks_mut().0.iter_mut().zip(&self.digest) {
            // ORDERING: Relaxed: the Acquire load of the state came before.
            *to = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        digest
    }
}

/// Copies `text` into `bytes`; one that does not fit is cut at a character and ends in `~`.
fn cut(text: &str, bytes: &mut [u8; ERROR_TEXT_BYTES]) -> usize {
    if text.len() <= ERROR_TEXT_BYTES {
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        return text.len();
    }
    let end = text.floor_char_boundary(ERROR_TEXT_BYTES - 1);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes[end] = b'~';
    end + 1
}

#[repr(C, align(64))]
struct Mailbox {
    /// Rung by the parent after it handed over a frame or set the shutdown word.
    requests: EventCount,
    base: Frame,
    tasks: [Frame; TASK_FRAMES],
}

#[repr(C, align(64))]
struct Header {
    /// Rung by a child after it handed over a frame.
    replies: EventCount,
}

/// The mailboxes of all children of one parent, in one mapping that the children inherit.
pub(crate) struct Mailboxes {
    // FORK: parent and child see the same pages; each end writes the words of the table above.
    mapping: Mapping,
    count: usize,
}

impl Mailboxes {
    /// `count` mailboxes, all frames IDLE (the kernel's zero pages are exactly that).
    pub(crate) fn new(count: usize) -> Result<Self, WorkerError> {
        Ok(Self { mapping: Mapping::new(size_of::<Header>() + count * size_of::<Mailbox>())?, count })
    }

    /// The event that every child rings.
    pub(crate) fn replies(&self) -> &EventCount {
        let header: NonNull<Header> = self.mapping.base().cast();
        // SAFETY: the mapping starts with a header, page-aligned; zero bytes are a new event count; the
        // reference lives as long as the mapping, and every word in it is an atomic.
        let header = unsafe { header.as_ref() };
        &header.replies
    }

    fn mailbox(&self, index: usize) -> &Mailbox {
        assert!(index < self.count, "a mailbox per child");
        // SAFETY: the mapping holds a header and `count` mailboxes, and `index` is below that.
        let first = unsafe { self.mapping.base().add(size_of::<Header>()) };
        // SAFETY: as above.
        let mailbox = unsafe { first.cast::<Mailbox>().add(index) };
        // SAFETY: aligned (page, 64-byte header, 64-byte multiples), initialized (zero is valid for every
        // word), alive as long as the mapping, and made of atomics only.
        unsafe { mailbox.as_ref() }
    }

    /// The parent's end of mailbox `index`.
    pub(crate) fn parent(&self, index: usize) -> ParentEnd<'_> {
        ParentEnd { mailbox: self.mailbox(index) }
    }

    /// The child's end of mailbox `index`.
    pub(crate) fn child(&self, index: usize) -> ChildEnd<'_> {
        ChildEnd { mailbox: self.mailbox(index), replies: self.replies() }
    }
}

/// A control request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Gives a device address.
    Malloc { bytes: u64 },
    /// Gives nothing.
    Free { device: u64 },
    /// Host (shared memory) to device.
    CopyTo { device: u64, host: u64, bytes: u64 },
    /// Device to host (shared memory).
    CopyFrom { host: u64, device: u64, bytes: u64 },
    /// Gives the child's local slot of the callable.
    Prepare { callable: Digest },
    /// A part of a callable's image. With the last one the child registers it, and gives its local slot.
    Register { callable: Digest, chunk: Chunk },
    /// Gives nothing.
    Unregister { callable: Digest },
}

impl Control {
    /// The operation's name, for texts.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Malloc { .. } => "malloc",
            Self::Free { .. } => "free",
            Self::CopyTo { .. } => "copy_to",
            Self::CopyFrom { .. } => "copy_from",
            Self::Prepare { .. } => "prepare",
            Self::Register { .. } => "register",
            Self::Unregister { .. } => "unregister",
        }
    }
}

/// Who a task is, for the trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskIdentity {
    pub(crate) callable_index: usize,
    pub(crate) callable: Digest,
    pub(crate) run_id: u64,
    pub(crate) dispatch_id: u64,
    pub(crate) generation: u64,
}

/// The parent's side of one mailbox.
#[derive(Clone, Copy)]
pub(crate) struct ParentEnd<'a> {
    mailbox: &'a Mailbox,
}

impl ParentEnd<'_> {
    /// The outcome of bring-up, once: how many runs the child can have at a time. The frame is the parent's afterwards.
    pub(crate) fn take_init(&self) -> Option<Result<usize, Failure>> {
        let base = &self.mailbox.base;
        let outcome = match base.state.state() {
            // ORDERING: Relaxed: the Acquire load of the state came before.
            state if state == State::InitReady as i32 => Ok(base.lease_slot.load(Ordering::Relaxed) as usize),
            state if state == State::InitFailed as i32 => Err(failure_or_unknown(base)),
            _ => return None,
        };
        base.state.hand_over(State::Idle);
        Some(outcome)
    }

    /// Hands a control request to the child. The base frame must be the parent's, which it is after
    /// `take_init` and after each `take_control`.
    pub(crate) fn post_control(&self, request: &Control) {
        let base = &self.mailbox.base;
        debug_assert!(base.state.is(State::Idle), "the base frame is the parent's");
        let (opcode, operands): (_, [u64; OPERANDS]) = match *request {
            Control::Malloc { bytes } => (Opcode::Malloc, [bytes, 0, 0]),
            Control::Free { device } => (Opcode::Free, [device, 0, 0]),
            Control::CopyTo { device, host, bytes } => (Opcode::CopyTo, [device, host, bytes]),
            Control::CopyFrom { host, device, bytes } => (Opcode::CopyFrom, [host, device, bytes]),
            Control::Prepare { callable } => {
                base.set_digest(&callable);
                (Opcode::Prepare, [0, 0, 0])
            }
            Control::Register { callable, ref chunk } => {
                base.set_digest(&callable);
                set_chunk(base, &chunk.bytes);
                (Opcode::Register, [chunk.total, chunk.offset, chunk.bytes.len() as u64])
            }
            Control::Unregister { callable } => {
                base.set_digest(&callable);
                (Opcode::Unregister, [0, 0, 0])
            }
        };
        // ORDERING: Relaxed for all: published by the frame's `hand_over`.
        base.callable_or_opcode.store(opcode as u64, Ordering::Relaxed);
        base.protocol_version.store(PROTOCOL_VERSION, Ordering::Relaxed);
        // Operands travel as the scalars of an argument blob without tensors.
        base.arguments[0].store((operands.len() as u64) << 32, Ordering::Relaxed);
        for (to, operand) in base.arguments[1..].iter().zip(operands) {
            to.store(operand, Ordering::Relaxed);
        }
        base.state.hand_over(State::ControlRequest);
        self.mailbox.requests.notify_one();
    }

    /// The outcome of the control request, once.
    pub(crate) fn take_control(&self) -> Option<Result<u64, Failure>> {
        let base = &self.mailbox.base;
        if !base.state.is(State::ControlDone) {
            return None;
        }
        let outcome = match base.failure() {
            Some(failure) => Err(failure),
            // ORDERING: Relaxed: the Acquire load of the state came before.
            None => Ok(base.result.load(Ordering::Relaxed)),
        };
        base.state.hand_over(State::Idle);
        Some(outcome)
    }

    /// Hands a task to the child in task frame `slot`. The frame must be the parent's, which it is at first and after each
    /// `take_task`.
    ///
    /// # Errors
    /// Arguments that do not fit; the frame stays the parent's.
    pub(crate) fn post_task(&self, slot: usize, task: &TaskIdentity, args: &RunArgs) -> Result<(), String> {
        let frame = &self.mailbox.tasks[slot];
        debug_assert!(frame.state.is(State::Idle), "the task frame is the parent's");
        arguments::write(&frame.arguments, args)?;
        call_config::write(&frame.call_config, &args.config)?;
        frame.set_digest(&task.callable);
        // ORDERING: Relaxed for all: published by the frame's `hand_over`.
        for (word, value) in [
            (&frame.callable_or_opcode, task.callable_index as u64),
            (&frame.lease_slot, slot as u64),
            (&frame.lease_generation, task.generation),
            (&frame.protocol_version, PROTOCOL_VERSION),
            (&frame.run_id, task.run_id),
            (&frame.slot_id, slot as u64),
            (&frame.generation, task.generation),
            (&frame.dispatch_id, task.dispatch_id),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        frame.state.hand_over(State::TaskReady);
        self.mailbox.requests.notify_one();
        Ok(())
    }

    /// Whether `take_task` has an outcome to give.
    pub(crate) fn task_is_done(&self, slot: usize) -> bool {
        let frame = &self.mailbox.tasks[slot];
        frame.state.is(State::TaskDone) || frame.state.is(State::TaskFailed)
    }

    /// The outcome of the task, once.
    pub(crate) fn take_task(&self, slot: usize) -> Option<Result<(), Failure>> {
        let frame = &self.mailbox.tasks[slot];
        let outcome = match frame.state.state() {
            state if state == State::TaskDone as i32 => Ok(()),
            state if state == State::TaskFailed as i32 => Err(failure_or_unknown(frame)),
            _ => return None,
        };
        frame.state.hand_over(State::Idle);
        Some(outcome)
    }

    /// Whether the child has taken up the task of this generation.
    pub(crate) fn accepted(&self, slot: usize, generation: u64) -> bool {
        // ORDERING: Relaxed: a hint for a text.
        self.mailbox.tasks[slot].accepted.load(Ordering::Relaxed) == generation
    }

    /// Tells the child to leave, whatever it is doing; for good.
    pub(crate) fn terminate(&self) {
        self.mailbox.base.shutdown.set();
        // The state says so too, but only where the frame is idle: the child may be storing its own.
        self.mailbox.base.state.end_if_idle();
        self.mailbox.requests.notify_one();
    }
}

fn failure_or_unknown(frame: &Frame) -> Failure {
    frame.failure().unwrap_or_else(|| Failure { code: -1, text: "failed without a code".into() })
}

/// What a child finds in its mailbox.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, taken apart where it is found")]
pub(crate) enum Request {
    /// Leave.
    Shutdown,
    /// To be answered by `finish_control`.
    Control(Result<Control, Failure>),
    /// In this frame; to be answered by `finish_task`.
    Task(usize, Result<Task, Failure>),
}

/// The child's side of one mailbox.
#[derive(Clone, Copy)]
pub(crate) struct ChildEnd<'a> {
    mailbox: &'a Mailbox,
    replies: &'a EventCount,
}

impl ChildEnd<'_> {
    /// The event that the parent rings.
    pub(crate) fn requests(&self) -> &EventCount {
        &self.mailbox.requests
    }

    /// Ends bring-up; says how many runs the child can have at a time.
    pub(crate) fn finish_init(&self, outcome: Result<usize, &Failure>) {
        // ORDERING: Relaxed: published by the frame's `hand_over`.
        self.mailbox.base.lease_slot.store(*outcome.as_ref().unwrap_or(&0) as u64, Ordering::Relaxed);
        let state = if outcome.is_ok() { State::InitReady } else { State::InitFailed };
        self.mailbox.base.answer(outcome.err(), state);
        self.replies.notify_all();
    }

    /// Whether the parent has told this child to leave, for good.
    pub(crate) fn is_told_to_leave(&self) -> bool {
        let base = &self.mailbox.base;
        base.shutdown.is_set() || base.state.is(State::Shutdown)
    }

    /// What there is to do, if anything. Shutdown comes first, as nobody would collect a result; then the task that was
    /// dispatched first, of those in frames that the child has not `taken` yet; then control: its parent waits for the
    /// answer, so whatever it has dispatched was dispatched before.
    pub(crate) fn next(&self, taken: [bool; TASK_FRAMES]) -> Option<Request> {
        let base = &self.mailbox.base;
        if self.is_told_to_leave() {
            return Some(Request::Shutdown);
        }
        // Before the tasks: who has seen the request sees those that were dispatched before it.
        let control = base.state.is(State::ControlRequest);
        let first_ready = || {
            let frames = self.mailbox.tasks.iter().enumerate();
            let ready = frames.filter(|(slot, task)| !taken[*slot] && task.state.is(State::TaskReady));
            // ORDERING: Relaxed: the state was loaded with Acquire.
            ready.min_by_key(|(_, task)| task.dispatch_id.load(Ordering::Relaxed))
        };
        if first_ready().is_none() {
            return control.then(|| Request::Control(read_control(base)));
        }
        // Looked for again: who has seen a frame ready sees those ready that were dispatched before it, and a frame that
        // was looked at before it may have become one meanwhile.
        let (slot, task) = first_ready()?;
        // ORDERING: Relaxed: `accepted` is a hint for a text.
        task.accepted.store(task.generation.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(Request::Task(slot, read_task(slot, task)))
    }

    /// Answers a control request.
    pub(crate) fn finish_control(&self, outcome: Result<u64, &Failure>) {
        let base = &self.mailbox.base;
        // ORDERING: Relaxed: published by the frame's `hand_over`.
        base.result.store(*outcome.as_ref().unwrap_or(&0), Ordering::Relaxed);
        base.answer(outcome.err(), State::ControlDone);
        self.replies.notify_all();
    }

    /// Answers a task.
    pub(crate) fn finish_task(&self, slot: usize, outcome: Result<(), &Failure>) {
        let state = if outcome.is_ok() { State::TaskDone } else { State::TaskFailed };
        self.mailbox.tasks[slot].answer(outcome.err(), state);
        self.replies.notify_all();
    }
}

fn check_version(frame: &Frame) -> Result<(), Failure> {
    // ORDERING: Relaxed: the Acquire load of the state came before.
    match frame.protocol_version.load(Ordering::Relaxed) {
        PROTOCOL_VERSION => Ok(()),
        other => Err(protocol_failure(format!(
            "the frame has mailbox protocol {other}, this child speaks {PROTOCOL_VERSION}"
        ))),
    }
}

fn protocol_failure(text: String) -> Failure {
    Failure { code: -1, text }
}

/// Behind the operands.
fn chunk_words(base: &Frame) -> &[AtomicU64] {
    &base.arguments[1 + OPERANDS..]
}

fn set_chunk(base: &Frame, bytes: &[u8]) {
    debug_assert!(bytes.len() <= CHUNK_BYTES, "a chunk fits");
    for (to, from) in chunk_words(base).iter().zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        word[..from.len()].copy_from_slice(from);
        // ORDERING: Relaxed: published by the frame's `hand_over`.
        to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }
}

fn read_chunk(base: &Frame, bytes: u64) -> Result<Vec<u8>, Failure> {
    if bytes > CHUNK_BYTES as u64 {
        return Err(protocol_failure(format!("a chunk of {bytes} bytes, at most {CHUNK_BYTES} fit")));
    }
    let words = chunk_words(base).iter();
    // ORDERING: Relaxed: the Acquire load of the state came before.
    Ok(words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).take(bytes as usize).collect())
}

fn read_control(base: &Frame) -> Result<Control, Failure> {
    check_version(base)?;
    // ORDERING: Relaxed for all: the Acquire load of the state came before.
    let operand = |index: usize| base.arguments[1 + index].load(Ordering::Relaxed);
    let opcode = base.callable_or_opcode.load(Ordering::Relaxed);
    Ok(match opcode {
        code if code == Opcode::Malloc as u64 => Control::Malloc { bytes: operand(0) },
        code if code == Opcode::Free as u64 => Control::Free { device: operand(0) },
        code if code == Opcode::CopyTo as u64 => {
            Control::CopyTo { device: operand(0), host: operand(1), bytes: operand(2) }
        }
        code if code == Opcode::CopyFrom as u64 => {
            Control::CopyFrom { host: operand(0), device: operand(1), bytes: operand(2) }
        }
        code if code == Opcode::Prepare as u64 => Control::Prepare { callable: base.digest() },
        code if code == Opcode::Register as u64 => {
            let chunk = Chunk { total: operand(0), offset: operand(1), bytes: read_chunk(base, operand(2))? };
            Control::Register { callable: base.digest(), chunk }
        }
        code if code == Opcode::Unregister as u64 => Control::Unregister { callable: base.digest() },
        code => return Err(protocol_failure(format!("unknown control opcode {code}"))),
    })
}

fn read_task(slot: usize, frame: &Frame) -> Result<Task, Failure> {
    check_version(frame)?;
    let mut args = arguments::read(&frame.arguments).map_err(protocol_failure)?;
    args.config = call_config::read(&frame.call_config).map_err(protocol_failure)?;
    // ORDERING: Relaxed for both: the Acquire load of the state came before.
    let [run_id, dispatch_id] = [&frame.run_id, &frame.dispatch_id].map(|word| word.load(Ordering::Relaxed));
    Ok(Task { slot, callable: frame.digest(), args, run_id, dispatch_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: TaskIdentity =
        TaskIdentity { callable_index: 2, callable: [7; 32], run_id: 11, dispatch_id: 12, generation: 13 };

    fn scalars(scalars: &[u64]) -> RunArgs {
        RunArgs { tensors: Vec::new(), scalars: scalars.to_vec(), ..RunArgs::default() }
    }

    fn failure(code: i32, text: &str) -> Failure {
        Failure { code, text: text.into() }
    }

    /// One mailbox whose child has reported ready.
    fn ready() -> Mailboxes {
        let mailboxes = Mailboxes::new(1).unwrap();
        mailboxes.child(0).finish_init(Ok(1));
        assert_eq!(mailboxes.parent(0).take_init(), Some(Ok(1)));
        mailboxes
    }

    #[test]
    fn a_new_mailbox_asks_and_answers_nothing() {
        let mailboxes = Mailboxes::new(2).unwrap();
        for index in 0..2 {
            assert!(mailboxes.child(index).next([false; 2]).is_none());
            let parent = mailboxes.parent(index);
            assert_eq!(parent.take_init(), None);
            assert_eq!(parent.take_control(), None);
            assert_eq!(parent.take_task(0), None);
        }
    }

    #[test]
    fn a_failed_init_carries_its_text_and_is_taken_once() {
        let mailboxes = Mailboxes::new(1).unwrap();
        mailboxes.child(0).finish_init(Err(&failure(-9, "no such device")));
        assert_eq!(mailboxes.parent(0).take_init(), Some(Err(failure(-9, "no such device"))));
        assert_eq!(mailboxes.parent(0).take_init(), None);
    }

    fn chunk(bytes: usize) -> Control {
        let bytes = (0..bytes).map(|byte| (byte % 251) as u8).collect();
        Control::Register { callable: [0xcd; 32], chunk: Chunk { total: 1 << 20, offset: 77, bytes } }
    }

    #[test]
    fn every_control_request_arrives_with_its_operands() {
        let mailboxes = ready();
        let (parent, child) = (mailboxes.parent(0), mailboxes.child(0));
        for (number, request) in [
            Control::Malloc { bytes: 1 << 40 },
            Control::Free { device: 3 },
            Control::CopyTo { device: 4, host: 5, bytes: 6 },
            Control::CopyFrom { host: 7, device: 8, bytes: 9 },
            Control::Prepare { callable: [0xab; 32] },
            chunk(CHUNK_BYTES),
            chunk(13),
            Control::Unregister { callable: [0xef; 32] },
        ]
        .into_iter()
        .enumerate()
        {
            parent.post_control(&request);
            assert_eq!(parent.take_control(), None, "not answered yet");
            let Some(Request::Control(Ok(seen))) = child.next([false; 2]) else { panic!("no request") };
            assert_eq!(seen, request);
            child.finish_control(Ok(number as u64));
            assert!(child.next([false; 2]).is_none());
            assert_eq!(parent.take_control(), Some(Ok(number as u64)));
        }
    }

    #[test]
    fn an_error_does_not_outlive_its_request() {
        let mailboxes = ready();
        let (parent, child) = (mailboxes.parent(0), mailboxes.child(0));
        parent.post_control(&Control::Free { device: 1 });
        child.finish_control(Err(&failure(5, "not allocated")));
        assert_eq!(parent.take_control(), Some(Err(failure(5, "not allocated"))));
        parent.post_control(&Control::Free { device: 2 });
        child.finish_control(Ok(0));
        assert_eq!(parent.take_control(), Some(Ok(0)));
    }

    #[test]
    fn a_task_arrives_and_its_outcome_is_taken_once() {
        let mailboxes = ready();
        let (parent, child) = (mailboxes.parent(0), mailboxes.child(0));
        parent.post_task(0, &IDENTITY, &scalars(&[1, 2, 3])).unwrap();
        assert!(!parent.accepted(0, IDENTITY.generation));
        let Some(Request::Task(0, Ok(task))) = child.next([false; 2]) else { panic!("no task") };
        assert!(parent.accepted(0, IDENTITY.generation));
        assert_eq!((task.callable, task.args.scalars), ([7; 32], vec![1, 2, 3]));
        assert!(!parent.task_is_done(0));
        child.finish_task(0, Err(&failure(-9, "fatal")));
        assert!(parent.task_is_done(0));
        assert_eq!(parent.take_task(0), Some(Err(failure(-9, "fatal"))));
        assert_eq!(parent.take_task(0), None);
        assert!(child.next([false; 2]).is_none());
    }

    #[test]
    fn two_tasks_are_taken_in_the_order_of_their_dispatch_and_answered_in_any() {
        let mailboxes = ready();
        let (parent, child) = (mailboxes.parent(0), mailboxes.child(0));
        let second = TaskIdentity { dispatch_id: IDENTITY.dispatch_id + 1, run_id: 99, ..IDENTITY };
        // The frame of the second comes first in the mailbox.
        parent.post_task(0, &second, &scalars(&[2])).unwrap();
        parent.post_task(1, &IDENTITY, &scalars(&[1])).unwrap();
        let Some(Request::Task(1, Ok(task))) = child.next([false; 2]) else { panic!("no task") };
        assert_eq!((task.args.scalars, task.run_id, task.dispatch_id), (vec![1], 11, 12));
        let Some(Request::Task(0, Ok(task))) = child.next([false, true]) else { panic!("no task") };
        assert_eq!((task.args.scalars, task.run_id, task.dispatch_id), (vec![2], 99, 13));
        assert!(child.next([true; 2]).is_none());
        child.finish_task(0, Err(&failure(-2, "the second")));
        assert!(parent.task_is_done(0) && !parent.task_is_done(1));
        child.finish_task(1, Ok(()));
        assert_eq!(parent.take_task(1), Some(Ok(())));
        assert_eq!(parent.take_task(0), Some(Err(failure(-2, "the second"))));
        assert!(child.next([false; 2]).is_none());
    }

    #[test]
    fn control_is_served_after_the_tasks_that_were_dispatched_before_it() {
        let mailboxes = ready();
        let (parent, child) = (mailboxes.parent(0), mailboxes.child(0));
        parent.post_task(0, &IDENTITY, &scalars(&[])).unwrap();
        parent.post_control(&Control::Malloc { bytes: 1 });
        assert!(matches!(child.next([false; 2]), Some(Request::Task(0, Ok(_)))));
        assert!(matches!(child.next([true, false]), Some(Request::Control(Ok(_)))), "none but taken ones");
        child.finish_task(0, Ok(()));
        assert!(matches!(child.next([false; 2]), Some(Request::Control(Ok(_)))));
        child.finish_control(Ok(1));
        assert!(child.next([false; 2]).is_none());
    }

    #[test]
    fn shutdown_is_not_lost_to_a_control_request_in_progress() {
        let mailboxes = ready();
        let (parent, child) = (mailboxes.parent(0), mailboxes.child(0));
        parent.post_control(&Control::Malloc { bytes: 1 });
        assert!(matches!(child.next([false; 2]), Some(Request::Control(_))));
        parent.terminate();
        child.finish_control(Ok(1));
        assert!(matches!(child.next([false; 2]), Some(Request::Shutdown)));
        assert_eq!(parent.take_control(), Some(Ok(1)), "the answer is still there");
        assert!(matches!(child.next([false; 2]), Some(Request::Shutdown)), "for good");
    }

    #[test]
    fn shutdown_is_not_lost_to_bring_up_in_progress() {
        let mailboxes = Mailboxes::new(1).unwrap();
        let (parent, child) = (mailboxes.parent(0), mailboxes.child(0));
        parent.terminate();
        child.finish_init(Ok(1));
        assert_eq!(parent.take_init(), Some(Ok(1)));
        assert!(matches!(child.next([false; 2]), Some(Request::Shutdown)));
    }

    #[test]
    fn shutdown_goes_before_a_task_that_was_not_taken_up() {
        let mailboxes = ready();
        let (parent, child) = (mailboxes.parent(0), mailboxes.child(0));
        parent.post_task(0, &IDENTITY, &scalars(&[])).unwrap();
        parent.terminate();
        assert!(matches!(child.next([false; 2]), Some(Request::Shutdown)));
        assert!(!parent.accepted(0, IDENTITY.generation));
    }

    #[test]
    fn a_failure_without_a_code_is_still_a_failure() {
        let mailboxes = ready();
        let (parent, child) = (mailboxes.parent(0), mailboxes.child(0));
        parent.post_control(&Control::Free { device: 1 });
        child.finish_control(Err(&failure(0, "text")));
        assert_eq!(parent.take_control(), Some(Err(failure(-1, "text"))));
    }

    #[test]
    fn a_text_that_fits_is_whole_and_a_longer_one_ends_in_a_tilde() {
        let mailboxes = ready();
        let (parent, child) = (mailboxes.parent(0), mailboxes.child(0));
        for (text, expected) in [
            ("x".repeat(ERROR_TEXT_BYTES), "x".repeat(ERROR_TEXT_BYTES)),
            ("x".repeat(ERROR_TEXT_BYTES + 1), "x".repeat(ERROR_TEXT_BYTES - 1) + "~"),
            // The cut falls inside a two-byte character, which goes whole.
            ("é".repeat(ERROR_TEXT_BYTES), "é".repeat(ERROR_TEXT_BYTES / 2 - 1) + "~"),
        ] {
            parent.post_control(&Control::Free { device: 1 });
            child.finish_control(Err(&failure(1, &text)));
            assert_eq!(parent.take_control(), Some(Err(failure(1, &expected))));
        }
    }

    #[test]
    fn a_frame_of_another_protocol_or_opcode_is_refused_by_the_child() {
        let mailboxes = ready();
        let (parent, child) = (mailboxes.parent(0), mailboxes.child(0));
        parent.post_control(&Control::Free { device: 1 });
        mailboxes.mailbox(0).base.callable_or_opcode.store(99, Ordering::Relaxed);
        let Some(Request::Control(Err(refusal))) = child.next([false; 2]) else { panic!("accepted") };
        assert!(refusal.text.contains("opcode 99"), "{refusal:?}");
        let base = &mailboxes.mailbox(0).base;
        base.callable_or_opcode.store(Opcode::Register as u64, Ordering::Relaxed);
        base.arguments[3].store(CHUNK_BYTES as u64 + 1, Ordering::Relaxed);
        let Some(Request::Control(Err(refusal))) = child.next([false; 2]) else { panic!("accepted") };
        assert!(refusal.text.contains(&format!("at most {CHUNK_BYTES} fit")), "{refusal:?}");
        mailboxes.mailbox(0).base.protocol_version.store(2, Ordering::Relaxed);
        let Some(Request::Control(Err(refusal))) = child.next([false; 2]) else { panic!("accepted") };
        assert!(refusal.text.contains("protocol 2"), "{refusal:?}");
    }

    #[test]
    fn an_outcome_is_never_seen_without_its_text() {
        const ROUNDS: u64 = 20_000;
        // Looks without a pause, so as to see the state as early as it can be seen.
        const LOOKS: u32 = 1_000;
        let mailboxes = ready();
        let until = |done: &dyn Fn() -> bool| {
            while !(0..LOOKS).any(|_| done()) {
                std::thread::yield_now();
            }
        };
        let mut first_wrong = None;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let child = mailboxes.child(0);
                loop {
                    until(&|| child.next([false; 2]).is_some());
                    let Some(Request::Task(0, Ok(task))) = child.next([false; 2]) else { return };
                    let round = task.args.scalars[0];
                    let whole = task.args.scalars.iter().all(|scalar| *scalar == round);
                    child.finish_task(
                        0,
                        Err(&failure(round as i32, &format!("round {round}, whole: {whole}"))),
                    );
                }
            });
            let parent = mailboxes.parent(0);
            for round in 1..=ROUNDS {
                parent.post_task(0, &IDENTITY, &scalars(&[round; 100])).unwrap();
                until(&|| parent.task_is_done(0));
                let outcome = parent.take_task(0);
                if outcome != Some(Err(failure(round as i32, &format!("round {round}, whole: true")))) {
                    first_wrong = Some((round, outcome));
                    break;
                }
            }
            parent.terminate();
        });
        assert_eq!(first_wrong, None);
    }
}
