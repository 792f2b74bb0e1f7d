//! Every schedule of the mailbox's turns: no word is touched by both sides at once, no shutdown is lost.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use simpler_relax::{EventCount, Relax};
use simpler_worker::turn::{State, Sticky, Turn};

/// A frame with one word of the parent and one of the child.
struct Frame {
    turn: Turn,
    shutdown: Sticky,
    request: UnsafeCell<u64>,
    answer: UnsafeCell<u64>,
    bell: EventCount,
}

// SAFETY: who may touch the cells is what the models check.
unsafe impl Sync for Frame {}

fn frame() -> Arc<Frame> {
    Arc::new(Frame {
        turn: Turn::new(),
        shutdown: Sticky::new(),
        request: UnsafeCell::new(0),
        answer: UnsafeCell::new(0),
        bell: EventCount::new(),
    })
}

impl Frame {
    fn must_leave(&self) -> bool {
        self.shutdown.is_set() || self.turn.is(State::Shutdown)
    }

    fn terminate(&self) {
        self.shutdown.set();
        self.turn.end_if_idle();
        self.bell.notify_one();
    }
}

#[test]
fn each_side_touches_the_frame_in_its_turn_only() {
    loom::model(|| {
        let frame = frame();
        let child = thread::spawn({
            let frame = frame.clone();
            move || {
                for _ in 0..2 {
                    while !frame.turn.is(State::TaskReady) {
                        thread::yield_now();
                    }
                    // SAFETY: loom reports an access that is not exclusive.
                    let request = frame.request.with(|word| unsafe { *word });
                    // SAFETY: as above.
                    frame.answer.with_mut(|word| unsafe { *word = request + 1 });
                    frame.turn.hand_over(State::TaskDone);
                }
            }
        });
        for round in [10, 20] {
            // SAFETY: as above.
            frame.request.with_mut(|word| unsafe { *word = round });
            frame.turn.hand_over(State::TaskReady);
            while !frame.turn.is(State::TaskDone) {
                thread::yield_now();
            }
            // SAFETY: as above.
            assert_eq!(frame.answer.with(|word| unsafe { *word }), round + 1);
            frame.turn.hand_over(State::Idle);
        }
        child.join().unwrap();
    });
}

#[test]
fn a_shutdown_during_the_childs_turn_is_not_overwritten() {
    for (during, after) in [(State::ControlRequest, State::ControlDone), (State::Idle, State::InitReady)] {
        loom::model(move || {
            let frame = frame();
            frame.turn.hand_over(during);
            let child = thread::spawn({
                let frame = frame.clone();
                move || {
                    frame.turn.hand_over(after);
                    frame.must_leave()
                }
            });
            frame.terminate();
            let seen_at_once = child.join().unwrap();
            // The parent may still collect the answer, and gives the frame back to itself.
            if frame.turn.is(after) {
                frame.turn.hand_over(State::Idle);
            }
            assert!(frame.must_leave(), "seen at once: {seen_at_once}");
        });
    }
}

#[test]
fn a_waiting_child_is_woken_to_leave() {
    loom::model(|| {
        let frame = frame();
        let child = thread::spawn({
            let frame = frame.clone();
            move || {
                let mut relax = Relax::new();
                loop {
                    let seen = frame.bell.epoch();
                    if frame.must_leave() {
                        return;
                    }
                    relax.wait(&frame.bell, seen);
                }
            }
        });
        frame.terminate();
        child.join().unwrap();
    });
}
