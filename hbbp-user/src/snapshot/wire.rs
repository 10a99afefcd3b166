//! The messages inside the sections of a snapshot file, and their translation from and to the snapshot.
//!
//! Every message is protobuf, so that a field which a newer version adds is skipped by an older one.
//! What may be long (symbols, mappings, text, counts) stands in columns: one packed array for each field instead of
//! one message for each row.
//! Neighbouring rows resemble each other, so columns of differences are short and compress well, and a hostile file
//! cannot make two bytes into a large structure.
//! Columns of one table that differ in length, and values that no version has written, are errors, never a guess.

mod counts;
mod places;
mod run;

pub(super) use counts::CountsSection;
pub(super) use places::{ModulesSection, ProcessesSection, SymbolsSection, TextSection};
pub(super) use run::{LossesSection, RunSection};

/// Why the content of a section cannot be what a version of hbbp-sys wrote.
#[derive(Debug, thiserror::Error)]
pub(super) enum Malformed {
    /// The bytes are no protobuf of this section.
    #[error("{0}")]
    Protobuf(#[from] prost::DecodeError),
    /// A table has columns of different lengths.
    #[error("columns of {0} differ in length")]
    Columns(&'static str),
    /// A length points past the end of the bytes that it divides.
    #[error("lengths of {0} do not match the data")]
    Lengths(&'static str),
    /// A field has no value that this version knows.
    #[error("unknown value {1} of {0}")]
    Value(&'static str, i64),
    /// A weight is infinite or no number.
    #[error("weight is not finite")]
    Weight,
    /// A name is no UTF-8.
    #[error("name is not UTF-8")]
    Name(#[from] std::str::Utf8Error),
}

/// Whether all columns of the table `what` have `len` rows.
fn same_length(what: &'static str, len: usize, columns: &[usize]) -> Result<(), Malformed> {
    if columns.iter().all(|c| *c == len) {
        Ok(())
    } else {
        Err(Malformed::Columns(what))
    }
}

/// A column of numbers as differences from row to row, each modulo 2^64, so that no order is asked for.
fn differences(values: impl Iterator<Item = u64>) -> Vec<i64> {
    let mut previous = 0_u64;
    values
        .map(|value| {
            let step = value.wrapping_sub(previous);
            previous = value;
            step.cast_signed()
        })
        .collect()
}

/// The numbers whose [`differences`] these are.
fn sums(differences: &[i64]) -> impl Iterator<Item = u64> {
    differences.iter().scan(0_u64, |value, step| {
        *value = value.wrapping_add(step.cast_unsigned());
        Some(*value)
    })
}

/// Cuts `bytes` into pieces of the given lengths; nothing may be left over.
fn pieces<'a>(what: &'static str, lens: &[u64], bytes: &'a [u8]) -> Result<Vec<&'a [u8]>, Malformed> {
    let mut rest = bytes;
    let mut pieces = Vec::with_capacity(lens.len());
    for len in lens {
        let len = usize::try_from(*len).map_err(|_| Malformed::Lengths(what))?;
        let (piece, behind) = rest.split_at_checked(len).ok_or(Malformed::Lengths(what))?;
        pieces.push(piece);
        rest = behind;
    }
    if rest.is_empty() {
        Ok(pieces)
    } else {
        Err(Malformed::Lengths(what))
    }
}

/// Bytes one after another, copied piece by piece.
fn joined<'a>(pieces: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<u8> {
    let mut all = Vec::with_capacity(pieces.clone().map(<[u8]>::len).sum());
    pieces.for_each(|piece| all.extend_from_slice(piece));
    all
}

/// A length as it is stored.
fn stored_len(len: usize) -> u64 {
    // No target of this crate has a `usize` above 64 bits.
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_hold_any_order() {
        let values = [3, 0, u64::MAX, 1 << 63, 7];
        let steps = differences(values.into_iter());
        assert!(sums(&steps).eq(values));
    }

    #[test]
    fn pieces_use_up_all_bytes() {
        assert_eq!(pieces("x", &[1, 0, 2], b"abc").unwrap(), [&b"a"[..], b"", b"bc"]);
        assert!(pieces("x", &[1], b"abc").is_err());
        assert!(pieces("x", &[4], b"abc").is_err());
        assert!(pieces("x", &[u64::MAX, 4], b"abc").is_err());
    }
}
