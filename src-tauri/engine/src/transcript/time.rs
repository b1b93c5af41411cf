//! Times an agent prints, checked before they are believed.

use crate::model::Timestamp;

/// How far from now a time may lie that an agent names: limits are by the hour, the week or the month.
const FUTURE_MILLIS: i64 = 32 * 24 * 60 * 60 * 1000;
const PAST_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// A moment printed as a number of seconds or milliseconds since 1970, if it lies within a month of `now`.
///
/// The unit is told from the size. What is implausible is dropped: a wrong unit once read as "retry in 56 years".
pub(crate) fn plausible_epoch(number: f64, now: Timestamp) -> Option<Timestamp> {
    if !number.is_finite() || number <= 0.0 {
        return None;
    }
    let millis = if number < 1e11 { number * 1000.0 } else { number };
    let time = Timestamp::from_millis(millis as i64);
    let ahead = time.millis().saturating_sub(now.millis());
    (-PAST_MILLIS..=FUTURE_MILLIS).contains(&ahead).then_some(time)
}

/// A moment printed as RFC 3339 in UTC, such as `2026-11-29T17:06:54.506Z`.
pub(crate) fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits.iter().all(u8::is_ascii_digit).then(|| digits.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0')))
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !text.ends_with('Z') || separators.iter().any(|&(at, byte)| bytes.get(at) != Some(&byte)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let millis = match bytes.get(19)? {
        b'.' => number(20, 23)?,
        _ => 0,
    };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since 1970 by the civil-from-days formula: years begin in March, so that a leap day ends one.
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(Timestamp::from_millis((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_times_are_read() {
        let read = |text| parse_rfc3339(text).map(Timestamp::millis);
        assert_eq!(read("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(read("2026-11-29T17:06:54.506Z"), Some(1_795_972_014_506));
        assert_eq!(read("2024-02-29T23:59:59.001Z"), Some(1_709_251_199_001));
        for wrong in ["", "2026-11-29", "2026-13-29T17:06:54Z", "2026-11-29T17:06:54+01:00", "20ü6-11-29T17:06:54Z"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn seconds_and_milliseconds_are_told_apart_and_nonsense_is_dropped() {
        let now = Timestamp::from_millis(1_795_972_014_506);
        let read = |number| plausible_epoch(number, now).map(Timestamp::millis);
        assert_eq!(read(1_795_975_614.0), Some(1_795_975_614_000));
        assert_eq!(read(1_795_975_614_000.0), Some(1_795_975_614_000));
        for nonsense in [0.0, -5.0, 3600.0, f64::NAN, f64::INFINITY, 1_795_975_614_000_000.0, 3_600_000_000.0] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }
}
