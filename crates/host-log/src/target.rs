//! The target of a foreign record, as the name in front of its text.
//!
//! `log` and `tracing` do not know the function that a record comes from. What their users filter and search
//! by is the *target*: the path of the module, unless the program names another. So the target stands where
//! the function would, with `::` as a full stop, since a colon ends that field: `my_app::net` is `my_app.net`.

/// As much of a target as is shown. A path has its telling part at its end, so a longer one loses its head.
const TARGET_BYTES: usize = 64;

/// What stands for the head of a target that is too long.
const CUT: u8 = b'~';

/// A target as it is written, in place.
pub(crate) struct Func {
    bytes: [u8; TARGET_BYTES],
    length: usize,
}

impl Func {
    pub(crate) fn of(target: &str) -> Func {
        let mut func = Func { bytes: [0; TARGET_BYTES], length: 0 };
        let written = target.len() - target.matches("::").count();
        let start = if written <= TARGET_BYTES {
            0
        } else {
            func.push(CUT);
            // Counted in the target as given, in which what remains is not shorter than as written.
            let start = target.len() - (TARGET_BYTES - 1);
            (start..target.len()).find(|&at| target.is_char_boundary(at)).unwrap_or(target.len())
        };
        let mut rest = target[start..].split("::");
        for &byte in rest.next().unwrap_or_default().as_bytes() {
            func.push(byte);
        }
        for segment in rest {
            func.push(b'.');
            for &byte in segment.as_bytes() {
                func.push(byte);
            }
        }
        func
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    pub(crate) fn as_str(&self) -> &str {
        // Whole characters of a text, and ASCII between them.
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_path_is_dotted() {
        assert_eq!(Func::of("my_app::net::http").as_str(), "my_app.net.http");
        assert_eq!(Func::of("audit").as_str(), "audit");
        assert_eq!(Func::of("").as_str(), "");
    }

    #[test]
    fn a_long_target_keeps_its_end_and_whole_characters() {
        let exact = "x".repeat(TARGET_BYTES);
        assert_eq!(Func::of(&exact).as_str(), exact);
        let dotted = format!("{}::{}", "x".repeat(31), "y".repeat(32));
        assert_eq!(Func::of(&dotted).as_str(), dotted.replace("::", "."));
        let long = format!("{}::leaf", "x".repeat(TARGET_BYTES));
        let shown = Func::of(&long);
        assert!(shown.as_str().starts_with("~x") && shown.as_str().ends_with("x.leaf"), "{}", shown.as_str());
        let wide = "\u{20ac}".repeat(30);
        let shown = Func::of(&wide);
        assert_eq!(shown.as_str(), format!("~{}", "\u{20ac}".repeat(21)));
    }
}
