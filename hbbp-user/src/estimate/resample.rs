//! Branch stacks drawn anew from what was recorded, to see how much the streams of one stack have in common.
//!
//! A snapshot holds how often each stream and each branch was seen, not which of them shared a stack.
//! But it holds how they follow each other: a stream ends at a branch, the branch goes to one of its recorded targets,
//! and there the next stream begins. Walks on this chain are stacks as the hardware could have recorded them, and how
//! much a count differs from walk to walk is how much it differs from stack to stack: a parametric bootstrap
//! (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 6.5), with a Markov chain as the model.
//!
//! Not every way is recorded: what user code calls of the kernel is no branch from one to the other. A walk that comes to
//! such an end goes on where streams begin that no recorded branch led to. Anywhere else it would hardly ever be found
//! behind that end, and stacks of a load that makes many system calls would differ more than real ones do.
//!
//! The chain knows neither the process nor how often a loop has been around; both matter little within one stack.

use std::collections::BTreeMap;

use super::phase::{Phases, Spot};
use super::{Roles, Stream, lbr};
use crate::blocks::{BlockId, BlockMap};
use crate::locate::{Located, Location};
use crate::snapshot::ProcessIdx;

/// Stacks to draw. A variance from n stacks that show the count is known to sqrt(2/n) of itself: 4096 leave 2 % for a
/// count that every stack shows, and 14 % for one that one stack in 40 shows; its root is known twice as well.
const N_STACKS: usize = 4096;

/// Stacks drawn from the chain of recorded streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stacks {
    /// Each stack.
    pub stacks: Vec<Drawn>,
}

/// One drawn stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawn {
    /// The phase of the run that it is from, by its oldest stream.
    pub phase: usize,
    /// What ran in it: blocks with process image and number of runs, a part of a block being a part of a run.
    pub ran: Vec<Ran>,
}

/// What ran in one stack of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ran {
    /// Index in [`super::BlockCounts::blocks`].
    pub block: usize,
    /// The process image that ran.
    pub process: ProcessIdx,
    /// How often it ran.
    pub times: f64,
}

/// Draws stacks of `depth` streams. None where no branch counts say how the streams follow each other.
pub(super) fn resample(
    streams: &[Stream],
    branches: &[(Spot, Spot, u64)],
    map: &BlockMap,
    phases: &Phases,
    depth: f64,
    index: impl Fn(BlockId) -> Option<usize>,
) -> Stacks {
    let chain = Chain::new(streams, branches);
    if chain.targets.is_empty() || chain.starts.is_empty() {
        return Stacks::default();
    }
    let blocks = |stream: &Stream| {
        let shares = lbr::shares(map, stream.text, stream.first..stream.end);
        let ran = |(block, times)| {
            Some(Ran {
                block: index(block)?,
                process: stream.process,
                times,
            })
        };
        shares.filter_map(ran).collect::<Vec<Ran>>()
    };
    let mut ran: Vec<Option<Vec<Ran>>> = vec![None; streams.len()];
    let mut random = SplitMix(0);
    let mut stacks = Vec::with_capacity(N_STACKS);
    for n in 0..N_STACKS {
        // The first streams are spread evenly over all, which leaves less to chance than drawing them.
        let first = (n as f64 + 0.5) / N_STACKS as f64;
        let walked = chain.walk(first, depth, &mut random);
        let oldest = walked.first().and_then(|oldest| streams.get(*oldest));
        let phase = oldest.and_then(|oldest| phases.of((oldest.text, oldest.first)));
        let mut stack = Drawn {
            phase: phase.unwrap_or(phases.chances().len()),
            ran: Vec::new(),
        };
        for stream in walked {
            if let (Some(ran), Some(stream)) = (ran.get_mut(stream), streams.get(stream)) {
                stack.ran.extend(ran.get_or_insert_with(|| blocks(stream)).iter());
            }
        }
        stacks.push(stack);
    }
    Stacks { stacks }
}

/// How streams follow each other.
struct Chain<'a> {
    streams: &'a [Stream],
    /// The streams, by where they begin.
    starts: Choices<usize>,
    /// Places where streams begin that no recorded branch led to.
    entries: Choices<Spot>,
    /// The targets of branches, by the branch.
    targets: Choices<Spot>,
}

impl<'a> Chain<'a> {
    fn new(streams: &'a [Stream], branches: &[(Spot, Spot, u64)]) -> Self {
        let begin = |stream: &Stream| (stream.text, stream.first);
        let mut unexplained: BTreeMap<Spot, u64> = BTreeMap::new();
        for stream in streams {
            *unexplained.entry(begin(stream)).or_default() += stream.hits;
        }
        for (_, to, hits) in branches {
            if let Some(left) = unexplained.get_mut(to) {
                *left = left.saturating_sub(*hits);
            }
        }
        let numbered = streams.iter().zip(0usize..);
        Self {
            streams,
            starts: Choices::new(numbered.map(|(s, n)| (begin(s), n, s.hits))),
            entries: Choices::new(unexplained.into_iter().map(|(spot, hits)| (spot, spot, hits))),
            targets: Choices::new(branches.iter().copied()),
        }
    }

    /// The streams of one stack, as indices, from the oldest on; the first one by its share of all streams.
    fn walk(&self, first: f64, depth: f64, random: &mut SplitMix) -> Vec<usize> {
        let mut walked = Vec::new();
        let mut next = self.starts.nth_share(first);
        while (walked.len() as f64) < depth {
            // Where the walk leaves what was recorded, the stack goes on somewhere else.
            let Some(stream) = next.or_else(|| self.starts.nth_share(random.fraction())) else {
                break;
            };
            walked.push(stream);
            next = self.streams.get(stream).and_then(|stream| {
                let target = self
                    .targets
                    .draw((stream.text, stream.source), random.fraction())
                    .or_else(|| self.entries.nth_share(random.fraction()))?;
                self.starts.draw(target, random.fraction())
            });
        }
        walked
    }
}

/// The recorded branches: source, target and occurrences.
pub(super) fn branches(located: &Located, map: &BlockMap, roles: &Roles) -> Vec<(Spot, Spot, u64)> {
    let branches = located.branches.iter().filter(|b| roles.lbr.contains(&b.event));
    branches
        .filter_map(|b| Some((spot(map, b.from)?, spot(map, b.to?)?, b.hits)))
        .collect()
}

fn spot(map: &BlockMap, place: Location) -> Option<Spot> {
    Some((place.text, map.text(place.text)?.find(place.addr).ok()?))
}

/// What can come next at each spot, and how often it did.
struct Choices<T> {
    /// Sorted by spot.
    choices: Vec<(Spot, T)>,
    /// Occurrences of all choices before this one, and at the end of all.
    before: Vec<f64>,
}

impl<T: Copy + Ord> Choices<T> {
    fn new(counts: impl Iterator<Item = (Spot, T, u64)>) -> Self {
        let mut counts: Vec<(Spot, T, u64)> = counts.filter(|(.., hits)| 0 < *hits).collect();
        counts.sort_unstable_by_key(|(spot, next, _)| (*spot, *next));
        let mut sum = 0.0;
        let mut before = vec![sum];
        for (.., hits) in &counts {
            sum += *hits as f64;
            before.push(sum);
        }
        Self {
            choices: counts.into_iter().map(|(spot, next, _)| (spot, next)).collect(),
            before,
        }
    }

    fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// The choice at a fraction, from 0 to 1, of all occurrences.
    fn nth_share(&self, fraction: f64) -> Option<T> {
        self.within(0, self.choices.len(), fraction)
    }

    /// The choice at a fraction, from 0 to 1, of all occurrences at one spot.
    fn draw(&self, spot: Spot, fraction: f64) -> Option<T> {
        let from = self.choices.partition_point(|(s, _)| *s < spot);
        let here = self.choices.get(from..)?.partition_point(|(s, _)| *s == spot);
        if here == 0 {
            None
        } else {
            self.within(from, from + here, fraction)
        }
    }

    fn within(&self, from: usize, to: usize, fraction: f64) -> Option<T> {
        let (low, high) = (self.before.get(from)?, self.before.get(to)?);
        let wanted = low + fraction * (high - low);
        let behind = self
            .before
            .get(from..to)?
            .partition_point(|before| *before <= wanted);
        let (_, next) = self.choices.get(from + behind.saturating_sub(1))?;
        Some(*next)
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): numbers that are random enough and the same on every machine.
struct SplitMix(u64);

impl SplitMix {
    /// A number from 0 to below 1.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as f64 / 18_446_744_073_709_551_616.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Strata;
    use crate::estimate::error::Spread;
    use crate::locate::TextIdx;
    use proptest::prelude::*;

    fn stream(first: u32, source: u32, hits: u64) -> Stream {
        Stream {
            text: TextIdx(0),
            process: ProcessIdx(0),
            first,
            end: source + 1,
            source,
            hits,
            weight: 1.0,
        }
    }

    fn spot(instruction: u32) -> Spot {
        (TextIdx(0), instruction)
    }

    /// Relative variance of how often stream 0 is in a stack of 31, for a chain with these branches.
    fn variance(streams: &[Stream], branches: &[(u32, u32, u64)]) -> f64 {
        let branches: Vec<_> = branches
            .iter()
            .map(|&(from, to, hits)| (spot(from), spot(to), hits))
            .collect();
        let chain = Chain::new(streams, &branches);
        let mut random = SplitMix(7);
        let mut spread = Spread::default();
        for n in 0..N_STACKS {
            let stack = chain.walk((n as f64 + 0.5) / N_STACKS as f64, 31.0, &mut random);
            assert_eq!(stack.len(), 31);
            let times = stack.iter().filter(|stream| **stream == 0).count();
            if 0 < times {
                spread.add(0, times as f64);
            }
        }
        let one_phase = Strata {
            stacks: vec![N_STACKS as f64],
            chance: vec![0.0],
            ..Strata::default()
        };
        spread.relative_variance(&one_phase).unwrap()
    }

    #[test]
    fn what_follows_itself_fills_whole_stacks() {
        // Two loops of one block each: half of the stacks show the first one 31 times, half not at all.
        let streams = [stream(0, 4, 100), stream(10, 14, 100)];
        let loops = variance(&streams, &[(4, 0, 100), (14, 10, 100)]);
        assert!((loops - 1.0).abs() < 0.01, "{loops}");
        // After each block either follows: the 31 streams of a stack are independent, and so Var = (1 - p) / (31 p).
        let mixed = variance(&streams, &[(4, 0, 50), (4, 10, 50), (14, 0, 50), (14, 10, 50)]);
        assert!((mixed - 1.0 / 31.0).abs() < 0.004, "{mixed}");
        // They take turns: 15 or 16 of each are in every stack.
        let turns = variance(&streams, &[(4, 10, 100), (14, 0, 100)]);
        assert!(turns < 0.002, "{turns}");
    }

    #[test]
    fn an_unrecorded_way_leads_where_no_recorded_one_does() {
        // A program calls the kernel (0 to 10), which is no branch, and the kernel returns; beside them a loop.
        let streams = [stream(0, 4, 100), stream(10, 14, 100), stream(20, 24, 1000)];
        let found = variance(&streams, &[(14, 0, 100), (24, 20, 1000)]);
        // One stack in six is of both, with 15 or 16 of each: Var = (1 - p) / p.
        assert!((found - 5.0).abs() < 0.05, "{found}");
    }

    #[test]
    fn without_branches_nothing_is_drawn() {
        let (map, phases) = (BlockMap::default(), Phases::default());
        assert_eq!(
            resample(&[stream(0, 1, 1)], &[], &map, &phases, 31.0, |_| None),
            Stacks::default()
        );
    }

    proptest! {
        #[test]
        fn choices_are_drawn_by_their_share(
            hits in prop::collection::vec(1u64..50, 1..20),
            fraction in 0.0f64..1.0,
        ) {
            let choices = Choices::new(hits.iter().zip(0u32..).map(|(hits, n)| (spot(n / 4), n, *hits)));
            let drawn = choices.nth_share(fraction).unwrap() as usize;
            let before: u64 = hits[..drawn].iter().sum();
            let wanted = fraction * hits.iter().sum::<u64>() as f64;
            prop_assert!(before as f64 <= wanted && wanted < (before + hits[drawn]) as f64 + 1e-9);
            let here = choices.draw(spot(0), fraction).unwrap();
            prop_assert!(here < 4);
            prop_assert_eq!(choices.draw(spot(99), fraction), None);
        }
    }
}
