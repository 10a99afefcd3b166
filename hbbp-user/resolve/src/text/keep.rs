//! Text of files that stays from one interval to the next: most text of one second was executed in the second before
//! too.

use std::mem;

use super::module_text::{End, ModuleText, TextRange, Why};
use super::versions::TextVersions;

/// Intervals that a range stays for without being hit: ten seconds of `hbbp-sys top`.
const KEPT: u8 = 10;

impl ModuleText {
    /// Takes out what was hit, to be handed over, and keeps what may be hit again: functions that were hit in the last
    /// intervals, as long as they take no more than `left` bytes, which is lowered by as much.
    ///
    /// Windows are not kept: how far they reach depends on what was hit.
    pub(crate) fn take_hit(&mut self, left: &mut usize) -> Self {
        let all = mem::take(self);
        let mut hit = Self {
            entered: all.entered,
            ..Self::default()
        };
        for (start, range) in all.ranges.into_each() {
            let is_entered = [start, start + range.len]
                .iter()
                .any(|at| hit.entered.contains(at));
            let n_bytes = range.versions.n_bytes();
            let stays = !is_entered && n_bytes <= *left && range.may_stay();
            let kept = match range.why {
                Why::Hit => {
                    let copy = stays.then(|| range.copy());
                    hit.n_bytes += n_bytes;
                    hit.ranges.insert(start, range);
                    copy
                }
                Why::Kept(n_unhit) => (stays && n_unhit + 1 < KEPT).then_some(TextRange {
                    why: Why::Kept(n_unhit + 1),
                    ..range
                }),
                Why::Early => None,
            };
            if let Some(kept) = kept {
                *left -= n_bytes;
                self.n_bytes += n_bytes;
                self.ranges.insert(start, kept);
            }
        }
        let of_kept = all.symbols.values().filter(|symbol| {
            let end = symbol.start.0.saturating_add(symbol.len.max(1));
            let last = self.ranges.last_upto(end - 1);
            last.is_some_and(|(start, range)| symbol.start.0 < start + range.len)
        });
        self.symbols = of_kept.map(|symbol| (symbol.start.0, symbol.clone())).collect();
        hit.symbols = all.symbols;
        hit
    }
}

impl TextRange {
    /// Whether it is a function, or what is known to end where it ends, with bytes that never changed.
    fn may_stay(&self) -> bool {
        self.end == End::Code && self.versions.iter().count() == 1
    }

    /// A copy that may be hit in the next interval.
    fn copy(&self) -> Self {
        Self {
            len: self.len,
            versions: TextVersions::read_first(self.versions.last().to_vec()),
            why: Why::Kept(0),
            end: self.end,
            read_since: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::module_text::WINDOW;
    use super::*;
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::{ModuleIdx, Symbol, Text};

    fn cover(text: &mut ModuleText, at: u64, function: (u64, u64)) -> u32 {
        let mut n_read = 0;
        let bounds = ImageAddr(0x1000)..ImageAddr(0x10_0000);
        let symbol = Symbol {
            start: ImageAddr(function.0),
            len: function.1,
            name: "f".to_owned(),
        };
        if text.hit(ImageAddr(at)).is_none() {
            text.cover(ImageAddr(at), bounds, Some(symbol), &mut |_, bytes| {
                n_read += 1;
                bytes.fill(0x90);
                true
            });
        }
        n_read
    }

    fn emitted(text: &mut ModuleText, mut left: usize) -> (Vec<(u64, usize)>, usize) {
        let mut out: Vec<Text> = Vec::new();
        let symbols = text.take_hit(&mut left).emit(ModuleIdx(0), &mut out);
        let found = out.iter().map(|text| (text.start.0, text.bytes.len()));
        (found.collect(), symbols.len())
    }

    #[test]
    fn functions_are_read_once_and_handed_over_where_they_are_hit() {
        let mut text = ModuleText::default();
        let (f, g) = ((0x1200, 0x80), (0x2000, 0x40));
        assert_eq!((cover(&mut text, 0x1210, f), cover(&mut text, 0x2000, g)), (1, 1));
        let both = vec![(f.0, 0x80), (g.0, 0x40)];
        assert_eq!(emitted(&mut text, 1 << 20), (both.clone(), 2));
        assert_eq!(emitted(&mut text, 1 << 20), (Vec::new(), 0));
        assert_eq!((cover(&mut text, 0x1250, f), text.n_bytes()), (0, 0xc0));
        assert_eq!(emitted(&mut text, 1 << 20), (vec![both[0]], 1));
        for _ in 0..KEPT {
            assert_eq!(emitted(&mut text, 1 << 20), (Vec::new(), 0));
        }
        assert!(text.is_empty() && text.n_bytes() == 0 && text.symbols.is_empty());
        assert_eq!(cover(&mut text, 0x1210, f), 1, "it is read anew");
    }

    #[test]
    fn stored_text_is_bounded_and_whole() {
        let mut text = ModuleText::default();
        cover(&mut text, 0x1210, (0x1200, 0x80));
        cover(&mut text, 0x2000, (0x2000, 0x40));
        assert_eq!(emitted(&mut text, 0x7f).0.len(), 2);
        assert_eq!(text.n_bytes(), 0x40, "the first one does not fit");
        // A window, and the next one that code runs into.
        cover(&mut text, 0x1_8000, (0x1_0000, 0x1_0000));
        cover(&mut text, 0x1_8000 + WINDOW - 1, (0x1_0000, 0x1_0000));
        assert_eq!(emitted(&mut text, 1 << 20).0.len(), 1);
        assert_eq!(text.n_bytes(), 0x40, "no window");
    }
}
