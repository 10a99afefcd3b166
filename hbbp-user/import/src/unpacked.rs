//! Compressed records, unpacked bit by bit.
//!
//! `perf record -z` packs records into one zstd stream and cuts it into compressed records, so a record may begin in
//! one and end in the next. A small record may claim to unpack to gigabytes; only a window of it is ever in memory.

use std::ops::Range;

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use super::error::ImportError;
use super::record_size::{LONGEST, stated_size};

/// What is unpacked at once.
const WINDOW: usize = 4 * LONGEST;

/// What was unpacked of compressed records.
#[derive(Default)]
pub(super) struct Unpacked {
    decoder: Option<Decoder<'static>>,
    /// What is not unpacked yet.
    packed: Vec<u8>,
    packed_at: usize,
    /// What is unpacked.
    bytes: Vec<u8>,
    at: usize,
    /// Whether the decoder may hold more output for what it was given.
    more: bool,
}

impl Unpacked {
    /// Takes the content of a compressed record, when everything before it has been unpacked.
    pub(super) fn feed(&mut self, packed: &[u8]) {
        self.packed.clear();
        self.packed.extend_from_slice(packed);
        self.packed_at = 0;
        self.more = true;
    }

    /// Where the next record is in [`Self::bytes`], once it is unpacked; `None` if more must be fed. `offset` is
    /// that in the file, for errors.
    pub(super) fn next(&mut self, offset: u64) -> Result<Option<Range<usize>>, ImportError> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or(&[]);
            if let Some(size) = stated_size(rest, offset)?
                && size <= rest.len()
            {
                let range = self.at..self.at + size;
                self.at += size;
                return Ok(Some(range));
            }
            if !self.more {
                return Ok(None);
            }
            self.unpack(offset)?;
        }
    }

    /// What is unpacked.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether no part of a record is left.
    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.len() <= self.at
    }

    fn unpack(&mut self, offset: u64) -> Result<(), ImportError> {
        let damaged = ImportError::Record {
            offset,
            what: "cannot decompress data",
        };
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            None => self.decoder.insert(Decoder::new()?),
        };
        self.bytes.drain(..self.at);
        self.at = 0;
        let filled = self.bytes.len();
        self.bytes.resize(WINDOW.max(filled + LONGEST), 0);
        let mut input = InBuffer::around(self.packed.get(self.packed_at..).unwrap_or(&[]));
        let mut output = OutBuffer::around(self.bytes.get_mut(filled..).unwrap_or(&mut []));
        let ran = decoder.run(&mut input, &mut output);
        let (n_in, n_out, room) = (input.pos(), output.pos(), output.capacity());
        self.packed_at += n_in;
        self.bytes.truncate(filled + n_out);
        self.more = self.packed_at < self.packed.len() || n_out == room;
        let stuck = n_in == 0 && n_out == 0 && self.packed_at < self.packed.len();
        if ran.is_err() || stuck {
            Err(damaged)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_record_that_unpacks_to_gigabytes_takes_no_memory() {
        let zeros = std::io::Read::take(std::io::repeat(9), 1 << 28);
        let packed = zstd::stream::encode_all(zeros, 1).unwrap();
        let mut unpacked = Unpacked::default();
        let mut n_bytes = 0;
        for part in packed.chunks(60_000) {
            unpacked.feed(part);
            while let Some(range) = unpacked.next(0).unwrap() {
                n_bytes += range.len();
            }
        }
        // Records of 0x909 bytes each.
        assert!((1 << 28) - 0x909 < n_bytes && unpacked.bytes.capacity() <= 2 * WINDOW);
    }
}
