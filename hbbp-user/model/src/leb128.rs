//! Numbers in LEB128 (DWARF 5, section 7.6), and differences in the zigzag of protobuf.
//!
//! Counts of a snapshot, which are most of what is encoded at the end of a recording, have a faster writer in
//! `snapshot::wire`.

/// Appends a number.
pub fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while 0x80 <= number {
        bytes.extend((number & 0x7f | 0x80).to_le_bytes().first());
        number >>= 7;
    }
    bytes.extend(number.to_le_bytes().first());
}

/// Takes a number from the beginning; `None` if the bytes end within it, or it has more than 64 bits.
pub(crate) fn read(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = bytes.split_first()?;
        *bytes = after;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// The difference of two numbers modulo 2^64 as one that is small where they are close.
pub const fn zigzag(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from).cast_signed();
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

/// The difference that [`zigzag`] folded.
pub(crate) const fn unfolded(zigzag: u64) -> u64 {
    zigzag >> 1 ^ (zigzag & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back() {
        let mut bytes = Vec::new();
        let numbers = [0, 127, 128, 300, 1 << 63, u64::MAX];
        numbers.iter().for_each(|number| write(&mut bytes, *number));
        assert!(bytes.starts_with(&[0, 127, 0x80, 1, 0xac, 2]));
        let mut rest = bytes.as_slice();
        let found: Vec<u64> = std::iter::from_fn(|| read(&mut rest)).collect();
        assert_eq!(found, numbers);
        assert_eq!(read(&mut &[0x80][..]), None);
        assert_eq!(read(&mut &[0xff; 11][..]), None);
    }

    #[test]
    fn differences_are_small_in_both_directions() {
        for (from, to, folded) in [(5, 3, 3), (3, 5, 4), (0, u64::MAX, 1), (7, 7, 0)] {
            assert_eq!(zigzag(from, to), folded);
            assert_eq!(from.wrapping_add(unfolded(folded)), to);
        }
    }
}
