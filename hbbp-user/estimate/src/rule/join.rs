//! Both methods side by side for each block, and the choice between them.

use super::super::error::{Corrections, clustered, independent};
use super::super::sources::oldest_slot::Occurrences;
use super::super::sources::{Counted, SeenBlocks, Supply, ring};
use super::choose::{Case, choose};
use super::tree::{Features, Rule};
use crate::{BlockCount, Estimate, Method, Part, Reason, Skid};
use hbbp_code::blocks::{BlockId, BlockMap};
use hbbp_model::snapshot::Snapshot;

/// What the methods saw of all blocks, each list sorted by block.
pub(crate) struct Evidence<'a> {
    pub(crate) seen: &'a SeenBlocks,
    pub(crate) ebs: &'a [Counted],
    pub(crate) lbr: &'a [Counted],
    pub(crate) branches: &'a [Occurrences],
    /// The share of all branches that is in the oldest slot.
    pub(crate) oldest_share: f64,
    /// For each block, the relative standard error of LBR as bootstrap replicates show it, where enough of them do.
    pub(crate) lbr_errors: &'a [Option<f64>],
    pub(crate) streams_per_stack: f64,
    /// What was corrected.
    pub(crate) corrections: &'a Corrections,
    /// Where samples were traced back.
    pub(crate) skid: Option<Skid>,
}

/// Chooses a method for every block that one of them saw.
pub(crate) fn join(
    snapshot: &Snapshot,
    map: &BlockMap,
    rule: &Rule,
    evidence: &Evidence<'_>,
) -> (Vec<BlockCount>, Vec<Part>) {
    let of_block = |id: BlockId| ring(snapshot, map, id.text);
    let [ebs_supply, lbr_supply] = [evidence.ebs, evidence.lbr].map(|counts| Supply::of(counts, of_block));
    let (mut ebs_left, mut lbr_left, mut branches_left) = (evidence.ebs, evidence.lbr, evidence.branches);
    let mut blocks: Vec<BlockCount> = Vec::with_capacity(evidence.seen.ids.len());
    let mut parts: Vec<Part> = Vec::new();
    let numbered = evidence.seen.ids.iter().zip(&evidence.seen.lengths).enumerate();
    for (number, (&block, &length)) in numbered {
        let ebs = take(&mut ebs_left, |c| c.block, block);
        let lbr = take(&mut lbr_left, |c| c.block, block);
        let branch = take(&mut branches_left, |b| b.block, block).first().copied();
        let ring = of_block(block);
        let of = |counts: &[Counted], method, supply: &Supply| {
            let serves = supply.serves(ring);
            serves.then(|| evidence.estimate(number, counts, method))
        };
        let mut one = BlockCount {
            block,
            ring,
            instructions: length,
            ebs: of(ebs, Method::Ebs, &ebs_supply),
            lbr: of(lbr, Method::Lbr, &lbr_supply),
            branch,
            biased: branch.is_some_and(|b| b.biased(evidence.oldest_share)),
            method: Method::Lbr,
            reason: Reason::OnlyMethod,
            tied: None,
        };
        let case = Case {
            features: Features::of(&one),
            ebs: one.ebs,
            lbr: one.lbr,
            ebs_expected: ebs_supply
                .hits_of(one.of(Method::Lbr).unwrap_or_default().count * f64::from(length)),
            lbr_expected: lbr_supply.hits_of(one.of(Method::Ebs).unwrap_or_default().count),
        };
        (one.method, one.reason) = choose(rule, &case);
        let chosen = match one.method {
            Method::Ebs => ebs,
            Method::Lbr => lbr,
        };
        parts.extend(chosen.iter().map(|c| Part {
            block: number,
            process: c.process,
            instruction: None,
            hits: c.hits,
            count: evidence.executions(number, one.method, c.weight),
        }));
        blocks.push(one);
    }
    (blocks, parts)
}

/// Takes what belongs to `block` from the front of a list that is sorted by block.
fn take<'a, T>(left: &mut &'a [T], block_of: impl Fn(&T) -> BlockId, block: BlockId) -> &'a [T] {
    let skipped = left.iter().take_while(|item| block_of(item) < block).count();
    let remainder = left.get(skipped..).unwrap_or(&[]);
    let taken = remainder
        .iter()
        .take_while(|item| block_of(item) == block)
        .count();
    let (found, remainder) = remainder.split_at_checked(taken).unwrap_or((remainder, &[]));
    *left = remainder;
    found
}

impl Evidence<'_> {
    /// What a weight of a method says of the executions of a block: a sample counts for each of its instructions.
    fn executions(&self, block: usize, method: Method, weight: f64) -> f64 {
        match method {
            Method::Ebs => weight / f64::from(self.seen.lengths.get(block).copied().unwrap_or(1)),
            Method::Lbr => weight,
        }
    }

    /// The estimate of one method.
    fn estimate(&self, block: usize, counts: &[Counted], method: Method) -> Estimate {
        let hits = counts.iter().map(|c| c.hits).sum();
        let weights = counts.iter().map(|c| c.weight);
        let count = weights.map(|weight| self.executions(block, method, weight)).sum();
        let shown = self.lbr_errors.get(block).copied().flatten();
        let by_chance = match (method, shown) {
            (Method::Ebs, _) => match &self.skid {
                Some(skid) => skid.std_error(hits, count),
                None => independent(hits, count),
            },
            (Method::Lbr, Some(shown)) => count * shown,
            (Method::Lbr, None) => clustered(hits, count, self.streams_per_stack),
        };
        let left = match method {
            Method::Ebs => 0.0,
            Method::Lbr => {
                let length = f64::from(self.seen.lengths.get(block).copied().unwrap_or(1).max(1));
                let of_model = self.corrections.of_model(count * length) / (length * length);
                self.corrections.of_block(block).variance() + of_model
            }
        };
        Estimate {
            hits,
            count,
            std_error: by_chance.hypot(left.sqrt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PAPER;
    use super::*;
    use hbbp_code::locate::TextIdx;
    use hbbp_model::snapshot::ProcessIdx;

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

    fn joined(ebs: &[Counted], lbr: &[Counted], lbr_errors: &[Option<f64>]) -> (Vec<BlockCount>, Vec<Part>) {
        let map = BlockMap::default();
        let evidence = Evidence {
            seen: &SeenBlocks::new(&map, ebs, lbr, &[]),
            ebs,
            lbr,
            branches: &[],
            oldest_share: 0.0,
            lbr_errors,
            streams_per_stack: 4.0,
            corrections: &Corrections::default(),
            skid: None,
        };
        join(&Snapshot::default(), &map, &PAPER.parse().unwrap(), &evidence)
    }

    #[test]
    fn every_block_that_one_method_saw_is_there_once() {
        let ebs = [
            counted(1, 1, 9.0, 100.0),
            counted(1, 2, 7.0, 100.0),
            counted(3, 1, 16.0, 100.0),
            counted(4, 1, 1.0, 100.0),
        ];
        let lbr = [counted(0, 1, 2.0, 8.0), counted(1, 2, 100.0, 8.0)];
        let (blocks, parts) = joined(&ebs, &lbr, &[Some(0.5)]);
        let found: Vec<_> = blocks
            .iter()
            .map(|b| (b.block.block, b.method, b.chosen().count))
            .collect();
        assert_eq!(
            found,
            [
                (0, Method::Lbr, 16.0),
                (1, Method::Lbr, 800.0),
                (3, Method::Ebs, 1600.0),
                (4, Method::Lbr, 0.0)
            ]
        );
        assert_eq!(
            blocks[1].ebs.map(|f| (f.hits, f.count, f.std_error)),
            Some((16.0, 1600.0, 400.0))
        );
        assert_eq!(
            blocks[0].lbr.map(|f| f.std_error),
            Some(8.0),
            "as the replicates show it"
        );
        assert_eq!(
            blocks[1].lbr.map(|f| f.std_error),
            Some(800.0 / (100.0f64 / 4.0).sqrt())
        );
        assert_eq!(
            blocks[2].reason,
            Reason::Fallback,
            "sixteen samples imply two hundred streams that are not there"
        );
        for (n, block) in blocks.iter().enumerate() {
            let sum: f64 = parts.iter().filter(|p| p.block == n).map(|p| p.count).sum();
            assert_eq!(sum, block.chosen().count);
        }
    }

    #[test]
    fn one_method_alone_serves_its_ring() {
        let (blocks, _) = joined(&[counted(1, 1, 9.0, 1.0)], &[], &[]);
        assert_eq!(blocks[0].chosen().count, 9.0);
        assert_eq!(
            (blocks[0].method, blocks[0].reason, blocks[0].lbr),
            (Method::Ebs, Reason::OnlyMethod, None)
        );
    }
}
