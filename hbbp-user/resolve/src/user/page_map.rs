//! Which pages of a process were written to: those of a private mapping are the pages of its file until then.
//!
//! /proc/PID/pagemap has a word for each page (Documentation/admin-guide/mm/pagemap.rst). The page of a file keeps the
//! mark of files. Its copy after a write, or after a uprobe, has none, and a page that was never touched is absent.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use hbbp_model::addr::Va;

const PAGE_BITS: u32 = 12;
/// Bytes of a word.
const WORD: usize = 8;
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
/// Pages that are read at once: text ranges that were hit lie close together.
const AT_ONCE: usize = 128;

/// The pages of one process.
#[derive(Debug)]
pub struct PageMap {
    file: File,
    /// Number of the first page whose word was read.
    first: u64,
    words: Vec<u64>,
}

impl PageMap {
    /// Opens that of process `tgid`; `None` if it is gone, or may not be read.
    pub fn open(tgid: u32) -> Option<Self> {
        let file = File::open(format!("/proc/{tgid}/pagemap")).ok()?;
        let (first, words) = (0, Vec::new());
        Some(Self { file, first, words })
    }

    /// Whether a page of a range was written to, or may have been.
    pub(super) fn may_be_written(&mut self, range: &Range<Va>) -> bool {
        let first = range.start.0 >> PAGE_BITS;
        let last = range.end.0.saturating_sub(1) >> PAGE_BITS;
        (first..=last).any(|page| {
            let word = self.word(page);
            word.is_none_or(|word| word & (PRESENT | SWAPPED) != 0 && word & OF_FILE == 0)
        })
    }

    /// Whether the page of an address is in memory now: reading another one would make the process get it.
    pub fn is_present(&self, at: Va) -> bool {
        let mut word = [0; WORD];
        let read = self
            .file
            .read_exact_at(&mut word, (at.0 >> PAGE_BITS) * WORD as u64);
        read.is_ok() && u64::from_ne_bytes(word) & PRESENT != 0
    }

    fn word(&mut self, page: u64) -> Option<u64> {
        let known = |first: u64, words: &[u64]| {
            let nth = usize::try_from(page.checked_sub(first)?).ok()?;
            words.get(nth).copied()
        };
        known(self.first, &self.words).or_else(|| {
            let mut bytes = [0; AT_ONCE * WORD];
            let n_read = self
                .file
                .read_at(&mut bytes, page.checked_mul(WORD as u64)?)
                .ok()?;
            let words = bytes.get(..n_read)?.as_chunks().0;
            self.first = page;
            self.words = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            known(self.first, &self.words)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_pages() {
        let Some(mut pages) = PageMap::open(std::process::id()) else {
            println!("skipped: this kernel has no page maps");
            return;
        };
        let mut written = vec![1_u8; 8 << PAGE_BITS];
        let at = |bytes: &[u8]| {
            let start = u64::try_from(bytes.as_ptr().addr()).expect("64 bits");
            Va(start)..Va(start + bytes.len() as u64)
        };
        assert!(pages.may_be_written(&at(&written)), "memory without a file");
        written.fill(2);
        let text = own_pages as fn() as usize as u64;
        assert!(!pages.may_be_written(&(Va(text)..Va(text + 16))), "own text");
        assert!(
            !pages.may_be_written(&(Va(0x1000)..Va(0x1001))),
            "nothing is there"
        );
        assert_eq!(
            [Va(text), Va(0x1000)].map(|at| pages.is_present(at)),
            [true, false]
        );
        assert!(pages.may_be_written(&(Va(u64::MAX - 9)..Va(u64::MAX))), "no page");
        assert!(PageMap::open(u32::MAX).is_none());
    }
}
