//! Wall time as people write it: RFC 3339, or Unix seconds, every nanosecond kept.

use std::fmt;
use std::str::FromStr;

const NS_PER_S: i128 = 1_000_000_000;

/// The days of 400 years, after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;

/// From the first of March of the year 0 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

/// A moment of Unix time. It may lie outside the years that a clock of 64 bits of ns can show.
///
/// ```
/// use simpler_trace_model::WallTime;
///
/// let time: WallTime = "2026-09-21T16:13:20.000000001+02:00".parse()?;
/// assert_eq!(time, "1790000000.000000001".parse()?);
/// assert_eq!(time.unix_ns, 1_790_000_000_000_000_001);
/// # Ok::<(), simpler_trace_model::NoWallTime>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime {
    /// ns since 1970-01-01T00:00:00Z.
    pub unix_ns: i128,
}

/// Why a text is no wall time, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoWallTime(String);

impl fmt::Display for NoWallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is no time: one is written as 2026-09-21T14:13:20.5Z, with an offset such as +02:00 instead of the Z, or \
             as Unix seconds, with at most nine digits behind the point",
            self.0
        )
    }
}

impl std::error::Error for NoWallTime {}

impl FromStr for WallTime {
    type Err = NoWallTime;

    fn from_str(text: &str) -> Result<WallTime, NoWallTime> {
        let unix_ns = date_and_time(text).or_else(|| unix_seconds(text));
        unix_ns.map(|unix_ns| WallTime { unix_ns }).ok_or_else(|| NoWallTime(text.to_owned()))
    }
}

/// `-?digits[.digits]`.
fn unix_seconds(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(a, b)| (a, Some(b)));
    let seconds = i128::from(i64::try_from(number(whole)?).ok()?);
    let ns = seconds * NS_PER_S + fraction.map_or(Some(0), fraction_ns)?;
    Some(if digits.len() < text.len() { -ns } else { ns })
}

/// `YYYY-MM-DDThh:mm:ss[.fraction]` and `Z` or an offset.
fn date_and_time(text: &str) -> Option<i128> {
    let (date, rest) = text.split_at_checked("YYYY-MM-DD".len())?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (time, rest) = rest.split_at_checked("hh:mm:ss".len())?;
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = fields(time, ':', [2, 2, 2])?;
    let zone_at = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (fraction, zone) = rest.split_at(zone_at);
    let fraction_ns = match fraction {
        "" => 0,
        _ => fraction_ns(fraction.strip_prefix('.')?)?,
    };
    let offset_s = match zone {
        "Z" | "z" => 0,
        _ => {
            let [hours, minutes] = fields(zone.strip_prefix(['+', '-'])?, ':', [2, 2])?;
            let offset = (hours * 60 + minutes) * 60;
            let within = hours < 24 && minutes < 60;
            within.then_some(if zone.starts_with('-') { -offset } else { offset })?
        }
    };
    // A minute may have a second 60.
    let legal = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second - offset_s;
    legal.then_some(i128::from(seconds) * NS_PER_S + fraction_ns)
}

/// Numbers of so many digits each, with a sign between.
fn fields<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(between);
    let mut values = [0; N];
    for (value, digits) in values.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits)?;
        *value = i64::try_from(number(part)?).ok()?;
    }
    parts.next().is_none().then_some(values)
}

/// Digits and nothing else.
fn number(text: &str) -> Option<u64> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// What stands behind the point of seconds: one to nine digits.
fn fraction_ns(digits: &str) -> Option<i128> {
    if digits.len() > 9 {
        return None;
    }
    let scale = 10_i128.pow(9 - digits.len() as u32);
    Some(i128::from(number(digits)?) * scale)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// From 1970-01-01 to a date of the Gregorian calendar. Years are taken to begin in March, so that the leap day is the
/// last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month_from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let before_year = 365 * year + year / 4 - year / 100;
    let before_month = (153 * month_from_march + 2) / 5;
    era * DAYS_PER_ERA + before_year + before_month + day - 1 - DAYS_TO_1970
}

/// Unix nanoseconds as `YYYY-MM-DDThh:mm:ss.nnnnnnnnnZ`. Digit by digit: every host span of a picture has one.
pub fn utc(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000);
    let fraction = ns.rem_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut text = *b"0000-00-00T00:00:00.000000000Z";
    for (value, place) in [
        (year, 0..4),
        (month, 5..7),
        (day, 8..10),
        (hour, 11..13),
        (minute, 14..16),
        (second, 17..19),
        (fraction, 20..29),
    ] {
        // No year of a clock that counts ns in 64 bits has more than four digits, or is negative.
        let mut value = value as u32;
        for digit in text[place].iter_mut().rev() {
            *digit = b'0' + (value % 10) as u8;
            value /= 10;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The date of a day counted from 1970-01-01; as [`days`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_1970;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_time_becomes_a_date() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_790_000_000, "2026-09-21T14:13:20.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.000000000Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), want);
        }
        assert_eq!(utc(1), "1970-01-01T00:00:00.000000001Z");
    }

    fn ns(text: &str) -> Option<i128> {
        text.parse::<WallTime>().ok().map(|time| time.unix_ns)
    }

    #[test]
    fn every_form_of_a_time_is_read_to_the_nanosecond() {
        const AT: i128 = 1_790_000_000 * NS_PER_S;
        for (text, want) in [
            ("2026-09-21T14:13:20Z", AT),
            ("2026-09-21t14:13:20z", AT),
            ("2026-09-21 14:13:20Z", AT),
            ("2026-09-21T14:13:20.000000001Z", AT + 1),
            ("2026-09-21T14:13:20.5Z", AT + NS_PER_S / 2),
            ("2026-09-21T16:43:20.123456789+02:30", AT + 123_456_789),
            ("2026-09-20T14:13:20-24:00", 0),
            ("2026-09-21T13:13:20-01:00", AT),
            ("1790000000", AT),
            ("1790000000.000000001", AT + 1),
            ("1790000000.9", AT + 900_000_000),
            ("0", 0),
            ("-1.5", -1_500_000_000),
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59.999999999Z", -1),
            ("2016-12-31T23:59:60Z", 1_483_228_800 * NS_PER_S),
            ("2000-02-29T00:00:00Z", 951_782_400 * NS_PER_S),
            ("2100-03-01T00:00:00Z", 4_107_542_400 * NS_PER_S),
            ("9999-12-31T23:59:59Z", 253_402_300_799 * NS_PER_S),
            ("0000-01-01T00:00:00Z", -62_167_219_200 * NS_PER_S),
            ("9223372036854775807.999999999", (1 << 63) * NS_PER_S - 1),
        ] {
            let want = (text != "2026-09-20T14:13:20-24:00").then_some(want);
            assert_eq!(ns(text), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "-",
            "now",
            "1790000000.",
            ".5",
            "+5",
            "1e9",
            "1790000000.0000000001",
            "9223372036854775808",
            "99999999999999999999999999",
            " 5",
            "2026-09-21",
            "2026-09-21T14:13:20",
            "2026-09-21T14:13:20.Z",
            "2026-09-21T14:13:20.1234567890Z",
            "2026-09-21T14:13:20.1.2Z",
            "2026-09-21T14:13:20+2:00",
            "2026-09-21T14:13:20+02:60",
            "2026-09-21T14:13:20Z ",
            "2026-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-09-21T24:00:00Z",
            "2026-09-21T14:60:00Z",
            "2026-09-21T14:13:61Z",
            "2026-9-21T14:13:20Z",
            "+026-09-21T14:13:20Z",
            "２026-09-21T14:13:20Z",
            "2026-09-21T14:13:20٣Z",
        ] {
            assert_eq!(ns(text), None, "{text}");
        }
        let said = "soon".parse::<WallTime>().unwrap_err().to_string();
        assert!(said.starts_with("soon is no time: "), "{said}");
    }

    #[test]
    fn a_time_that_is_printed_is_read_back() {
        for at in [i64::MIN, -1, 0, 1, 1_790_000_000_123_456_789, i64::MAX] {
            assert_eq!(ns(&utc(at)), Some(i128::from(at)));
        }
    }
}
