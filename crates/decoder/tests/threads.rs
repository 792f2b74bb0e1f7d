//! Loading and tokenizing start no thread: the process may fork next. A file of its own, since it counts the
//! threads of the process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod smollm2;

use simpler_decoder::Model;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn loading_and_tokenizing_start_no_thread() {
    let before = threads();
    let mut models = vec![Model::tiny().unwrap()];
    models.extend(smollm2::model());
    for model in models {
        let text = "Some text, long enough to be worth splitting. ".repeat(200);
        assert!(!model.tokenizer.encode(&text, true).unwrap().is_empty());
        if model.chat_template.is_some() {
            model.chat_prompt(&text).unwrap();
        }
        assert_eq!(threads(), before);
    }
}
