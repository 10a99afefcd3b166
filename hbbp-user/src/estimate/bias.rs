//! Branches that sit in the oldest slot of the branch stack too often: paper section III.C.
//!
//! The source in the oldest slot (the paper's `entry[0]`) has no target before it and ends no stream.
//! A branch that is found there out of proportion makes the LBR count of the block that it ends suspect.

use crate::blocks::{BlockId, BlockMap};
use crate::locate::{Located, Location};
use crate::snapshot::EventIdx;

/// Expected occurrences in the oldest slot from which on a branch is judged.
/// Below five, a Poisson count is not close enough to normal for [`SIGMAS`] to mean anything (Cochran's rule).
const ENOUGH: f64 = 5.0;

/// How many times its due share a branch must have in the oldest slot to be called biased.
/// The paper gives no number ("a disproportionate number of times"); genuine recordings show single branches up to
/// three times over-represented.
const FACTOR: f64 = 2.0;

/// Standard deviations above what is due, so that chance flags less than one unbiased branch in 700.
const SIGMAS: f64 = 3.0;

/// How often the branch that ends a block was recorded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Occurrences {
    /// The block.
    pub block: BlockId,
    /// Occurrences in any slot.
    pub hits: u64,
    /// Occurrences in the oldest slot.
    pub oldest: u64,
}

/// How often the branches of blocks were recorded, sorted by block, each once.
pub(super) fn occurrences(located: &Located, map: &BlockMap, lbr: &[EventIdx]) -> Vec<Occurrences> {
    let mut found: Vec<Occurrences> = Vec::new();
    for branch in located.branches.iter().filter(|b| lbr.contains(&b.event)) {
        let Some(block) = block(map, branch.from) else {
            continue;
        };
        match found.last_mut().filter(|last| last.block == block) {
            Some(last) => {
                last.hits = last.hits.saturating_add(branch.hits);
                last.oldest = last.oldest.saturating_add(branch.oldest);
            }
            None => found.push(Occurrences {
                block,
                hits: branch.hits,
                oldest: branch.oldest,
            }),
        }
    }
    found
}

fn block(map: &BlockMap, place: Location) -> Option<BlockId> {
    let text = map.text(place.text)?;
    let instruction = text.find(place.addr).ok()?;
    let is_branch = text.instruction(instruction).is_some_and(|i| i.flow.is_branch());
    is_branch.then(|| BlockId {
        text: place.text,
        block: text.block_of(instruction),
    })
}

/// The share of all recorded branches that is found in the oldest slot: one over the mean depth of the stacks.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of branches stay far below 2^53"
)]
pub(super) fn due_share(located: &Located, lbr: &[EventIdx]) -> f64 {
    let of_event = || located.branches.iter().filter(|b| lbr.contains(&b.event));
    let hits: f64 = of_event().map(|b| b.hits as f64).sum();
    let oldest: f64 = of_event().map(|b| b.oldest as f64).sum();
    if 0.0 < hits { oldest / hits } else { 0.0 }
}

/// The share of all oldest slots that branches hold beyond what is due to them, less what chance gives them.
/// Where many branches sit there a little too often, none of them need be called biased.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of branches stay far below 2^53"
)]
pub(super) fn excess(occurrences: &[Occurrences], due_share: f64) -> f64 {
    let (mut all, mut beyond) = (0.0, 0.0);
    for branch in occurrences {
        let (due, oldest) = (branch.hits as f64 * due_share, branch.oldest as f64);
        // Half of the mean deviation of a normal distribution; of a count that is zero most of the time, its mean.
        let chance = (due / std::f64::consts::TAU).sqrt().min(due);
        all += oldest;
        beyond += (oldest - due).max(0.0) - chance;
    }
    if 0.0 < all { beyond / all } else { 0.0 }
}

impl Occurrences {
    /// Whether the branch sits in the oldest slot more often than `due_share` of its occurrences, beyond chance.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of branches stay far below 2^53"
    )]
    pub fn biased(&self, due_share: f64) -> bool {
        let due = self.hits as f64 * due_share;
        let oldest = self.oldest as f64;
        ENOUGH <= due && FACTOR * due <= oldest && due + SIGMAS * due.sqrt() < oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locate::TextIdx;

    #[test]
    fn only_disproportion_beyond_chance_is_bias() {
        let of = |hits, oldest| {
            let block = BlockId {
                text: TextIdx(0),
                block: 0,
            };
            Occurrences { block, hits, oldest }.biased(1.0 / 16.0)
        };
        assert!(!of(1600, 100), "its due share");
        assert!(of(1600, 800), "the paper's 50 %");
        assert!(!of(1600, 199), "less than twice its due");
        assert!(!of(32, 20), "two are due: too few to judge");
        assert!(
            !of(80, 10) && of(80, 12),
            "five are due, and twelve are three sigmas more"
        );
    }

    #[test]
    fn excess_is_what_chance_does_not_explain() {
        let of = |hits, oldest| {
            let block = BlockId {
                text: TextIdx(0),
                block: 0,
            };
            Occurrences { block, hits, oldest }
        };
        // A hundred branches, each as often in the oldest slot as one in sixteen gives it, but for a deviation or so.
        let even: Vec<_> = (0..100u64)
            .map(|n| of(1600, if n % 2 == 0 { 108 } else { 92 }))
            .collect();
        assert!(excess(&even, 1.0 / 16.0).abs() < 0.01);
        let biased: Vec<_> = (0..100u64)
            .map(|n| of(1600, if n % 2 == 0 { 140 } else { 60 }))
            .collect();
        assert!((excess(&biased, 1.0 / 16.0) - 0.2).abs() < 0.05);
        assert_eq!(excess(&[], 0.0), 0.0);
    }
}
