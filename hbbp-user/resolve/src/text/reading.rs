//! Reading text ranges, several at once where they lie close together: a call for each costs more than its bytes.

use std::ops::Range;

use hbbp_model::addr::ImageAddr;

/// A page. Ranges at a larger distance are not read at once.
const PAGE: u64 = 4096;
/// The longest reading.
const READING: u64 = 64 << 10;

/// Fills a buffer with the text from an address on and says whether it could.
pub(crate) type ReadText<'a> = dyn FnMut(ImageAddr, &mut [u8]) -> bool + 'a;

/// Ranges that lie close enough together to be read at once, in the order of their addresses.
pub(crate) fn readings<T>(ranges: &[(Range<u64>, T)]) -> impl Iterator<Item = &[(Range<u64>, T)]> {
    let mut remaining = ranges;
    std::iter::from_fn(move || {
        let (first, _) = remaining.first()?;
        let mut end = first.end;
        let together = remaining.iter().skip(1).take_while(|(range, _)| {
            let near = range.start - end < PAGE && range.end - first.start <= READING;
            end = if near { range.end } else { end };
            near
        });
        let (reading, after) = remaining.split_at(1 + together.count());
        remaining = after;
        Some(reading)
    })
}

/// Buffers for one reading after another.
#[derive(Debug, Default)]
pub(crate) struct Window {
    whole: Buffer,
    one: Buffer,
}

#[derive(Debug, Default)]
struct Buffer {
    start: u64,
    /// How much of the bytes was read.
    len: usize,
    bytes: Vec<u8>,
}

impl Window {
    /// Reads a range at once.
    pub(crate) fn open(&mut self, range: &Range<u64>, read: &mut ReadText<'_>) {
        self.whole.fill(range, read);
    }

    /// The bytes of a part of the range, read alone where the range could not be read as a whole; `None` if there is
    /// no code, or none any more.
    pub(crate) fn part(&mut self, range: &Range<u64>, read: &mut ReadText<'_>) -> Option<&[u8]> {
        let whole = self.whole.part(range).filter(|bytes| is_code(bytes));
        if whole.is_some() {
            return whole;
        }
        self.one.fill(range, read);
        self.one.part(range).filter(|bytes| is_code(bytes))
    }
}

impl Buffer {
    fn fill(&mut self, range: &Range<u64>, read: &mut ReadText<'_>) {
        (self.start, self.len) = (range.start, 0);
        let Ok(len) = usize::try_from(range.end - range.start) else {
            return;
        };
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        let bytes = self.bytes.get_mut(..len);
        if bytes.is_some_and(|bytes| read(ImageAddr(range.start), bytes)) {
            self.len = len;
        }
    }

    fn part(&self, range: &Range<u64>) -> Option<&[u8]> {
        let from = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        let len = usize::try_from(range.end - range.start).ok()?;
        self.bytes.get(..self.len)?.get(from..from.checked_add(len)?)
    }
}

/// Whether it can be code that was hit. Holes of the kernel's memory read as zeros. What a BPF program left is filled
/// with breakpoints (arch/x86/net/bpf_jit_comp.c, `jit_fill_hole` and `bpf_arch_text_invalidate`). These can be seen
/// before the record that the program went.
pub(crate) fn is_code(bytes: &[u8]) -> bool {
    const INT3: u8 = 0xcc;
    bytes.iter().any(|byte| *byte != 0 && *byte != INT3)
}

/// Reads a range; `None` if code is missing, or gone.
pub(crate) fn read_range(range: &Range<u64>, read: &mut ReadText<'_>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    let done = read(ImageAddr(range.start), &mut bytes);
    (done && is_code(&bytes)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_left_is_not_code() {
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
    fn neighbours_are_read_at_once_and_a_hole_costs_its_own_range() {
        let ranges = [0x1000..0x1100, 0x1200..0x1300, 0x2400..0x2500, 0x1_2400..0x1_2500].map(|r| (r, ()));
        let ends: Vec<_> = readings(&ranges)
            .map(|reading| reading.last().map(|(range, ())| range.end))
            .collect();
        assert_eq!(ends, [Some(0x1300), Some(0x2500), Some(0x1_2500)]);
        let mut n_calls = 0;
        let mut read = |at: ImageAddr, bytes: &mut [u8]| {
            n_calls += 1;
            bytes.fill(u8::try_from(at.0 >> 8 & 0xff).expect("a byte"));
            at.0 + (bytes.len() as u64) <= 0x1280
        };
        let mut window = Window::default();
        window.open(&(0x1000..0x1300), &mut read);
        assert_eq!(
            window.part(&(0x1000..0x1100), &mut read),
            Some(&[0x10; 0x100][..])
        );
        assert_eq!(window.part(&(0x1200..0x1300), &mut read), None);
        assert_eq!(n_calls, 3);
        window.open(&(0x1000..0x1300), &mut |_, bytes| {
            bytes.fill(1);
            true
        });
        let mut no_more = |_: ImageAddr, _: &mut [u8]| false;
        for range in [0x1000..0x1100, 0x1200..0x1300] {
            assert_eq!(window.part(&range, &mut no_more), Some(&[1; 0x100][..]));
        }
    }
}
