//! Any bytes make a model or an error.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod gguf_file;

use gguf_file::model_file;
use proptest::prelude::*;
use simpler_decoder::Model;
use simpler_decoder::gguf::Gguf;

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Gguf::parse(&bytes);
        let file = [b"GGUF\x03\0\0\0".as_slice(), &bytes].concat();
        let _ = Gguf::parse(&file);
    }

    #[test]
    fn a_damaged_file_is_parsed_or_refused(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut bytes = model_file().bytes();
        // Metadata and tensor entries are the first part of the file; weights may be anything anyway.
        let structured = bytes.len() / 5;
        for (place, value) in damage {
            bytes[place.index(structured)] = value;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(model) = Model::from_gguf_bytes(&bytes) {
            let text = "he said he, 12 times";
            let _ = model.tokenizer.encode(text, true);
            let _ = model.chat_prompt(text);
        }
    }

    #[test]
    fn tiny_gives_any_text_back(text in any::<String>()) {
        thread_local!(static MODEL: Model = Model::tiny().unwrap());
        MODEL.with(|model| {
            let ids = model.tokenizer.encode(&text, true).unwrap();
            prop_assert_eq!(model.tokenizer.decode(&ids), text.as_bytes());
            Ok(())
        })?;
    }
}
