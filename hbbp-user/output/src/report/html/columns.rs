//! Columns of numbers embedded in the page: short for `deflate`, and quickly read by a script.
//!
//! A column has a name, a coding and a length; their bytes follow each other in the order of the index.

use hbbp_model::leb128::{self, zigzag};
use serde::Serialize;

/// The columns of a page.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// What the bytes hold, in their order.
    pub(super) index: Vec<Column>,
    /// All columns.
    pub(super) bytes: Vec<u8>,
}

/// What a script must know to read a column.
#[derive(Debug, Serialize)]
pub(super) struct Column {
    name: &'static str,
    coding: Coding,
    /// Number of values.
    len: usize,
}

/// How the values of a column are written.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Coding {
    /// LEB128 (protobuf's varint).
    Unsigned,
    /// The difference to the value before, modulo 2^64: zigzag, then LEB128. The first one is that to 0.
    Delta,
    /// IEEE 754 with 64 bits, little-endian.
    Double,
    /// The same with 32 bits, for what needs no more than seven digits; NaN where there is none.
    Single,
}

impl Columns {
    /// Adds a column of numbers that are small.
    pub(super) fn unsigned(&mut self, name: &'static str, values: impl IntoIterator<Item = u64>) {
        self.add(name, Coding::Unsigned, values, |value, bytes| {
            leb128::write(bytes, value);
        });
    }

    /// Adds a column of numbers that are close to their neighbours.
    pub(super) fn delta(&mut self, name: &'static str, values: impl IntoIterator<Item = u64>) {
        let mut before = 0_u64;
        self.add(name, Coding::Delta, values, |value, bytes| {
            leb128::write(bytes, zigzag(before, value));
            before = value;
        });
    }

    /// Adds a column of estimates that are summed.
    pub(super) fn double(&mut self, name: &'static str, values: impl IntoIterator<Item = f64>) {
        self.add(name, Coding::Double, values, |value: f64, bytes| {
            bytes.extend(value.to_le_bytes());
        });
    }

    /// Adds a column of figures that are only shown.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "seven digits are enough to be shown"
    )]
    pub(super) fn single(&mut self, name: &'static str, values: impl IntoIterator<Item = Option<f64>>) {
        self.add(name, Coding::Single, values, |value: Option<f64>, bytes| {
            bytes.extend(value.map_or(f32::NAN, |value| value as f32).to_le_bytes());
        });
    }

    fn add<T>(
        &mut self,
        name: &'static str,
        coding: Coding,
        values: impl IntoIterator<Item = T>,
        mut write: impl FnMut(T, &mut Vec<u8>),
    ) {
        let mut len = 0;
        for value in values {
            write(value, &mut self.bytes);
            len += 1;
        }
        self.index.push(Column { name, coding, len });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_codings_that_the_index_names() {
        let mut columns = Columns::default();
        columns.unsigned("a", [0, 127, 300]);
        columns.delta("b", [5, 3, u64::MAX]);
        columns.double("c", [1.0]);
        columns.single("d", [Some(1.0)]);
        let expected: [&[u8]; 4] = [
            &[0, 127, 0xac, 2],
            &[10, 3, 7],
            &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
            &[0, 0, 0x80, 0x3f],
        ];
        assert_eq!(columns.bytes, expected.concat());
        let index = serde_json::to_string(&columns.index).unwrap();
        assert!(
            index.starts_with(r#"[{"name":"a","coding":"unsigned","len":3}"#),
            "{index}"
        );
    }
}
