//! A line of /proc/kallsyms. There are 200,000 of them, so that what each of them costs shows when a recording starts.

/// One line: `address [size] type name`, and a tag in brackets after a tab.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Line<'a> {
    /// Where the symbol starts; 0 if that is hidden.
    pub address: u64,
    /// Its length in bytes.
    pub size: Option<u64>,
    /// Its type, as `nm` prints it.
    pub kind: u8,
    /// Its name.
    pub name: &'a str,
    /// What follows in brackets.
    pub tag: Option<&'a str>,
}

/// Interprets a line; `None` if it makes no sense.
pub(crate) fn parse_line(line: &str) -> Option<Line<'_>> {
    let (address, remainder) = usual_address(line).or_else(|| {
        let (address, remainder) = split_at_byte(line, b' ')?;
        Some((parse_hex(address)?, remainder))
    })?;
    let (second, remainder) = split_at_byte(remainder, b' ')?;
    let at = remainder.bytes().position(|b| matches!(b, b' ' | b'\t'));
    let ended = at.and_then(|at| {
        Some((
            remainder.get(..at)?,
            *remainder.as_bytes().get(at)?,
            remainder.get(at + 1..)?,
        ))
    });
    // Some kernels print a size before the type; a type is one letter and always precedes a name.
    let (size, kind, (name, tag)) = match ended {
        None => (None, second, (remainder, None)),
        Some((kind, b' ', remainder)) => (parse_hex(second), kind, tagged(remainder)),
        Some((name, _, tag)) if !tag.contains(' ') => (None, second, (name, Some(tag))),
        Some(_) => {
            let (kind, remainder) = split_at_byte(remainder, b' ')?;
            (parse_hex(second), kind, tagged(remainder))
        }
    };
    let &[kind] = kind.as_bytes() else { return None };
    let tag = tag.and_then(|t| t.strip_prefix('[')?.strip_suffix(']'));
    kind.is_ascii_alphabetic().then_some(Line {
        address,
        size,
        kind,
        name,
        tag,
    })
}

fn tagged(text: &str) -> (&str, Option<&str>) {
    split_at_byte(text, b'\t').map_or((text, None), |(name, tag)| (name, Some(tag)))
}

/// The address at the start of a line, and what follows it, where it has as many digits as the kernel prints.
fn usual_address(line: &str) -> Option<(u64, &str)> {
    let digits = line.as_bytes().first_chunk::<16>()?;
    let remainder = line.get(16..)?.strip_prefix(' ')?;
    let (high, low) = digits.split_first_chunk::<8>()?;
    let (high, low) = (eight_digits(*high)?, eight_digits(low.try_into().ok()?)?);
    Some((high << 32 | low, remainder))
}

/// The value of eight lower-case hexadecimal digits, all at once.
fn eight_digits(digits: [u8; 8]) -> Option<u64> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGHEST: u64 = 0x80 * EACH;
    const LOW_HALF: u64 = 0x0f * EACH;

    let digits = u64::from_be_bytes(digits);
    if digits & HIGHEST != 0 {
        return None;
    }
    // The highest bit of a byte says whether the character is at least some other.
    let no_less = |than: u8| (digits + u64::from(0x80 - than) * EACH) & HIGHEST;
    let decimal = no_less(b'0') & !no_less(b'9' + 1);
    let letter = no_less(b'a') & !no_less(b'f' + 1);
    if decimal | letter != HIGHEST {
        return None;
    }
    let values = (digits & LOW_HALF) + (letter >> 7) * 9;
    let pairs = (values | values >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    Some((fours | fours >> 16) & 0xffff_ffff)
}

/// The text before and after the first such byte of ASCII. Words are so short that the search of the standard library,
/// which is made for long texts, shows.
fn split_at_byte(text: &str, byte: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|b| b == byte)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// A 64-bit number in hexadecimal; there are 200,000 of them, enough for the parser of the standard library to show.
fn parse_hex(digits: &str) -> Option<u64> {
    let fits = (1..=16).contains(&digits.len());
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    };
    let value = digits
        .bytes()
        .try_fold(0, |value, b| Some(value << 4 | u64::from(digit(b)?)));
    value.filter(|_| fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_usual_length_are_read_at_once() {
        let numbers = [0, 1, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, u64::MAX];
        for (number, shift) in numbers
            .into_iter()
            .flat_map(|n| (0..64).map(move |shift| (n, shift)))
        {
            let number = number << shift;
            let line = format!("{number:016x} T x");
            assert_eq!(usual_address(&line), Some((number, "T x")));
        }
        let digits = b"0123456789abcdef";
        for odd in (0..=0x7f_u8).filter(|odd| !digits.contains(odd)) {
            for at in 0..16 {
                let mut line = b"ffffffff81000000 T x".to_vec();
                line[at] = odd;
                assert_eq!(
                    usual_address(str::from_utf8(&line).expect("ASCII")),
                    None,
                    "{odd:#x} at {at}"
                );
            }
        }
        for other in [
            "ffffffff810000000 T x",
            "81000000 T x",
            "ffffffff8100000\u{e9} T x",
            "",
        ] {
            assert_eq!(usual_address(other), None);
        }
    }
}
