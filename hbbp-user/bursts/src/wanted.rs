//! Which pages the bursts of a process lack, so that later ones have them.

use std::cmp::Reverse;
use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hbbp_ebpf::burst::{NEAR, of_register, page_of};
use hbbp_emulate::Value;

/// What a burst that lacks a page adds to its score. Each burst takes an eighth of all scores, so that pages that all bursts lack
/// stay above those that one lacked.
const SCORE: u32 = 4096;
/// Pages with less are forgotten: 33 bursts after a single one that lacked them.
const LEAST: u32 = 64;
/// The score of a page that most bursts need.
const STEADY: u32 = 3 * SCORE;
/// Most pages with a score.
const MOST: usize = 256;

/// Pages and registers, with their scores.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    scores: HashMap<u64, u32, FixedState>,
}

impl Wanted {
    /// Takes the pages that a burst needed, those it had and those it lacked, and the registers that it began with. What points to
    /// a page that not every burst needs is as much wanted as that page.
    pub(crate) fn burst(&mut self, needed: impl Iterator<Item = u64>, registers: &[Value; 16]) {
        self.scores.retain(|_, score| {
            *score -= *score >> 3;
            LEAST <= *score
        });
        for page in needed {
            if self.scores.get(&page).is_none_or(|score| *score < STEADY) {
                let mut pointers =
                    POINTERS.filter(|entry| page_of(*entry, |of| registers[of & 15].bits) == page);
                if let Some(pointer) = pointers.next() {
                    self.add(pointer);
                }
            }
            self.add(page);
        }
    }

    fn add(&mut self, entry: u64) {
        if self.scores.len() < MOST || self.scores.contains_key(&entry) {
            *self.scores.entry(entry).or_default() += SCORE;
        }
    }

    /// All, most wanted first, and the lower of equals.
    pub(crate) fn most(&self) -> Vec<u64> {
        let mut entries: Vec<(u64, u32)> = self
            .scores
            .iter()
            .map(|(entry, score)| (*entry, *score))
            .collect();
        entries.sort_by_key(|(entry, score)| (Reverse(*score), *entry));
        entries.into_iter().map(|(entry, _)| entry).collect()
    }
}

/// All registers, as what is wanted instead of pages.
const POINTERS: Range<u64> = of_register(0, 0)..of_register(15, NEAR.len() as u64 - 1) + 1;

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: [Value; 16] = [Value::known(0); 16];

    #[test]
    fn what_all_bursts_need_stays_first() {
        let mut wanted = Wanted::default();
        for n in 0..100 {
            wanted.burst([7 << 12, (1000 + n) << 12].into_iter(), &NOWHERE);
        }
        assert_eq!(wanted.most()[..2], [7 << 12, 1099 << 12]);
        assert!(wanted.most().len() < 40, "{:?}", wanted.most());
    }

    #[test]
    fn a_register_is_wanted_whose_page_is_another_each_time() {
        let mut wanted = Wanted::default();
        for n in 10..100_u64 {
            let mut registers = NOWHERE;
            registers[6] = Value::known(n << 12 | 0x123);
            registers[7] = Value::known(5 << 12);
            wanted.burst([5 << 12, n << 12, (n + 1) << 12].into_iter(), &registers);
        }
        let most = wanted.most();
        assert_eq!(most[..3], [of_register(6, 0), of_register(6, 1), 5 << 12]);
        assert!(!most.contains(&of_register(7, 0)), "its page is always the same");
    }

    #[test]
    fn pages_are_bounded() {
        let mut wanted = Wanted::default();
        wanted.burst((1..10_000).map(|page| page << 12), &NOWHERE);
        assert_eq!(wanted.most().len(), MOST);
    }
}
