//! Memory: pages with known bytes.

use std::collections::BTreeSet;
use std::hint::black_box;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::end::End;
use crate::value::{Value, mask};

/// Bytes of a page.
const PAGE: usize = 4096;

/// Most pages that a burst may hold; the trial needed 64 (issue of bursts), and text comes on top.
const MOST_PAGES: usize = 1024;

/// What was read of a process, and what the burst has stored since. Bytes that were not read are unknown.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pages: HashMap<u64, Page, FixedState>,
    missing: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
struct Page {
    bytes: Box<[u8; PAGE]>,
    /// One bit per byte.
    known: [u64; PAGE / 64],
    /// The same, of what the burst has stored, known or not: what was there before is gone.
    stored: [u64; PAGE / 64],
    is_text: bool,
    /// Whether bytes were read, and whether any were loaded.
    is_added: bool,
    is_loaded: bool,
}

impl Page {
    fn new() -> Self {
        Self {
            bytes: Box::new([0; PAGE]),
            known: [0; PAGE / 64],
            stored: [0; PAGE / 64],
            is_text: false,
            is_added: false,
            is_loaded: false,
        }
    }

    /// Which of `n <= 64` bytes are known, one bit per byte.
    fn known(&self, offset: usize, n: usize) -> u64 {
        bits(&self.known, offset, n)
    }

    /// The same, of what was stored.
    fn stored(&self, offset: usize, n: usize) -> u64 {
        bits(&self.stored, offset, n)
    }

    /// Adds bytes that fit, where none are known and none were stored.
    fn add(&mut self, offset: usize, bytes: &[u8]) {
        self.is_added = true;
        if bytes.len() == PAGE && self.known == [0; PAGE / 64] && self.stored == [0; PAGE / 64] {
            self.bytes.copy_from_slice(bytes);
            self.known.fill(u64::MAX);
            return;
        }
        for (offset, byte) in (offset..).zip(bytes) {
            let word = offset / 64;
            if (self.known[word] | self.stored[word]) >> (offset % 64) & 1 == 0 {
                self.bytes[offset] = *byte;
                set(&mut self.known, offset, true);
            }
        }
    }

    /// Stores a byte, of which may be known that it is this one.
    fn store(&mut self, offset: usize, byte: u8, is_known: bool) {
        self.bytes[offset] = byte;
        set(&mut self.known, offset, is_known);
        set(&mut self.stored, offset, true);
    }
}

/// `n <= 64` bits from one on.
fn bits(bits: &[u64; PAGE / 64], offset: usize, n: usize) -> u64 {
    let word = |at: usize| bits.get(at).copied().unwrap_or(0);
    let (at, shift) = (offset / 64, offset % 64);
    let above = if shift == 0 {
        0
    } else {
        word(at + 1) << (64 - shift)
    };
    (word(at) >> shift | above) & first(n)
}

fn set(bits: &mut [u64; PAGE / 64], offset: usize, is_set: bool) {
    let bit = 1 << (offset % 64);
    let word = &mut bits[offset / 64];
    *word = if is_set { *word | bit } else { *word & !bit };
}

impl Drop for Page {
    /// What was read of other users' processes does not outlive its burst.
    fn drop(&mut self) {
        self.bytes.fill(0);
        // So that the compiler keeps the writes.
        black_box(&self.bytes);
    }
}

/// The part of an access that lies in one page.
struct Piece {
    page: u64,
    offset: usize,
    /// Bytes before it.
    begin: usize,
    end: usize,
}

/// The pieces of an access of `n` bytes, by page.
fn pieces(address: u64, n: usize) -> impl Iterator<Item = Piece> {
    let mut begin = 0;
    std::iter::from_fn(move || {
        let at = address.wrapping_add(begin as u64);
        let offset = usize::try_from(at % PAGE as u64).unwrap_or(0);
        let end = n.min(begin + PAGE - offset);
        let piece = Piece {
            page: at - offset as u64,
            offset,
            begin,
            end,
        };
        begin = end;
        (piece.begin < n).then_some(piece)
    })
}

/// The lowest `n` bits.
fn first(n: usize) -> u64 {
    mask(u32::try_from(n).unwrap_or(64))
}

impl Memory {
    /// Adds bytes that were read, of any length. What the burst has stored there stays.
    ///
    /// # Errors
    /// When there are too many pages.
    pub fn add(&mut self, address: u64, bytes: &[u8]) -> Result<(), End> {
        for piece in pieces(address, bytes.len()) {
            let page = self.page(piece.page)?;
            page.add(piece.offset, &bytes[piece.begin..piece.end]);
            self.missing.remove(&piece.page);
        }
        Ok(())
    }

    /// The same, of text: it may be executed, and a store to it ends the burst.
    ///
    /// # Errors
    /// When there are too many pages.
    pub fn add_text(&mut self, address: u64, bytes: &[u8]) -> Result<(), End> {
        self.add(address, bytes)?;
        for piece in pieces(address, bytes.len()) {
            self.page(piece.page)?.is_text = true;
        }
        Ok(())
    }

    /// The addresses of the pages of which unknown bytes were loaded.
    pub fn missing(&self) -> impl Iterator<Item = u64> {
        self.missing.iter().copied()
    }

    /// Whether up to 64 bytes are known, or were stored: to read them would bring nothing.
    pub fn is_read(&self, address: u64, n: usize) -> bool {
        pieces(address, n.min(64)).all(|piece| {
            let (offset, n) = (piece.offset, piece.end - piece.begin);
            let held = self.pages.get(&piece.page);
            held.is_some_and(|page| page.known(offset, n) | page.stored(offset, n) == first(n))
        })
    }

    /// The addresses of the pages that were read, and of which bytes were loaded, in no order.
    pub fn used(&self) -> impl Iterator<Item = u64> {
        let used = self
            .pages
            .iter()
            .filter(|(_, page)| page.is_added && page.is_loaded);
        used.map(|(page, _)| *page)
    }

    /// Loads up to 64 bytes, and says which are known, one bit per byte. Unknown ones are 0.
    pub fn load(&mut self, address: u64, bytes: &mut [u8]) -> u64 {
        let mut all = 0;
        bytes.fill(0);
        for piece in pieces(address, bytes.len().min(64)) {
            let n = piece.end - piece.begin;
            let mut known = 0;
            if let Some(page) = self.pages.get_mut(&piece.page) {
                page.is_loaded = true;
                known = page.known(piece.offset, n);
                let from = &page.bytes[piece.offset..piece.offset + n];
                bytes[piece.begin..piece.end].copy_from_slice(from);
            }
            if known != first(n) {
                // Hostile code cannot load from more pages than it has steps; the collector reads few of them.
                self.missing.insert(piece.page);
                let bytes = bytes[piece.begin..piece.end].iter_mut();
                let unknown = bytes.enumerate().filter(|(at, _)| known >> at & 1 == 0);
                unknown.for_each(|(_, byte)| *byte = 0);
            }
            all |= known << piece.begin;
        }
        all
    }

    /// Stores up to 64 bytes, of which those in `known` are known, one bit per byte.
    pub(crate) fn store(&mut self, address: u64, bytes: &[u8], known: u64) -> Result<(), End> {
        for piece in pieces(address, bytes.len().min(64)) {
            let page = self.page(piece.page)?;
            if page.is_text {
                return Err(End::WroteText);
            }
            for (offset, at) in (piece.offset..).zip(piece.begin..piece.end) {
                page.store(offset, bytes[at], known >> at & 1 != 0);
            }
        }
        Ok(())
    }

    /// Up to 15 bytes of text, the longest that an instruction may be.
    pub(crate) fn text(&self, address: u64) -> ([u8; 15], usize) {
        let mut text = [0; 15];
        let mut n = 0;
        for piece in pieces(address, text.len()) {
            let Some(page) = self.pages.get(&piece.page).filter(|page| page.is_text) else {
                break;
            };
            let len = piece.end - piece.begin;
            let known = page.known(piece.offset, len).trailing_ones() as usize;
            let from = &page.bytes[piece.offset..piece.offset + known.min(len)];
            text[piece.begin..piece.begin + from.len()].copy_from_slice(from);
            n += from.len();
            if known < len {
                break;
            }
        }
        (text, n)
    }

    /// Loads a value of up to 8 bytes.
    pub(crate) fn load_value(&mut self, address: u64, width: u32) -> Value {
        let mut bytes = [0; 8];
        let n = (width as usize / 8).min(8);
        let known = self.load(address, &mut bytes[..n]);
        let known = (0..n).filter(|at| known >> at & 1 != 0);
        let known = known.fold(0, |all, at| all | 0xff << (8 * at));
        Value::partly(u64::from_le_bytes(bytes), known | !mask(width))
    }

    /// Stores a value of up to 8 bytes.
    pub(crate) fn store_value(&mut self, address: u64, value: Value, width: u32) -> Result<(), End> {
        let n = (width as usize / 8).min(8);
        let known = value.known.to_le_bytes();
        let known = known.iter().zip(0..).fold(0, |all, (byte, at)| {
            let is_known = *byte == u8::MAX;
            all | u64::from(is_known) << at
        });
        self.store(address, &value.bits.to_le_bytes()[..n], known)
    }

    fn page(&mut self, page: u64) -> Result<&mut Page, End> {
        if MOST_PAGES <= self.pages.len() && !self.pages.contains_key(&page) {
            return Err(End::TooManyPages);
        }
        Ok(self.pages.entry(page).or_insert_with(Page::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_not_read_are_unknown_and_missing() {
        let mut memory = Memory::default();
        memory.add(0x1ffc, &[1, 2, 3, 4]).unwrap();
        assert_eq!(
            memory.load_value(0x1ffa, 64),
            Value::partly(0x0403_0201_0000, 0xffff_ffff_0000)
        );
        assert_eq!(memory.missing().collect::<Vec<_>>(), [0x1000, 0x2000]);
    }

    #[test]
    fn a_later_read_leaves_what_was_stored() {
        let mut memory = Memory::default();
        memory.store_value(0x1001, Value::known(7), 8).unwrap();
        memory.store_value(0x1004, Value::UNKNOWN, 8).unwrap();
        assert!(memory.is_read(0x1004, 1) && !memory.is_read(0x1000, 2));
        memory.add(0x1000, &[1, 1, 1]).unwrap();
        assert_eq!(
            memory.load_value(0x1000, 32),
            Value::partly(0x01_07_01, 0xff_ffff | !0xffff_ffff)
        );
        memory.add(0x1000, &[1; PAGE]).unwrap();
        let byte = |memory: &mut Memory, at| memory.load_value(at, 8).get(8);
        assert_eq!(
            [0x1001, 0x1003, 0x1004].map(|at| byte(&mut memory, at)),
            [Some(7), Some(1), None],
            "what was stored is unknown"
        );
    }

    #[test]
    fn unknown_bits_are_stored_as_unknown_bytes() {
        let mut memory = Memory::default();
        memory.add(0x1000, &[1; 8]).unwrap();
        memory
            .store_value(0x1000, Value::partly(0x2ff, 0xfff), 16)
            .unwrap();
        assert_eq!(memory.load_value(0x1000, 16), Value::partly(0xff, !0xff00));
    }

    #[test]
    fn text_is_not_written_and_pages_are_bounded() {
        let mut memory = Memory::default();
        memory.add_text(0x1000, &[0x90; 20]).unwrap();
        assert_eq!(
            memory.store_value(0x100f, Value::known(1), 8),
            Err(End::WroteText)
        );
        assert_eq!(memory.text(0x1005).1, 15);
        assert_eq!(memory.text(0x1012).1, 2);
        let stores = (2..3000).map(|page| memory.store_value(page * 4096, Value::known(1), 8));
        assert!(stores.into_iter().any(|stored| stored == Err(End::TooManyPages)));
    }
}
