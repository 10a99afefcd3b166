//! Lines of a text that may be endless, or no text at all.

use std::io::{BufRead, Read as _};

use super::error::ImportError;

/// A sample of 32 entries with long paths has about 10 KiB.
const LONGEST: u64 = 1 << 20;

/// Reads a text line by line.
pub(super) struct Lines<R> {
    input: R,
    bytes: Vec<u8>,
    line: String,
    n_lines: u64,
    n_bytes: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            bytes: Vec::new(),
            line: String::new(),
            n_lines: 0,
            n_bytes: 0,
        }
    }

    /// The next line without its end, and its number from 1; bytes that are not UTF-8 are replaced.
    pub(super) fn next(&mut self) -> Result<Option<(&str, u64)>, ImportError> {
        self.bytes.clear();
        let n = self
            .input
            .by_ref()
            .take(LONGEST)
            .read_until(b'\n', &mut self.bytes)?;
        if n == 0 {
            return Ok(None);
        }
        self.n_lines += 1;
        self.n_bytes += u64::try_from(n).unwrap_or(u64::MAX);
        let whole = self.bytes.last() == Some(&b'\n');
        if !whole && LONGEST <= u64::try_from(n).unwrap_or(u64::MAX) {
            return Err(ImportError::Line {
                line: self.n_lines,
                what: "longer than 1 MiB",
            });
        }
        self.line.clear();
        self.line.push_str(&String::from_utf8_lossy(&self.bytes));
        Ok(Some((self.line.trim_end_matches(['\n', '\r']), self.n_lines)))
    }

    /// Bytes read so far.
    pub(super) const fn n_bytes(&self) -> u64 {
        self.n_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_an_end() {
        let mut lines = Lines::new(&b"a b\r\n\n\xffc"[..]);
        assert_eq!(lines.next().unwrap(), Some(("a b", 1)));
        assert_eq!(lines.next().unwrap(), Some(("", 2)));
        assert_eq!(lines.next().unwrap(), Some(("\u{fffd}c", 3)));
        assert_eq!(lines.next().unwrap(), None);
        assert_eq!(lines.n_bytes(), 8);
    }

    #[test]
    fn endless_lines_are_refused() {
        let endless = std::io::BufReader::new(std::io::repeat(b'a'));
        assert!(matches!(
            Lines::new(endless).next(),
            Err(ImportError::Line { line: 1, .. })
        ));
    }
}
