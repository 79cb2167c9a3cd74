//! Recorded times as milliseconds.

use chrono::{DateTime, NaiveDateTime};
use dynosim_schemas::config::limits::MAX_NUMBER;

/// Seconds as milliseconds, in whole nanoseconds.
pub(super) fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e6
}

/// The same of a field that may hold anything.
pub(super) fn seconds_as_ms(field: &str, seconds: f64) -> Result<f64, String> {
    if seconds.abs() <= MAX_NUMBER / 1e6 {
        Ok(milliseconds(seconds))
    } else {
        Err(format!("{field}: {seconds} s is out of range; times are seconds"))
    }
}

/// Reads a time of day as nanoseconds since 1970: `2023-11-16 18:15:46.6805900`, with or without an offset from UTC.
pub(super) fn wall_clock_ns(field: &str, text: &str) -> Result<i64, String> {
    let local = || NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").map(|time| time.and_utc());
    let time = local().or_else(|_| text.parse::<DateTime<chrono::Utc>>()).ok();
    time.and_then(|time| time.timestamp_nanos_opt())
        .ok_or_else(|| format!("{field}: {text:?} is no time; write it as in `2023-11-16 18:15:46.6805900`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_exact_to_the_nanosecond() {
        let ns = |text: &str| wall_clock_ns("TIMESTAMP", text);
        let first = ns("2023-11-16 18:15:46.6805900").unwrap();
        assert_eq!(ns("2023-11-16 18:15:50.9951690").unwrap() - first, 4_314_579_000);
        assert_eq!(ns("1970-01-01 00:00:01"), Ok(1_000_000_000));
        assert_eq!(ns("2024-05-10 00:00:00.009930+00:00"), ns("2024-05-10T00:00:00.00993Z"));
        assert_eq!(ns("2024-05-10 02:00:00+02:00"), ns("2024-05-10 00:00:00"));
        for text in ["", "12:00", "2023-02-30 00:00:00", "2023-11-16", "9999-12-31 00:00:00", "1700158546"] {
            assert!(ns(text).is_err_and(|message| message.contains("is no time")), "{text}");
        }
    }

    #[test]
    fn seconds_become_whole_nanoseconds() {
        assert_eq!(seconds_as_ms("timestamp", 61.114), Ok(61_114.0));
        assert_eq!(seconds_as_ms("timestamp", -0.5), Ok(-500.0));
        assert!(seconds_as_ms("timestamp", f64::NAN).is_err());
        assert!(seconds_as_ms("timestamp", 1e300).is_err());
    }
}
