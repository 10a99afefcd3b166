//! Little-endian numbers out of bytes that may end anywhere.

use super::error::Damaged;

/// The rest of some bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Damaged> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Damaged)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Damaged> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Damaged> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_le_bytes)
    }

    /// A `u64` that counts items of `item` bytes which follow: their bytes.
    pub(super) fn counted(&mut self, item: usize) -> Result<&'a [u8], Damaged> {
        let n = usize::try_from(self.u64()?).map_err(|_| Damaged)?;
        self.take(n.checked_mul(item).ok_or(Damaged)?)
    }

    /// The bytes up to the first zero, or all of them; bytes that are not UTF-8 are replaced.
    pub(super) fn text(&self) -> String {
        let text = self.0.split(|b| *b == 0).next().unwrap_or(&[]);
        String::from_utf8_lossy(text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_after_the_end() {
        let mut bytes = Bytes(&[1, 0, 2, 0, 0, 0, 9]);
        assert_eq!(bytes.u16(), Ok(1));
        assert_eq!(bytes.u32(), Ok(2));
        assert_eq!(bytes.u16(), Err(Damaged));
        assert_eq!(bytes.take(1), Ok(&[9][..]));
        assert_eq!(Bytes(b"ab\0c").text(), "ab");
    }

    #[test]
    fn hostile_counts_do_not_wrap() {
        for n in [u64::MAX, u64::MAX / 24 + 2, 2] {
            assert_eq!(Bytes(&n.to_le_bytes()).counted(24), Err(Damaged));
        }
    }
}
