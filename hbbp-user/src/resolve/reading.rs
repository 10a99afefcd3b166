//! Reading stretches of text, several at once where they lie close together: a call for each costs more than its bytes.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::addr::ImageAddr;

/// A page. Stretches that lie farther apart are not read at once.
const PAGE: u64 = 4096;
/// The longest reading.
const READING: u64 = 64 << 10;

/// Where readings of several stretches end: before a gap of a page or more, or when they are long enough.
/// The stretches come in the order of their addresses.
pub fn reading_ends(stretches: impl Iterator<Item = Range<u64>>) -> BTreeSet<u64> {
    let mut ends = BTreeSet::new();
    let mut reading: Option<Range<u64>> = None;
    for stretch in stretches {
        match &mut reading {
            Some(reading) if stretch.start - reading.end < PAGE && stretch.end - reading.start <= READING => {
                reading.end = stretch.end;
            }
            _ => {
                ends.extend(reading.replace(stretch).map(|reading| reading.end));
            }
        }
    }
    ends.extend(reading.map(|reading| reading.end));
    ends
}

/// A reading of several stretches.
#[derive(Debug, Default)]
pub struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// The bytes of `range`, from a reading that goes on up to `end` where that can be read as a whole.
    pub fn read(
        &mut self,
        range: &Range<u64>,
        end: u64,
        read: &mut dyn FnMut(ImageAddr, &mut [u8]) -> bool,
    ) -> Option<Vec<u8>> {
        if self.part(range).is_none() {
            self.start = range.start;
            self.bytes = read_range(&(range.start..end), read).unwrap_or_default();
        }
        let part = self.part(range).filter(|bytes| is_code(bytes));
        part.map(<[u8]>::to_vec).or_else(|| read_range(range, read))
    }

    fn part(&self, range: &Range<u64>) -> Option<&[u8]> {
        let from = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        let len = usize::try_from(range.end - range.start).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }
}

/// Whether it can be code that was hit. Holes of the kernel's memory read as zeros, and what a BPF program left is filled
/// with breakpoints (arch/x86/net/bpf_jit_comp.c, `jit_fill_hole` and `bpf_arch_text_invalidate`), which can be seen
/// before the record that it went.
pub fn is_code(bytes: &[u8]) -> bool {
    const INT3: u8 = 0xcc;
    bytes.iter().any(|byte| *byte != 0 && *byte != INT3)
}

/// Reads a stretch; `None` where there is no code, or none any more.
pub fn read_range(range: &Range<u64>, read: &mut dyn FnMut(ImageAddr, &mut [u8]) -> bool) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    let done = read(ImageAddr(range.start), &mut bytes);
    (done && is_code(&bytes)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_left_is_no_code() {
        assert!(!is_code(&[0, 0]) && !is_code(&[0xcc, 0xcc, 0xcc]) && !is_code(&[0xcc, 0]));
        assert!(is_code(&[0xcc, 0x90]));
        assert_eq!(
            read_range(&(0..4), &mut |_, bytes| {
                bytes.fill(0xcc);
                true
            }),
            None
        );
    }

    #[test]
    fn neighbours_are_read_at_once_and_a_hole_costs_its_own_stretch() {
        let stretches = [0x1000..0x1100, 0x1200..0x1300, 0x2400..0x2500, 0x1_2400..0x1_2500];
        let ends = reading_ends(stretches.iter().cloned());
        assert_eq!(ends.into_iter().collect::<Vec<_>>(), [0x1300, 0x2500, 0x1_2500]);
        let mut n_calls = 0;
        let mut read = |at: ImageAddr, bytes: &mut [u8]| {
            n_calls += 1;
            bytes.fill(u8::try_from(at.0 >> 8 & 0xff).expect("a byte"));
            at.0 + (bytes.len() as u64) <= 0x1280
        };
        let mut window = Window::default();
        assert_eq!(
            window.read(&stretches[0], 0x1300, &mut read),
            Some(vec![0x10; 0x100])
        );
        assert_eq!(window.read(&stretches[1], 0x1300, &mut read), None);
        assert_eq!(n_calls, 4);
        let mut window = Window::default();
        let mut whole = |_: ImageAddr, bytes: &mut [u8]| {
            bytes.fill(1);
            true
        };
        assert_eq!(
            window.read(&stretches[0], 0x1300, &mut whole),
            Some(vec![1; 0x100])
        );
        let mut no_more = |_: ImageAddr, _: &mut [u8]| false;
        assert_eq!(
            window.read(&stretches[1], 0x1300, &mut no_more),
            Some(vec![1; 0x100])
        );
    }
}
