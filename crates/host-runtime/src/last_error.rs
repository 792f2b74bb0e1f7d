//! What the latest failure on a thread said.
//!
//! Kept in memory of the thread, without a destructor and of a fixed size: to fail allocates nothing, and no thread
//! reads another one's text.

use std::cell::Cell;

/// Longest text that is kept: a sentence with a path and a linker's words. A longer one is cut and ends in `~`.
pub(crate) const TEXT_BYTES: usize = 1023;

#[derive(Clone, Copy)]
struct LastError {
    /// The context's number; 0: of none.
    context: u64,
    bytes: usize,
    text: [u8; TEXT_BYTES],
}

std::thread_local! {
    /// FORK: the forking thread's text goes on in the child.
    static LAST_ERROR: Cell<LastError> = const { Cell::new(LastError { context: 0, bytes: 0, text: [0; TEXT_BYTES] }) };
}

/// Keeps `text` as what the latest failure with the context of number `context` said.
pub(crate) fn remember(context: u64, text: &str) {
    let mut kept = LastError { context, bytes: text.len(), text: [0; TEXT_BYTES] };
    if text.len() > TEXT_BYTES {
        let end = text.floor_char_boundary(TEXT_BYTES - 1);
        kept.text[..end].copy_from_slice(&text.as_bytes()[..end]);
        kept.text[end] = b'~';
        kept.bytes = end + 1;
    } else {
        kept.text[..text.len()].copy_from_slice(text.as_bytes());
    }
    LAST_ERROR.set(kept);
}

/// Gives the bytes of the text to `read`, if it is of that context, or, for None, of any; empty otherwise.
pub(crate) fn with<T>(context: Option<u64>, read: impl FnOnce(&[u8]) -> T) -> T {
    let kept = LAST_ERROR.get();
    let is_asked_for = context.is_none_or(|context| context == kept.context);
    read(if is_asked_for { &kept.text[..kept.bytes] } else { &[] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_contexts_and_the_threads() {
        assert_eq!(with(None, <[u8]>::len), 0);
        remember(7, "seven");
        assert_eq!(with(Some(7), <[u8]>::to_vec), b"seven");
        assert_eq!(with(Some(8), <[u8]>::to_vec), b"");
        assert_eq!(with(None, <[u8]>::to_vec), b"seven");
        remember(8, "eight");
        assert_eq!(with(Some(7), <[u8]>::to_vec), b"", "one text a thread");
        let elsewhere = std::thread::spawn(|| with(None, <[u8]>::len)).join().unwrap();
        assert_eq!(elsewhere, 0);
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_at_a_character() {
        remember(1, &"x".repeat(TEXT_BYTES));
        assert!(with(None, |text| text.len() == TEXT_BYTES && text.ends_with(b"x")));
        remember(1, &"ö".repeat(TEXT_BYTES));
        with(None, |text| {
            let text = std::str::from_utf8(text).unwrap();
            assert!(text.len() <= TEXT_BYTES && text.ends_with("ö~"));
        });
    }
}
