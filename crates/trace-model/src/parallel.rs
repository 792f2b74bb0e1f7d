//! One computation over several pieces at once, for those that a large log makes long.
//!
//! Pieces are cut by whoever computes, and what they give comes back in their order, so the number of threads makes no
//! difference to a result.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Threads beyond these would wait for memory: what is computed here is mostly looking things up.
const THREADS_MAX: usize = 8;

/// Into how many pieces to cut `items` that are not worth a thread unless there are `piece_min` of them.
pub(crate) fn pieces(items: usize, piece_min: usize) -> usize {
    // To ask how many processors there are is a system call or more.
    match items / piece_min {
        0 | 1 => 1,
        worth => worth.min(thread::available_parallelism().map_or(1, NonZeroUsize::get)).min(THREADS_MAX),
    }
}

/// What `work` makes of each piece, in their order; on as many threads as there are pieces, this one among them.
pub(crate) fn each<P: Send, R: Send>(pieces: Vec<P>, work: impl Fn(P) -> R + Sync) -> Vec<R> {
    let threads = pieces.len();
    let done = Mutex::new(Vec::with_capacity(threads));
    let left = Mutex::new(pieces.into_iter().enumerate());
    let take = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((number, piece)) = take() {
            let result = work(piece);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // A thread that cannot be had is one fewer; this one does it all if need be.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|&(number, _)| number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_their_pieces() {
        let pieces: Vec<u64> = (0..100).collect();
        assert_eq!(
            each(pieces.clone(), |piece| piece * 2),
            pieces.iter().map(|piece| piece * 2).collect::<Vec<_>>()
        );
        assert!(each(Vec::<u64>::new(), |piece| piece).is_empty());
    }

    #[test]
    fn few_items_are_one_piece() {
        assert_eq!([0, 1, 99, 199].map(|items| pieces(items, 100)), [1; 4]);
        assert!(pieces(100_000, 100) <= THREADS_MAX);
    }
}
