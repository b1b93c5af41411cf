//! Times as the service tells them.

use std::time::{Duration, UNIX_EPOCH};

/// Milliseconds of Unix time.
pub(super) fn now() -> u64 {
    UNIX_EPOCH.elapsed().map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// `2026-11-29T17:04:47.684Z`
pub(super) fn text(milliseconds: u64) -> String {
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March of the year 0: a leap day is the last of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{rest:03}Z")
}

/// A time on a clock that is wrong by so much.
pub(super) fn skewed(milliseconds: u64, ahead: Duration, is_behind: bool) -> u64 {
    let by = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
    if is_behind { milliseconds.saturating_sub(by) } else { milliseconds.saturating_add(by) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_service_writes_them() {
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(1_795_971_887_684), "2026-11-29T17:04:47.684Z");
    }
}
