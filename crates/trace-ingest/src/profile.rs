//! When a profile of something else was taken: the window of a Chrome trace.
//!
//! A serving framework's profile says in its own events when it began and ended. It is read event by event, and nothing
//! of it is held but the window, so its size does not matter. Its times are taken for what Chrome traces of processes on
//! this host hold: microseconds of `CLOCK_MONOTONIC`. They are decimal text, so no nanosecond is lost.

use crate::source::open_unpacked;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::io::{self, BufReader};
use std::ops::Range;
use std::path::Path;

/// Why a profile has no window; a sentence with its name.
#[derive(Debug)]
pub struct ProfileError {
    source: String,
    kind: ProfileErrorKind,
}

#[derive(Debug)]
enum ProfileErrorKind {
    Open(io::Error),
    Broken(serde_json::Error),
    NoEvents,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = &self.source;
        match &self.kind {
            ProfileErrorKind::Open(error) => write!(f, "cannot read {source}: {error}"),
            ProfileErrorKind::Broken(error) => write!(f, "{source} is no whole Chrome trace: {error}"),
            ProfileErrorKind::NoEvents => {
                write!(f, "{source} is a Chrome trace without an event that has a time")
            }
        }
    }
}

impl std::error::Error for ProfileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ProfileErrorKind::Open(error) => Some(error),
            ProfileErrorKind::Broken(error) => Some(error),
            ProfileErrorKind::NoEvents => None,
        }
    }
}

/// From the least `ts` to the greatest `ts + dur` of a Chrome trace's events, in ns, those that name something (`M`) and
/// those without a `ts` left out. The trace is an object with `traceEvents` or their bare array; gz and zst are unpacked.
///
/// # Errors
/// If it cannot be opened or is no such JSON to its end, or no event has a time.
pub fn profile_window(path: &Path) -> Result<Range<i64>, ProfileError> {
    let error = |kind| ProfileError { source: path.display().to_string(), kind };
    let stream = open_unpacked(path).map_err(|why| error(ProfileErrorKind::Open(why)))?;
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(BUFFER_BYTES, stream));
    let document = Document::deserialize(&mut json);
    let window = document.and_then(|window| json.end().map(|()| window.0));
    let window = window.map_err(|why| error(ProfileErrorKind::Broken(why)))?;
    window.ok_or_else(|| error(ProfileErrorKind::NoEvents))
}

const BUFFER_BYTES: usize = 128 * 1024;

/// The window of the events so far.
#[derive(Default)]
struct Window(Option<Range<i64>>);

impl Window {
    fn add(&mut self, event: &Event) {
        let Some(ts) = event.ts_ns.filter(|_| !event.is_metadata) else { return };
        let end = ts.saturating_add(event.dur_ns.unwrap_or(0).max(0));
        self.0 = Some(match self.0.take() {
            None => ts..end,
            Some(held) => held.start.min(ts)..held.end.max(end),
        });
    }
}

/// The whole trace, in either form.
struct Document(Option<Range<i64>>);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Document, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with traceEvents, or an array of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, events: A) -> Result<Document, A::Error> {
                Ok(Document(window_of(events)?.0))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
                let mut window = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key == "traceEvents" {
                        window = Some(map.next_value::<Events>()?.0.0);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                window.map(Document).ok_or_else(|| A::Error::missing_field("traceEvents"))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// The value of `traceEvents`.
struct Events(Window);

impl<'de> Deserialize<'de> for Events {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Events, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Events;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, events: A) -> Result<Events, A::Error> {
                window_of(events).map(Events)
            }
        }
        deserializer.deserialize_seq(Each)
    }
}

fn window_of<'de, A: SeqAccess<'de>>(mut events: A) -> Result<Window, A::Error> {
    let mut window = Window::default();
    while let Some(event) = events.next_element::<Event>()? {
        window.add(&event);
    }
    Ok(window)
}

/// What of an event says when it was.
#[derive(Default)]
struct Event {
    is_metadata: bool,
    ts_ns: Option<i64>,
    dur_ns: Option<i64>,
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Event, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Event;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
                let mut event = Event::default();
                while let Some(key) = map.next_key::<Key>()? {
                    match key {
                        Key::Ph => event.is_metadata = map.next_value::<Box<RawValue>>()?.get() == "\"M\"",
                        Key::Ts => event.ts_ns = us_to_ns(map.next_value::<Box<RawValue>>()?.get()),
                        Key::Dur => event.dur_ns = us_to_ns(map.next_value::<Box<RawValue>>()?.get()),
                        Key::Other => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(event)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

enum Key {
    Ph,
    Ts,
    Dur,
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        struct Word;
        impl Visitor<'_> for Word {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                Ok(match key {
                    "ph" => Key::Ph,
                    "ts" => Key::Ts,
                    "dur" => Key::Dur,
                    _ => Key::Other,
                })
            }
        }
        deserializer.deserialize_str(Word)
    }
}

/// A JSON number of microseconds as ns, cut to whole ones and kept within `i64`; `None` for what is no number.
fn us_to_ns(json: &str) -> Option<i64> {
    let unsigned = json.strip_prefix('-').unwrap_or(json);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    // An exponent beyond 64 bits makes nothing or the limit, as one of 64 bits does.
    let far = if exponent.starts_with('-') { i64::MIN } else { i64::MAX };
    let exponent: i64 = exponent.parse().unwrap_or(far);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let point = (whole.len() as i64).saturating_add(exponent).saturating_add(3);
    let mut digits = 0_i64;
    let mut ns = 0_i128;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if digits >= point {
            break;
        }
        ns = ns.saturating_mul(10).saturating_add((digit - b'0').into());
        digits += 1;
    }
    // At the latest after 39 of these the limit is reached.
    while digits < point && ns != 0 && ns != i128::MAX {
        ns = ns.saturating_mul(10);
        digits += 1;
    }
    let ns = if unsigned.len() < json.len() { -ns } else { ns };
    Some(i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_keep_every_nanosecond_and_stay_within_the_clock() {
        for (json, want) in [
            ("0", Some(0)),
            ("12", Some(12_000)),
            ("9007199254740993.123", Some(9_007_199_254_740_993_123)),
            ("0.0019", Some(1)),
            ("-1.5", Some(-1_500)),
            ("1.5e3", Some(1_500_000)),
            ("1.25E+2", Some(125_000)),
            ("15e-1", Some(1_500)),
            ("1e-99999999999999999999", Some(0)),
            ("1e99999999999999999999", Some(i64::MAX)),
            ("-1e40", Some(i64::MIN)),
            ("0e99999999999999999999", Some(0)),
            ("99999999999999999999999999999999999999999999999999", Some(i64::MAX)),
            ("null", None),
            ("\"12\"", None),
            ("[1]", None),
        ] {
            assert_eq!(us_to_ns(json), want, "{json}");
        }
    }
}
