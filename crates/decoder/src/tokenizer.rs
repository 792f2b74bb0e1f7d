//! Text to token ids and back: byte-level BPE over a model's own vocabulary and merges.
//!
//! The merging is the `tokenizers` crate's. What is added here is the step around it: pieces are cut as
//! SmolLM's models were trained (each `\p{N}` alone, then GPT-2's pattern), special tokens are found in the
//! text only where the caller asks for it, and ids decode to bytes, since a token may end inside a character.
//! Nothing starts a thread: the process that tokenizes may be about to fork.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;

use crate::Error;
use crate::gguf::{Gguf, Value};

/// Most tokens of a vocabulary: the largest published ones have a quarter of this.
pub const VOCABULARY_MAX: usize = 1 << 20;
/// Longest text that is tokenized at a time; far beyond any context, and it bounds the time spent.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
/// `tokenizer.ggml.token_type` of tokens that stand for no text.
const CONTROL: i64 = 3;
/// `tokenizer.ggml.token_type` of added tokens, which are matched whole like control tokens but are text.
const USER_DEFINED: i64 = 4;

/// A byte-level BPE tokenizer.
pub struct Tokenizer {
    pieces: tokenizers::Tokenizer,
    /// What each token decodes to.
    bytes: Vec<Box<[u8]>>,
    /// Finds all special tokens in one pass over a text, however many there are of either.
    specials: AhoCorasick,
    /// The id of each pattern of `specials`.
    special_ids: Vec<u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("tokens", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The tokenizer of a file.
    ///
    /// # Errors
    /// If its kind is not byte-level BPE with SmolLM's pieces, or its vocabulary and merges disagree.
    pub fn from_gguf(file: &Gguf<'_>) -> Result<Self, Error> {
        let expect = |key: &str, supported: &str| match file.text(key) {
            Some(value) if value == supported => Ok(()),
            Some(value) => Err(Error::tokenizer(format!("{key} is {value:?}; {supported:?} is supported"))),
            None => Err(Error::tokenizer(format!("the file has no {key}"))),
        };
        expect("tokenizer.ggml.model", "gpt2")?;
        expect("tokenizer.ggml.pre", "smollm")?;
        for key in ["tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix"] {
            if file.get(key) == Some(&Value::Bool(true)) {
                return Err(Error::tokenizer(format!("{key} is set, which is not supported")));
            }
        }
        let texts = |key: &str| match file.get(key) {
            Some(Value::Texts(texts)) => Ok(texts.as_slice()),
            _ => Err(Error::tokenizer(format!("the file has no strings under {key}"))),
        };
        let tokens = texts("tokenizer.ggml.tokens")?;
        let merges = texts("tokenizer.ggml.merges")?
            .iter()
            .map(|merge| {
                merge.split_once(' ').ok_or_else(|| {
                    Error::tokenizer(format!("the merge {merge:?} is not two tokens with a space between"))
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let kinds = match file.get("tokenizer.ggml.token_type") {
            Some(Value::Integers(kinds)) if kinds.len() == tokens.len() => kinds.clone(),
            Some(_) => return Err(Error::tokenizer("token types and tokens differ in number")),
            None => vec![1; tokens.len()],
        };
        Self::new(tokens, &merges, &kinds)
    }

    /// A tokenizer over a vocabulary in GPT-2's alphabet, its merges in order of rank, and GGUF's token types.
    pub(crate) fn new(tokens: &[&str], merges: &[(&str, &str)], kinds: &[i64]) -> Result<Self, Error> {
        if tokens.is_empty() || tokens.len() > VOCABULARY_MAX {
            return Err(Error::tokenizer(format!(
                "{} tokens; 1 to {VOCABULARY_MAX} are supported",
                tokens.len()
            )));
        }
        let mut vocabulary = Vocab::with_capacity(tokens.len());
        for (id, token) in (0u32..).zip(tokens) {
            if vocabulary.insert((*token).to_owned(), id).is_some() {
                return Err(Error::tokenizer(format!("the token {token:?} occurs twice")));
            }
        }
        for (left, right) in merges {
            let whole = format!("{left}{right}");
            if let Some(missing) =
                [left, right, &whole.as_str()].into_iter().find(|t| !vocabulary.contains_key(**t))
            {
                return Err(Error::tokenizer(format!(
                    "the merge of {left:?} and {right:?} needs the token {missing:?}"
                )));
            }
        }
        let (special_ids, special_texts): (Vec<u32>, Vec<&str>) = (0u32..)
            .zip(tokens.iter().zip(kinds))
            .filter(|(_, (token, kind))| matches!(**kind, CONTROL | USER_DEFINED) && !token.is_empty())
            .map(|(id, (token, _))| (id, *token))
            .unzip();
        // Of the tokens that begin at the same place the longest is meant.
        let specials = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(special_texts)
            .map_err(|error| Error::tokenizer(error.to_string()))?;
        let alphabet = alphabet();
        let bytes = tokens
            .iter()
            .zip(kinds)
            .map(|(token, kind)| match *kind {
                CONTROL => Box::default(),
                USER_DEFINED => token.as_bytes().into(),
                // A character outside the alphabet stands for itself.
                _ => token
                    .chars()
                    .flat_map(|c| match alphabet.get(&c) {
                        Some(byte) => vec![*byte],
                        None => c.to_string().into_bytes(),
                    })
                    .collect(),
            })
            .collect();
        let merges = merges.iter().map(|(left, right)| ((*left).to_owned(), (*right).to_owned())).collect();
        let model = BPE::builder()
            .vocab_and_merges(vocabulary, merges)
            .cache_capacity(0)
            .build()
            .map_err(|error| Error::tokenizer(error.to_string()))?;
        let mut pieces = tokenizers::Tokenizer::new(model);
        pieces.with_pre_tokenizer(Some(Sequence::new(vec![
            Digits::new(true).into(),
            ByteLevel::new(false, false, true).into(),
        ])));
        Ok(Self { pieces, bytes, specials, special_ids })
    }

    /// Number of tokens.
    pub fn vocabulary(&self) -> usize {
        self.bytes.len()
    }

    /// The ids of a text. Special tokens such as `<|im_start|>` are recognised in it only if `parse_special`;
    /// otherwise they are text like any other. A byte that no token holds is left out, as other tokenizers of
    /// such models do: SmolLM2's vocabulary lacks six control characters and the planes that Unicode leaves empty.
    ///
    /// # Errors
    /// If the text is longer than [`TEXT_BYTES_MAX`].
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, Error> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::tokenizer(format!("a text of more than {TEXT_BYTES_MAX} bytes")));
        }
        let mut ids = Vec::new();
        let mut plain_from = 0;
        if parse_special {
            for found in self.specials.find_iter(text) {
                self.encode_plain(&text[plain_from..found.start()], &mut ids)?;
                ids.push(self.special_ids[found.pattern()]);
                plain_from = found.end();
            }
        }
        self.encode_plain(&text[plain_from..], &mut ids)?;
        Ok(ids)
    }

    /// The bytes of a sequence of tokens; tokens that stand for no text, and unknown ids, yield none.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter()
            .filter_map(|id| self.bytes.get(*id as usize))
            .flat_map(|bytes| bytes.iter().copied())
            .collect()
    }

    fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), Error> {
        if text.is_empty() {
            return Ok(());
        }
        let encoding =
            self.pieces.encode_fast(text, false).map_err(|error| Error::tokenizer(error.to_string()))?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }
}

/// GPT-2's alphabet: the character that stands for each byte. Printable bytes stand for themselves, the
/// others are moved behind U+0100 in order.
pub(crate) fn byte_characters() -> [char; 256] {
    let mut characters = ['\0'; 256];
    let mut moved = 0x100;
    for (byte, character) in (0u8..=255).zip(characters.iter_mut()) {
        *character = match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            _ => {
                moved += 1;
                char::from_u32(moved - 1).expect("U+0100 to U+0143 are characters")
            }
        };
    }
    characters
}

fn alphabet() -> HashMap<char, u8> {
    byte_characters().into_iter().zip(0u8..=255).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// A tokenizer of single bytes and the special tokens `specials`, which have the ids from 256 on.
    fn with_specials(specials: &[&str]) -> Tokenizer {
        let bytes: Vec<String> = byte_characters().iter().map(char::to_string).collect();
        let tokens: Vec<&str> = bytes.iter().map(String::as_str).chain(specials.iter().copied()).collect();
        let kinds: Vec<i64> = (0..tokens.len()).map(|id| if id < 256 { 1 } else { CONTROL }).collect();
        Tokenizer::new(&tokens, &[], &kinds).unwrap()
    }

    #[test]
    fn the_first_special_token_goes_first_and_of_those_that_begin_together_the_longest() {
        let tokenizer = with_specials(&["<a>", "<a><b>", "<b>c", "a>"]);
        let ids = |text| tokenizer.encode(text, true).unwrap();
        assert_eq!(ids("x<a>y"), [u32::from(b'x'), 256, u32::from(b'y')]);
        assert_eq!(ids("<a><b>c"), [257, u32::from(b'c')]);
        assert_eq!(ids("<a><a><b>"), [256, 257]);
        assert_eq!(ids("<b>ca>"), [258, 259]);
        assert_eq!(tokenizer.encode("a>", false).unwrap(), [u32::from(b'a'), u32::from(b'>')]);
    }

    #[test]
    fn a_text_of_special_tokens_takes_time_in_proportion_to_its_length() {
        let names: Vec<String> = (0..64).map(|n| format!("<|special_{n}|>")).collect();
        let specials: Vec<&str> = names.iter().map(String::as_str).collect();
        let tokenizer = with_specials(&specials);
        let count = (1 << 20) / specials[7].len();
        let text = specials[7].repeat(count);
        let start = Instant::now();
        let ids = tokenizer.encode(&text, true).unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!(ids, vec![256 + 7; count]);
    }
}
