//! The records of a perf.data file one after the other, compressed ones unpacked.
//!
//! The crate linux-perf-data is not used for this. It allocates what a header claims (a hostile size aborts the
//! program) and unpacks a compressed record without a limit. It holds all records of a file that has no round marks in
//! memory, and skips branch stacks. Here memory is bounded by two windows of fixed size.
//! Formats: `tools/perf/Documentation/perf.data-file-format.txt` and `tools/perf/util/event.h` in the kernel tree.

use std::io::Read;

use super::bytes::Bytes;
use super::error::ImportError;
use super::record_size::{HEADER, stated_size};
use super::unpacked::Unpacked;

/// What is read from the file at once.
const WINDOW: usize = 1 << 20;

/// Records that perf itself writes: `enum perf_user_event_type`.
pub(super) mod user_record {
    pub(crate) const HEADER_ATTR: u32 = 64;
    pub(crate) const HEADER_TRACING_DATA: u32 = 66;
    pub(crate) const HEADER_BUILD_ID: u32 = 67;
    pub(crate) const AUXTRACE: u32 = 71;
    pub(crate) const EVENT_UPDATE: u32 = 78;
    pub(crate) const HEADER_FEATURE: u32 = 80;
    pub(crate) const COMPRESSED: u32 = 81;
    pub(crate) const COMPRESSED2: u32 = 83;
}

/// A record as it is in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRecord<'a> {
    /// `PERF_RECORD_*`.
    pub(super) kind: u32,
    /// Bits whose meaning depends on the kind.
    pub(super) misc: u16,
    /// What follows the header.
    pub(super) body: &'a [u8],
    /// Offset in the file, of the compressed record where it was compressed.
    pub(super) offset: u64,
    /// Number in the order of the file.
    pub(super) ordinal: u64,
}

/// Reads the records of a part of a file.
pub(super) struct Records<R> {
    input: Window<R>,
    unpacked: Unpacked,
    n_read: u64,
}

/// Where the record was found that comes next.
enum Found {
    Plain,
    Unpacked,
}

impl<R: Read> Records<R> {
    /// `input` is at byte `offset` of the file; the records take up `len` bytes, or all that follows.
    pub(super) fn new(input: R, offset: u64, len: Option<u64>) -> Self {
        let end = len.map(|len| offset.saturating_add(len));
        let input = Window {
            input,
            bytes: Vec::new(),
            at: 0,
            offset,
            end,
            dry: false,
        };
        Self {
            input,
            unpacked: Unpacked::default(),
            n_read: 0,
        }
    }

    /// The same, with numbers that go on after those of another file.
    pub(super) fn numbered_from(self, first: u64) -> Self {
        Self {
            n_read: first,
            ..self
        }
    }

    /// The next record; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<RawRecord<'_>>, ImportError> {
        let (found, range) = loop {
            if let Some(range) = self.unpacked.next(self.input.offset())? {
                break (Found::Unpacked, range);
            }
            let Some(size) = self.input.next_size()? else {
                return Ok(None);
            };
            let at = self.input.at;
            self.input.at += size;
            let bytes = self.input.bytes.get(at..at + size).unwrap_or(&[]);
            let damaged = |what| ImportError::Record {
                offset: self.input.base() + wide(at),
                what,
            };
            let (kind, body) = (kind(bytes), bytes.get(HEADER..).unwrap_or(&[]));
            match kind {
                user_record::COMPRESSED => self.unpacked.feed(body),
                user_record::COMPRESSED2 => {
                    let packed = Bytes(body).counted(1);
                    self.unpacked
                        .feed(packed.map_err(|_| damaged("compressed data is longer than the record"))?);
                }
                user_record::AUXTRACE | user_record::HEADER_TRACING_DATA => {
                    let size = trailing(kind, body).ok_or_else(|| damaged("data size is missing"))?;
                    self.input.skip(size)?;
                }
                _ => break (Found::Plain, at..at + size),
            }
        };
        let (bytes, offset) = match found {
            Found::Plain => (self.input.bytes.as_slice(), self.input.base() + wide(range.start)),
            Found::Unpacked => (self.unpacked.bytes(), self.input.offset()),
        };
        let bytes = bytes.get(range).unwrap_or(&[]);
        let ordinal = self.n_read;
        self.n_read += 1;
        let misc = bytes.get(4..6).map_or(0, |field| Bytes(field).u16().unwrap_or(0));
        Ok(Some(RawRecord {
            kind: kind(bytes),
            misc,
            body: bytes.get(HEADER..).unwrap_or(&[]),
            offset,
            ordinal,
        }))
    }

    /// Whether the file ends inside a record, as it does when its recorder was killed.
    pub(super) fn cut_off(&self) -> bool {
        self.input.dry && (self.input.at < self.input.bytes.len() || !self.unpacked.is_empty())
    }
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn kind(record: &[u8]) -> u32 {
    Bytes(record).u32().unwrap_or(0)
}

/// Length of the data that follows a record without being part of it.
fn trailing(kind: u32, body: &[u8]) -> Option<u64> {
    let mut body = Bytes(body);
    match kind {
        user_record::AUXTRACE => body.u64().ok(),
        _ => body.u32().ok().map(|size| u64::from(size).next_multiple_of(8)),
    }
}

/// The part of the file that is in memory.
struct Window<R> {
    input: R,
    bytes: Vec<u8>,
    /// Where the next record starts in `bytes`.
    at: usize,
    /// Byte of the file after `bytes`.
    offset: u64,
    /// Byte of the file where the records end.
    end: Option<u64>,
    /// Whether the file has no more.
    dry: bool,
}

impl<R: Read> Window<R> {
    /// Byte of the file where `bytes` begins.
    fn base(&self) -> u64 {
        self.offset - wide(self.bytes.len())
    }

    fn offset(&self) -> u64 {
        self.base() + wide(self.at)
    }

    /// Loads the next record into memory, and returns its length; `None` at the end.
    fn next_size(&mut self) -> Result<Option<usize>, ImportError> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or(&[]);
            if let Some(size) = stated_size(rest, self.offset())?
                && size <= rest.len()
            {
                return Ok(Some(size));
            }
            if self.dry {
                return Ok(None);
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), ImportError> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.offset));
        let wanted = wide(WINDOW.saturating_sub(self.bytes.len())).min(left);
        let n = self.input.by_ref().take(wanted).read_to_end(&mut self.bytes)?;
        self.offset += wide(n);
        self.dry = wide(n) < wanted || wanted == left;
        Ok(())
    }

    /// Passes over bytes that are no records.
    fn skip(&mut self, n: u64) -> Result<(), ImportError> {
        let here = self.bytes.len() - self.at;
        match usize::try_from(n) {
            Ok(n) if n <= here => self.at += n,
            _ => {
                let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.offset));
                let beyond = (n - wide(here)).min(left);
                let skipped = std::io::copy(&mut self.input.by_ref().take(beyond), &mut std::io::sink())?;
                self.offset += skipped;
                self.bytes.clear();
                self.at = 0;
                self.dry |= skipped < beyond;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([7, 0]);
        bytes.extend(u16::try_from(HEADER + body.len()).unwrap().to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// Kind and length of the body of each record, and whether the file was cut off.
    fn read(bytes: &[u8]) -> Result<(Vec<(u32, usize)>, bool), ImportError> {
        let mut records = Records::new(bytes, 0, None);
        let mut seen = Vec::new();
        while let Some(record) = records.next()? {
            assert_eq!((record.misc, record.ordinal), (7, wide(seen.len())));
            seen.push((record.kind, record.body.len()));
        }
        Ok((seen, records.cut_off()))
    }

    #[test]
    fn windows_do_not_show() {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for n in 0..3000_u16 {
            let len = usize::from(n) * 37 % 65_000;
            bytes.extend(record(9, &vec![0; len]));
            expected.push((9, len));
        }
        assert_eq!(read(&bytes).unwrap(), (expected, false));
    }

    #[test]
    fn a_record_smaller_than_its_header_is_named() {
        let mut bytes = record(9, &[0; 8]);
        bytes.extend([0; 64]);
        let Err(ImportError::Record { offset: 16, .. }) = read(&bytes) else {
            panic!("no such record")
        };
    }

    #[test]
    fn cut_off_files_give_what_is_there() {
        let bytes = [record(9, &[0; 8]), record(9, &[0; 80])].concat();
        assert_eq!(read(&bytes[..50]).unwrap(), (vec![(9, 8)], true));
        assert_eq!(read(&bytes[..16]).unwrap(), (vec![(9, 8)], false));
    }

    #[test]
    fn trace_data_between_records_is_passed_over() {
        let data = 3_000_000_u64;
        let mut bytes = record(user_record::AUXTRACE, &data.to_le_bytes());
        bytes.extend(vec![0xff; 3_000_000]);
        bytes.extend(record(3, b"x"));
        assert_eq!(read(&bytes).unwrap(), (vec![(3, 1)], false));
        assert_eq!(read(&bytes[..1000]).unwrap(), (vec![], false));
        assert_eq!(
            read(&record(user_record::AUXTRACE, &u64::MAX.to_le_bytes()))
                .unwrap()
                .0,
            []
        );
    }

    #[test]
    fn compressed_records_are_one_stream() {
        let plain: Vec<u8> = (0..40_000_u16)
            .flat_map(|n| record(9, &[0; 40][..usize::from(n % 40)]))
            .collect();
        let packed = zstd::stream::encode_all(&plain[..], 1).unwrap();
        let mut bytes = record(3, &[]);
        for (n, part) in packed.chunks(1001).enumerate() {
            let part = match n % 2 {
                0 => record(user_record::COMPRESSED, part),
                _ => {
                    let mut body = wide(part.len()).to_le_bytes().to_vec();
                    body.extend(part);
                    body.extend([0; 5]);
                    record(user_record::COMPRESSED2, &body)
                }
            };
            bytes.extend(part);
        }
        bytes.extend(record(4, &[]));
        let (seen, cut_off) = read(&bytes).unwrap();
        assert_eq!(
            (seen.len(), seen[0].0, seen[40_001].0, cut_off),
            (40_002, 3, 4, false)
        );
    }

    #[test]
    fn garbage_that_claims_to_be_compressed_is_refused() {
        assert!(read(&record(user_record::COMPRESSED, &[0x5a; 100])).is_err());
        assert!(read(&record(user_record::COMPRESSED2, &[0xff; 100])).is_err());
    }
}
