//! Both sources side by side for each block, and the choice between them.

use super::hybrid::{self, Case};
use super::rule::{Features, Rule};
use super::{BlockCount, Counted, Figure, Occurrences, Part, Source, Unit, error};
use crate::addr::Ring;
use crate::blocks::{BlockId, BlockMap};
use crate::snapshot::Snapshot;

/// What turns counts into figures.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) unit: Unit,
    pub(super) streams_per_stack: f64,
}

/// What the sources saw, each list sorted by block.
pub(super) struct Seen<'a> {
    pub(super) ebs: &'a [Counted],
    pub(super) lbr: &'a [Counted],
    pub(super) branches: &'a [Occurrences],
    pub(super) due_share: f64,
}

/// Chooses a source for every block that one of them saw.
pub(super) fn join(
    snapshot: &Snapshot,
    map: &BlockMap,
    rule: &Rule,
    scale: Scale,
    seen: &Seen<'_>,
) -> (Vec<BlockCount>, Vec<Part>) {
    let ring = |block: BlockId| super::ring(snapshot, map, block.text);
    let ebs_supply = Supply::of(seen.ebs, ring);
    let lbr_supply = Supply::of(seen.lbr, ring);
    let (mut ebs_left, mut lbr_left, mut branches_left) = (seen.ebs, seen.lbr, seen.branches);
    let mut blocks: Vec<BlockCount> = Vec::new();
    let mut parts: Vec<Part> = Vec::new();
    while let Some(block) = lower(ebs_left.first(), lbr_left.first()) {
        let ebs = take(&mut ebs_left, |c| c.block, block);
        let lbr = take(&mut lbr_left, |c| c.block, block);
        let branch = take(&mut branches_left, |b| b.block, block).first().copied();
        let range = map.text(block.text).map_or(0..0, |text| text.block(block.block));
        let instructions = range.end.saturating_sub(range.start).max(1);
        let ring = ring(block);
        let biased = branch.is_some_and(|b| b.biased(seen.due_share));

        let ebs_figure = ebs_supply.serves(ring).then(|| scale.ebs(ebs, instructions));
        let lbr_figure = lbr_supply.serves(ring).then(|| scale.lbr(lbr));
        let of = |figure: Option<Figure>| figure.unwrap_or_default();
        let features = Features {
            instructions: f64::from(instructions),
            biased: f64::from(u8::from(biased)),
            ebs_hits: of(ebs_figure).hits,
            lbr_hits: of(lbr_figure).hits,
        };
        let ebs_due = ebs_supply.hits_of(of(lbr_figure).count * f64::from(instructions));
        let lbr_due = lbr_supply.hits_of(of(ebs_figure).count);
        let case = Case {
            features,
            ebs: ebs_figure,
            lbr: lbr_figure,
            ebs_due,
            lbr_due,
        };
        let (source, reason) = hybrid::choose(rule, &case);

        let (chosen, length) = match source {
            Source::Ebs => (ebs, instructions),
            Source::Lbr => (lbr, 1),
        };
        parts.extend(chosen.iter().map(|c| Part {
            block: blocks.len(),
            process: c.process,
            hits: c.hits,
            count: scale.count(c) / f64::from(length),
        }));
        blocks.push(BlockCount {
            block,
            ring,
            instructions,
            ebs: ebs_figure,
            lbr: lbr_figure,
            branch,
            biased,
            source,
            reason,
        });
    }
    (blocks, parts)
}

fn lower(a: Option<&Counted>, b: Option<&Counted>) -> Option<BlockId> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.block.min(b.block)),
        (a, b) => a.or(b).map(|c| c.block),
    }
}

/// Takes what belongs to `block` from the front of a list that is sorted by block.
fn take<'a, T>(left: &mut &'a [T], block_of: impl Fn(&T) -> BlockId, block: BlockId) -> &'a [T] {
    let skipped = left.iter().take_while(|item| block_of(item) < block).count();
    let rest = left.get(skipped..).unwrap_or(&[]);
    let taken = rest.iter().take_while(|item| block_of(item) == block).count();
    let (found, rest) = rest.split_at_checked(taken).unwrap_or((rest, &[]));
    *left = rest;
    found
}

impl Scale {
    /// What a count is worth: executions are weighed by the periods of their samples, samples are just counted.
    fn count(self, counted: &Counted) -> f64 {
        match self.unit {
            Unit::Executions => counted.weight,
            Unit::TimeWeightedSamples | Unit::EventWeightedSamples => counted.hits,
        }
    }

    fn ebs(self, counts: &[Counted], instructions: u32) -> Figure {
        let hits = counts.iter().map(|c| c.hits).sum();
        let count = counts.iter().map(|c| self.count(c)).sum::<f64>() / f64::from(instructions);
        Figure {
            hits,
            count,
            std_error: error::independent(hits, count),
        }
    }

    fn lbr(self, counts: &[Counted]) -> Figure {
        let hits = counts.iter().map(|c| c.hits).sum();
        let count = counts.iter().map(|c| self.count(c)).sum();
        Figure {
            hits,
            count,
            std_error: error::clustered(hits, count, self.streams_per_stack),
        }
    }
}

/// What a source has in all: whether in each ring, and what one of its hits weighs.
struct Supply {
    kernel: bool,
    user: bool,
    hits: f64,
    weight: f64,
}

impl Supply {
    fn of(counts: &[Counted], ring: impl Fn(BlockId) -> Ring) -> Self {
        let mut supply = Self {
            kernel: false,
            user: false,
            hits: 0.0,
            weight: 0.0,
        };
        for counted in counts {
            match ring(counted.block) {
                Ring::Kernel => supply.kernel = true,
                Ring::User => supply.user = true,
            }
            supply.hits += counted.hits;
            supply.weight += counted.weight;
        }
        supply
    }

    const fn serves(&self, ring: Ring) -> bool {
        match ring {
            Ring::Kernel => self.kernel,
            Ring::User => self.user,
        }
    }

    /// The hits that a weight stands for.
    fn hits_of(&self, weight: f64) -> f64 {
        if 0.0 < self.weight {
            weight * self.hits / self.weight
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Reason;
    use crate::estimate::rule::PAPER;
    use crate::locate::TextIdx;
    use crate::snapshot::ProcessIdx;

    /// A count in the n-th block of a text; without a map every block has one instruction and belongs to user code.
    fn counted(block: u32, process: u32, hits: f64, period: f64) -> Counted {
        let block = BlockId {
            text: TextIdx(0),
            block,
        };
        Counted {
            block,
            process: ProcessIdx(process),
            hits,
            weight: hits * period,
        }
    }

    fn joined(unit: Unit, ebs: &[Counted], lbr: &[Counted]) -> (Vec<BlockCount>, Vec<Part>) {
        let scale = Scale {
            unit,
            streams_per_stack: 4.0,
        };
        let seen = Seen {
            ebs,
            lbr,
            branches: &[],
            due_share: 0.0,
        };
        join(
            &Snapshot::default(),
            &BlockMap::default(),
            &PAPER.parse().unwrap(),
            scale,
            &seen,
        )
    }

    #[test]
    fn every_block_that_one_source_saw_is_there_once() {
        let ebs = [
            counted(1, 1, 9.0, 100.0),
            counted(1, 2, 7.0, 100.0),
            counted(3, 1, 16.0, 100.0),
            counted(4, 1, 1.0, 100.0),
        ];
        let lbr = [counted(0, 1, 2.0, 8.0), counted(1, 2, 100.0, 8.0)];
        let (blocks, parts) = joined(Unit::Executions, &ebs, &lbr);
        let found: Vec<_> = blocks
            .iter()
            .map(|b| (b.block.block, b.source, b.chosen().count))
            .collect();
        assert_eq!(
            found,
            [
                (0, Source::Lbr, 16.0),
                (1, Source::Lbr, 800.0),
                (3, Source::Ebs, 1600.0),
                (4, Source::Lbr, 0.0)
            ]
        );
        assert_eq!(
            blocks[1].ebs.map(|f| (f.hits, f.count, f.std_error)),
            Some((16.0, 1600.0, 400.0))
        );
        assert_eq!(
            blocks[1].lbr.map(|f| f.std_error),
            Some(800.0 / (100.0f64 / 4.0).sqrt())
        );
        assert_eq!(
            blocks[2].reason,
            Reason::OtherIsBlind,
            "sixteen samples stand for two hundred streams that are not there"
        );
        for (n, block) in blocks.iter().enumerate() {
            let sum: f64 = parts.iter().filter(|p| p.block == n).map(|p| p.count).sum();
            assert_eq!(sum, block.chosen().count);
        }
    }

    #[test]
    fn samples_stay_samples() {
        let (blocks, _) = joined(Unit::TimeWeightedSamples, &[counted(1, 1, 9.0, 100.0)], &[]);
        assert_eq!(blocks[0].chosen().count, 9.0);
        assert_eq!(
            (blocks[0].source, blocks[0].reason, blocks[0].lbr),
            (Source::Ebs, Reason::OnlySource, None)
        );
    }
}
