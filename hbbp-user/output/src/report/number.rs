//! Numbers and names for display: grouped, scaled, and as wide as the page allows.

use unicode_width::UnicodeWidthChar;

/// A count with separated thousands: `12,345,678`.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in (0..digits.len()).rev().zip(digits.chars()) {
        grouped.push(digit);
        if 0 < place && place % 3 == 0 {
            grouped.push(',');
        }
    }
    grouped
}

/// A count of things: `1 block`, `1,234 blocks`.
pub(super) fn several(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", grouped(count))
}

/// An amount with `digits` significant digits and an SI prefix: `1.235 G`.
/// Amounts below 1000 have two blanks instead of the prefix, so that columns stay aligned.
pub(super) fn scaled(amount: f64, digits: usize) -> String {
    const PREFIXES: [char; 7] = [' ', 'k', 'M', 'G', 'T', 'P', 'E'];

    if amount == 0.0 {
        return "0  ".to_owned();
    }
    let mut mantissa = amount;
    let mut prefixes = PREFIXES.into_iter().peekable();
    let mut prefix = ' ';
    while let Some(next) = prefixes.next() {
        prefix = next;
        // What would be printed as 1000 takes the next prefix.
        let full = mantissa.abs() < 1000.0 - half_of_last_digit(1000.0, digits);
        if full || prefixes.peek().is_none() {
            break;
        }
        mantissa /= 1000.0;
    }
    let decimals = digits.saturating_sub(integer_digits(mantissa, digits));
    format!("{mantissa:.decimals$} {prefix}")
}

/// Digits before the decimal point of the amount rounded to `digits` significant digits.
fn integer_digits(amount: f64, digits: usize) -> usize {
    let mut n = 1;
    let mut bound = 10.0;
    while n < 3 && bound - half_of_last_digit(bound, digits) <= amount.abs() {
        n += 1;
        bound *= 10.0;
    }
    n
}

/// Half a unit of the last of `digits` significant digits of an amount just below `bound`, a power of ten.
fn half_of_last_digit(bound: f64, digits: usize) -> f64 {
    let exponent = i32::try_from(digits).unwrap_or(i32::MAX);
    bound / 10_f64.powi(exponent) / 2.0
}

/// A share in percent, with two decimals, rounded so that only 0 prints as 0.00 and only 1 as 100.00.
pub(super) fn percent(share: f64) -> String {
    const SMALLEST: f64 = 0.01;

    let percent = share * 100.0;
    let rounded = if 0.0 < percent && percent < SMALLEST {
        SMALLEST
    } else if 100.0 - SMALLEST < percent && percent < 100.0 {
        100.0 - SMALLEST
    } else {
        percent
    };
    format!("{rounded:.2}")
}

/// A number of bytes in binary units: `23.4 MiB`.
pub(super) fn bytes(n_bytes: u64) -> String {
    let mebibytes = n_bytes as f64 / f64::from(1 << 20);
    format!("{mebibytes:.1} MiB")
}

/// A time in ns as seconds, with `decimals` decimals.
pub(super) fn seconds(ns: u64, decimals: usize) -> String {
    let seconds = ns as f64 / 1e9;
    format!("{seconds:.decimals$}")
}

/// Columns that a text takes on a terminal.
pub(super) fn columns(text: &str) -> usize {
    text.chars().filter_map(char::width).sum()
}

/// The text in at most `most` columns, without its middle: both ends of paths and mangled names are more telling.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let Some(kept) = most.checked_sub(1) else {
        return String::new();
    };
    let front: String = fitting(text.chars(), kept.div_ceil(2)).collect();
    let back: Vec<char> = fitting(text.chars().rev(), kept / 2).collect();
    front + "…" + &back.into_iter().rev().collect::<String>()
}

/// The first characters that fit into `columns` columns.
fn fitting(text: impl Iterator<Item = char>, columns: usize) -> impl Iterator<Item = char> {
    text.scan(0, move |used, c| {
        *used += c.width().unwrap_or(0);
        (*used <= columns).then_some(c)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouped_separates_thousands() {
        for (count, shown) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345_678, "12,345,678"),
        ] {
            assert_eq!(grouped(count), shown);
        }
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn scaled_keeps_significant_digits() {
        let shown = [
            (0.0, "0  "),
            (1.0, "1.000  "),
            (12.345, "12.35  "),
            (999.94, "999.9  "),
            (999.96, "1.000 k"),
            (1_234_567_890.0, "1.235 G"),
            (99_999_999.0, "100.0 M"),
            (9_999.6, "10.00 k"),
            (5e20, "500.0 E"),
            (5e22, "50000.0 E"),
        ];
        for (amount, shown) in shown {
            assert_eq!(scaled(amount, 4), shown, "{amount}");
        }
        assert_eq!(scaled(123_456.0, 2), "123 k");
        assert_eq!(scaled(9.96, 2), "10  ");
    }

    #[test]
    fn percent_rounds_only_zero_to_zero() {
        for (share, shown) in [
            (0.0, "0.00"),
            (1e-9, "0.01"),
            (0.5, "50.00"),
            (0.999_999, "99.99"),
            (1.0, "100.00"),
        ] {
            assert_eq!(percent(share), shown);
        }
    }

    #[test]
    fn shortened_omits_the_middle() {
        assert_eq!(shortened("abcdefgh", 8), "abcdefgh");
        assert_eq!(shortened("abcdefgh", 5), "ab…gh");
        assert_eq!(shortened("abcdefgh", 1), "…");
        assert_eq!(shortened("abcdefgh", 0), "");
        // Each of these characters takes two columns.
        assert_eq!(shortened("漢字漢字", 5), "漢…字");
    }
}
