//! How much counts vary where stacks do not count alike.
//!
//! A stack of the ring that is sampled more densely counts less ([`Amounts`]). So a count of such stacks comes from more of them than
//! it looks like, and varies less. Of h occurrences that count s each, the variance is the sum of s^2 h; stacks that all count one
//! would have the sum of s h. Standard errors are those of stacks that count one ([`super::bootstrap`]), times the root of the ratio.
//!
//! [`Amounts`]: super::super::sources::streams::Amounts

use super::super::sources::SeenBlocks;
use super::super::sources::lbr::{by_block, execution_counts};
use super::super::sources::stream::Stream;
use super::super::sources::streams::Amounts;
use crate::sums::over;
use hbbp_code::blocks::BlockMap;

/// By block, the variance of its count over that of stacks that all count one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dispersion {
    of_blocks: Vec<f64>,
}

impl Dispersion {
    /// Of the blocks that these streams executed.
    pub(crate) fn new(map: &BlockMap, seen: &SeenBlocks, streams: &[Stream], amounts: &Amounts) -> Self {
        let sums = |weight: fn(f64, f64) -> f64| {
            let weighed = streams
                .iter()
                .zip(&amounts.of_streams)
                .map(|(stream, amount)| Stream {
                    weight: weight(*amount, stream.hits as f64),
                    ..*stream
                });
            let weighed: Vec<Stream> = weighed.collect();
            let mut sums = vec![0.0; seen.ids.len()];
            for counted in by_block(map, &execution_counts(&weighed)) {
                if let Some(sum) = seen.number(counted.block).and_then(|number| sums.get_mut(number)) {
                    *sum += counted.weight;
                }
            }
            sums
        };
        let squares = sums(|amount, hits| over(amount * amount, hits));
        let amounts = sums(|amount, _| amount);
        let of_block = |(squares, amount): (&f64, &f64)| match 0.0 < *amount {
            true => squares / amount,
            false => 1.0,
        };
        Self {
            of_blocks: squares.iter().zip(&amounts).map(of_block).collect(),
        }
    }

    /// Of a block by its number.
    pub(crate) fn of_block(&self, block: usize) -> f64 {
        self.of_blocks.get(block).copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::blocks::blocks;
    use hbbp_code::locate::{Located, TextIdx};
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::{Module, ModuleIdx, ModuleKind, ProcessIdx, Snapshot, Text};

    /// The dispersion of the one block of `nop; ret` that streams executed with these hits and amounts.
    fn dispersion(counts: &[(u64, f64)]) -> f64 {
        let snapshot = Snapshot {
            modules: vec![Module {
                name: String::new(),
                kind: ModuleKind::Elf64,
                build_id: Vec::new(),
                symbols: Vec::new(),
            }],
            text: vec![Text {
                module: ModuleIdx(0),
                start: ImageAddr(0),
                bytes: vec![0x90, 0xc3],
                since: 0,
            }],
            ..Snapshot::default()
        };
        let map = blocks(&snapshot, &Located::default());
        let stream = |(hits, _): &(u64, f64)| Stream {
            text: TextIdx(0),
            process: ProcessIdx(0),
            first: 0,
            end: 2,
            source: 1,
            hits: *hits,
            weight: 1.0,
        };
        let streams: Vec<Stream> = counts.iter().map(stream).collect();
        let amounts = Amounts {
            of_streams: counts.iter().map(|(_, amount)| *amount).collect(),
            of_unit: 1.0,
        };
        let seen = SeenBlocks::of(&map, &[], &streams);
        Dispersion::new(&map, &seen, &streams, &amounts).of_block(0)
    }

    #[test]
    fn what_is_sampled_more_densely_varies_less() {
        // Four times as many stacks for the same amount: a quarter of the variance.
        assert_eq!(dispersion(&[(400, 100.0)]), 0.25);
        assert_eq!(dispersion(&[(80, 100.0)]), 1.25);
        // Half of what is seen is of each event: (400 / 16 + 80 * 1.5625) / 200.
        assert_eq!(dispersion(&[(400, 100.0), (80, 100.0)]), 0.75);
    }

    #[test]
    fn stacks_that_count_alike_have_none() {
        assert_eq!(Dispersion::default().of_block(7), 1.0);
    }
}
