//! Numbers as the tables of a snapshot file hold them: a reader of one table, and the plain writer.
//!
//! Counts, which are most of what is encoded at the end of a recording, have a faster writer in `counts::word`.

use super::malformed::Malformed;
use crate::leb128;

/// Reads the rows of one table.
pub(super) struct Reader<'a> {
    /// Name of the table, for errors.
    pub(super) table: &'static str,
    /// What is left of it.
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of the table with this name.
    pub(super) const fn new(table: &'static str, bytes: &'a [u8]) -> Self {
        Self { table, bytes }
    }

    /// Whether all rows were read.
    pub(super) const fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A number without sign.
    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        leb128::read(&mut self.bytes).ok_or(Malformed::Rows(self.table))
    }

    /// A number of 32 bits.
    pub(super) fn number32(&mut self) -> Result<u32, Malformed> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| Malformed::Value(self.table, number.cast_signed()))
    }

    /// A number up to `most`.
    pub(super) fn choice(&mut self, most: u64) -> Result<u64, Malformed> {
        let number = self.number()?;
        if number <= most {
            Ok(number)
        } else {
            Err(Malformed::Value(self.table, number.cast_signed()))
        }
    }

    /// A difference modulo 2^64, whose sign is folded into the lowest bit (zigzag).
    pub(super) fn difference(&mut self) -> Result<u64, Malformed> {
        Ok(leb128::unfolded(self.number()?))
    }

    /// A difference to `previous`, which becomes the sum.
    pub(super) fn next(&mut self, previous: &mut u64) -> Result<u64, Malformed> {
        *previous = previous.wrapping_add(self.difference()?);
        Ok(*previous)
    }

    /// A double, little-endian.
    pub(super) fn double(&mut self) -> Result<f64, Malformed> {
        let (bytes, after) = self
            .bytes
            .split_first_chunk()
            .ok_or(Malformed::Rows(self.table))?;
        self.bytes = after;
        Ok(f64::from_le_bytes(*bytes))
    }

    /// Bytes with their length before them.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.number()?).map_err(|_| Malformed::Rows(self.table))?;
        let (bytes, after) = self
            .bytes
            .split_at_checked(len)
            .ok_or(Malformed::Rows(self.table))?;
        self.bytes = after;
        Ok(bytes)
    }

    /// UTF-8 with its length before it.
    pub(super) fn string(&mut self) -> Result<&'a str, Malformed> {
        Ok(str::from_utf8(self.bytes()?)?)
    }
}

/// Writes the rows of one table.
#[derive(Default)]
pub(super) struct Rows(pub(super) Vec<u8>);

impl Rows {
    /// A number without sign.
    pub(super) fn number(&mut self, number: u64) {
        leb128::write(&mut self.0, number);
    }

    /// The difference of `number` to `previous`, which becomes `number`.
    pub(super) fn next(&mut self, previous: &mut u64, number: u64) {
        self.number(leb128::zigzag(*previous, number));
        *previous = number;
    }

    /// Bytes with their length before them.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        // No target of this crate has a `usize` above 64 bits.
        self.number(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_and_order_are_read_back() {
        let values = [3, 0, u64::MAX, 1 << 63, 127, 128, 7];
        let mut rows = Rows::default();
        let mut previous = 0;
        for value in values {
            rows.number(value);
            rows.next(&mut previous, value);
        }
        rows.bytes(b"abc");
        let mut reader = Reader::new("x", &rows.0);
        let mut previous = 0;
        for value in values {
            assert_eq!(reader.number().unwrap(), value);
            assert_eq!(reader.next(&mut previous).unwrap(), value);
        }
        assert_eq!(reader.bytes().unwrap(), b"abc");
        assert!(reader.is_at_end() && reader.number().is_err());
    }

    #[test]
    fn lengths_beyond_the_table_are_refused() {
        assert!(Reader::new("x", &[4, b'a']).bytes().is_err());
        assert!(Reader::new("x", &[0xff; 11]).number().is_err());
        assert!(Reader::new("x", &[0x80]).number().is_err());
    }
}
