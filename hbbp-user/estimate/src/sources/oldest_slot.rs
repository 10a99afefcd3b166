//! Branches that sit in the oldest slot of the branch stack too often: paper section III.C.
//!
//! The source in the oldest slot (the paper's `entry[0]`) has no target before it and ends no stream.
//! A branch that is found there out of proportion makes the LBR count of the block that it ends suspect.

use super::streams::Amounts;
use crate::EventAssignment;
use crate::sums::over;
use hbbp_code::blocks::{BlockId, BlockMap};
use hbbp_code::locate::{Located, Location};

/// Expected occurrences in the oldest slot from which on a branch is judged.
/// Below five, a Poisson count is not close enough to normal for [`SIGMAS`] to mean anything (Cochran's rule).
const ENOUGH: f64 = 5.0;

/// How many times its expected share a branch must have in the oldest slot to be called biased.
/// The paper gives no number ("a disproportionate number of times"); genuine recordings show single branches up to
/// three times over-represented.
const FACTOR: f64 = 2.0;

/// Standard deviations above the expected count, so that chance flags less than one unbiased branch in 700.
const SIGMAS: f64 = 3.0;

/// How often the branch that ends a block was recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Occurrences {
    /// The block.
    pub block: BlockId,
    /// Occurrences in any slot, as they count in the flow ([`Amounts`]).
    pub hits: f64,
    /// Occurrences in the oldest slot.
    pub oldest: f64,
    /// The variance of such counts over that of as many occurrences that count one each; 1 where all stacks count alike.
    pub dispersion: f64,
}

/// The recorded branches of all stacks.
pub(crate) struct Branches {
    /// Those that end a block, sorted by block, each once.
    pub(crate) of_blocks: Vec<Occurrences>,
    /// Branch stacks: each has one oldest slot.
    pub(crate) stacks: f64,
    /// The share of all recorded branches that is in the oldest slot: one over the mean depth of the stacks.
    pub(crate) share: f64,
}

impl Branches {
    /// Counts the branches of these events.
    pub(crate) fn new(
        located: &Located,
        map: &BlockMap,
        assignment: &EventAssignment,
        amounts: &Amounts,
    ) -> Self {
        let mut of_blocks: Vec<Occurrences> = Vec::new();
        let (mut all, mut of_oldest, mut stacks) = (0.0, 0.0, 0.0);
        for branch in assignment.branches(located) {
            let [hits, oldest] = [branch.weight, branch.oldest_weight].map(|weight| amounts.of(weight));
            all += hits;
            of_oldest += oldest;
            stacks += branch.oldest as f64;
            let Some(block) = block(map, branch.from) else {
                continue;
            };
            let dispersion = over(hits, branch.hits as f64);
            match of_blocks.last_mut().filter(|last| last.block == block) {
                Some(last) => {
                    let squares = last.dispersion * last.hits + dispersion * hits;
                    last.hits += hits;
                    last.oldest += oldest;
                    last.dispersion = over(squares, last.hits);
                }
                None => of_blocks.push(Occurrences {
                    block,
                    hits,
                    oldest,
                    dispersion,
                }),
            }
        }
        let share = if 0.0 < all { of_oldest / all } else { 0.0 };
        Self {
            of_blocks,
            stacks,
            share,
        }
    }

    /// The share of all oldest slots that branches hold beyond what is expected, less what chance gives them.
    /// Where many branches sit there a little too often, none of them need be called biased.
    pub(crate) fn excess(&self) -> f64 {
        let (mut all, mut beyond) = (0.0, 0.0);
        for branch in &self.of_blocks {
            let (expected, oldest) = (branch.hits * self.share, branch.oldest);
            all += oldest;
            beyond += (oldest - expected).max(0.0) - chance(expected, branch.dispersion);
        }
        if 0.0 < all { beyond / all } else { 0.0 }
    }

    /// A standard deviation of [`Self::excess`] by chance, or more: what a Poisson count is above its mean varies by less than the
    /// count itself, which is by as many as are expected.
    pub(crate) fn excess_by_chance(&self) -> f64 {
        let (mut all, mut squares) = (0.0, 0.0);
        for branch in &self.of_blocks {
            all += branch.oldest;
            squares += branch.oldest * branch.dispersion;
        }
        squares.sqrt() / all
    }
}

/// Half of the mean deviation of a count that is `expected`, and whose variance is `dispersion` times that: of a normal distribution, or
/// of one that is zero most of the time, which is its mean.
pub(crate) fn chance(expected: f64, dispersion: f64) -> f64 {
    (expected * dispersion / std::f64::consts::TAU)
        .sqrt()
        .min(expected)
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

impl Occurrences {
    /// Whether the branch sits in the oldest slot more often than in a `share` of its occurrences, beyond chance.
    pub(crate) fn biased(&self, share: f64) -> bool {
        // As many stacks that count one each.
        let expected = self.hits * share / self.dispersion;
        let oldest = self.oldest / self.dispersion;
        ENOUGH <= expected && FACTOR * expected <= oldest && expected + SIGMAS * expected.sqrt() < oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::locate::TextIdx;

    fn branch(hits: u64, oldest: u64) -> Occurrences {
        let block = BlockId {
            text: TextIdx(0),
            block: 0,
        };
        Occurrences {
            block,
            hits: hits as f64,
            oldest: oldest as f64,
            dispersion: 1.0,
        }
    }

    #[test]
    fn only_disproportion_beyond_chance_is_bias() {
        let of = |hits, oldest| branch(hits, oldest).biased(1.0 / 16.0);
        assert!(!of(1600, 100), "its expected share");
        assert!(of(1600, 800), "the paper's 50 %");
        assert!(!of(1600, 199), "less than twice its expected share");
        assert!(!of(32, 20), "two are expected: too few to judge");
        assert!(
            !of(80, 10) && of(80, 12),
            "five are expected, and twelve are three sigmas more"
        );
    }

    #[test]
    fn excess_is_what_chance_does_not_explain() {
        let excess = |oldest: [u64; 2]| {
            let of_blocks = (0..100).map(|n| branch(1600, oldest[n % 2])).collect();
            let branches = Branches {
                of_blocks,
                stacks: 0.0,
                share: 1.0 / 16.0,
            };
            branches.excess()
        };
        // A hundred branches, each as often in the oldest slot as one in sixteen gives it, but for a deviation or so.
        assert!(excess([108, 92]).abs() < 0.01);
        assert!((excess([140, 60]) - 0.2).abs() < 0.05);
    }

    #[test]
    fn many_stacks_tell_a_small_excess_from_chance() {
        // A hundred branches that are all due as often, and drawn by chance: by a generator of Park and Miller.
        let mut state = 1_u64;
        let mut draw = || {
            state = state * 48_271 % 0x7fff_ffff;
            (state % 100) as usize
        };
        for n_stacks in [10_000, 100_000] {
            let mut oldest = [0_u64; 100];
            (0..n_stacks).for_each(|_| oldest[draw()] += 1);
            let excess = |oldest: &[u64]| {
                let due = |oldest: &u64| branch(16 * n_stacks / 100, *oldest);
                let branches = Branches {
                    of_blocks: oldest.iter().map(due).collect(),
                    stacks: 0.0,
                    share: 1.0 / 16.0,
                };
                branches.excess() / branches.excess_by_chance()
            };
            let fair = excess(&oldest);
            assert!(fair.abs() < 1.0, "{fair}");
            // One branch holds 1.5 % of the stacks more.
            oldest[0] += n_stacks * 15 / 1000;
            let biased = excess(&oldest);
            assert_eq!(2.0 < biased, n_stacks == 100_000, "{biased}");
        }
    }
}
