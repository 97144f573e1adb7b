//! Durations and sizes as people write them.

use std::time::Duration;

/// Unit names of durations, longest first where one begins with another.
const DURATION_UNITS: &[(&str, u64)] = &[
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Reads `500ms`, `10s`, `1m`, `1h30m`, `1.5s` or `0`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let how = || format!("expected a duration such as 500ms, 10s, 1m or 1h30m, got {text:?}");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(format!(
            "expected a duration with its unit, got {text}: write {text}s for seconds or {text}ms for milliseconds"
        ));
    }
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = split_number(rest).ok_or_else(how)?;
        let (name, unit) = DURATION_UNITS
            .iter()
            .find(|(name, _)| after.starts_with(name))
            .ok_or_else(how)?;
        let part = scaled(number, *unit).ok_or_else(how)?;
        total = total
            .checked_add(part)
            .ok_or_else(|| format!("expected a shorter duration, got {text:?}"))?;
        rest = &after[name.len()..];
    }
    if text.is_empty() {
        Err(how())
    } else {
        Ok(Duration::from_nanos(total))
    }
}

/// Writes a duration the way [`parse_duration`] reads it, in its largest whole unit.
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0".to_owned();
    }
    let units: [(&str, u128); 6] = [
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let fits = units.iter().find(|(_, unit)| nanos.is_multiple_of(*unit));
    let (name, unit) = fits.unwrap_or(&("ns", 1));
    format!("{}{name}", nanos / unit)
}

/// Reads `1MB`, `64KB`, `1GB`, `512` (bytes); a K is 1024, as in PostgreSQL's own settings.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let how = || format!("expected a size such as 64KB, 1MB or 1GB, got {text:?}");
    let (number, unit) = split_number(text).ok_or_else(how)?;
    let factor = match unit {
        "" | "B" => 1,
        "KB" | "kB" | "KiB" => 1 << 10,
        "MB" | "MiB" => 1 << 20,
        "GB" | "GiB" => 1 << 30,
        _ => return Err(how()),
    };
    scaled(number, factor).ok_or_else(how)
}

/// Splits off the digits (and a decimal point) in front.
fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// `number` times `unit`, exactly: a fraction finer than one is refused.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut total = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if number.contains('.') {
        let digits = u32::try_from(fraction.len())
            .ok()
            .filter(|n| (1..=9).contains(n))?;
        let scale = 10_u64.pow(digits);
        let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
        if !part.is_multiple_of(u128::from(scale)) {
            return None;
        }
        total = total.checked_add(u64::try_from(part / u128::from(scale)).ok()?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let table = [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500_000_000),
            ("10s", 10_000_000_000),
            ("1.5s", 1_500_000_000),
            ("1m", 60_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("250us", 250_000),
            ("1d", 86_400_000_000_000),
        ];
        for (text, nanos) in table {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_nanos(nanos)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_plain_number_is_no_duration_and_the_error_says_how_to_write_it() {
        let error = parse_duration("30").unwrap_err();
        assert!(error.contains("write 30s for seconds"), "{error}");
    }

    #[test]
    fn nonsense_durations_are_refused() {
        for text in [
            "",
            "s",
            "-1s",
            "1x",
            "1s2",
            "1 s",
            "1..5s",
            "1.s",
            "1.5ns",
            "99999999999h",
            "999d999999999999h",
        ] {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_written_duration_is_read_back() {
        for text in ["0", "500ms", "10s", "1m", "90m", "1h", "7us", "3ns"] {
            let duration = parse_duration(text).unwrap();
            assert_eq!(format_duration(duration), text);
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        let table = [
            ("512", 512),
            ("64KB", 65_536),
            ("1MB", 1_048_576),
            ("1.5MB", 1_572_864),
            ("1GB", 1 << 30),
            ("0", 0),
        ];
        for (text, bytes) in table {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MB", "1XB", "-1KB", "99999999999GB", "1 MB", "0.1B"] {
            assert!(parse_size(text).is_err(), "{text:?}");
        }
    }
}
