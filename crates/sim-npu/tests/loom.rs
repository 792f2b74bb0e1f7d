//! Every schedule of the board: a core is advanced by one thread at a time, and no ring is lost.
#![cfg(loom)]

// The board is the crate's own business; the model compiles the same file, not a copy.
#[allow(dead_code, reason = "the model uses a part of the board")]
#[path = "../src/board.rs"]
mod board;
#[allow(unused_imports, reason = "the chip uses more of it")]
#[path = "../src/sync.rs"]
mod sync;

use board::{Board, Lane};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

struct Chip {
    board: Board,
    registers: Vec<AtomicU64>,
    /// What each core has executed last: plain memory, so that two threads in one core are a reported race.
    executed: Vec<UnsafeCell<u64>>,
}

fn chip(cores: usize) -> Arc<Chip> {
    Arc::new(Chip {
        board: Board::new(cores),
        registers: (0..cores).map(|_| AtomicU64::new(0)).collect(),
        executed: (0..cores).map(|_| UnsafeCell::new(0)).collect(),
    })
}

impl Chip {
    fn write(&self, core: usize, value: u64) {
        // Relaxed on purpose: the board alone must show it to the claimant that answers this ring.
        self.registers[core].store(value, Ordering::Relaxed);
        self.board.ring(core, Lane::Shared);
    }

    /// What a core thread does before it waits.
    fn advance_all(&self, from: usize) {
        while let Some(claim) = self.board.claim(Lane::Shared, from) {
            let mut claim = Some(claim);
            while let Some(held) = claim {
                let core = held.core();
                let value = self.registers[core].load(Ordering::Relaxed);
                // SAFETY: what is being tested: the claimant is alone.
                self.executed[core].with_mut(|executed| unsafe { *executed = value });
                claim = held.settle();
            }
        }
    }

    fn executed(&self, core: usize) -> u64 {
        // SAFETY: called when all other threads have been joined, or, as is being tested, the board is quiet.
        self.executed[core].with(|executed| unsafe { *executed })
    }
}

#[test]
fn a_core_rung_while_it_runs_is_looked_at_again_by_nobody_else() {
    loom::model(|| {
        let chip = chip(1);
        let workers: Vec<_> = (0..2)
            .map(|from| {
                let chip = chip.clone();
                thread::spawn(move || chip.advance_all(from))
            })
            .collect();
        chip.write(0, 1);
        chip.write(0, 2);
        for worker in workers {
            worker.join().unwrap();
        }
        // What a ring's bell would have woken.
        chip.advance_all(0);
        assert_eq!(chip.executed(0), 2);
        assert!(chip.board.is_quiet());
    });
}

#[test]
fn two_cores_rung_by_two_threads_are_both_advanced() {
    loom::model(|| {
        let chip = chip(2);
        let writer = thread::spawn({
            let chip = chip.clone();
            move || chip.write(1, 7)
        });
        let worker = thread::spawn({
            let chip = chip.clone();
            move || chip.advance_all(1)
        });
        chip.write(0, 5);
        writer.join().unwrap();
        worker.join().unwrap();
        chip.advance_all(0);
        assert_eq!((chip.executed(0), chip.executed(1)), (5, 7));
        assert!(chip.board.is_quiet());
    });
}

#[test]
fn a_quiet_board_shows_what_the_cores_did() {
    loom::model(|| {
        let chip = chip(1);
        chip.write(0, 3);
        let worker = thread::spawn({
            let chip = chip.clone();
            move || chip.advance_all(0)
        });
        while !chip.board.is_quiet() {
            thread::yield_now();
        }
        assert_eq!(chip.executed(0), 3);
        worker.join().unwrap();
    });
}
