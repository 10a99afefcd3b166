//! Code that samples show and streams never do: its share of all instructions.
//!
//! The method of such a block is EBS ([`super::Reason::Fallback`]), as streams missed a block that they should have seen often.
//! What was counted of the whole run is counted of it as well, so that streams which represent all taken branches would have its part
//! twice: pipes between processes had 0.4 % of instructions too many on every hardware profile (kernel-tests/results/landed.txt).

use super::Estimate;
use super::error::independent;
use super::rule::saw_nothing;
use super::sources::stream::Stream;
use super::sources::{Counted, SeenBlocks};
use crate::sums::over;
use hbbp_code::locate::TextIdx;

/// Parts of an execution that rounding leaves of none.
const NONE: f64 = 1e-6;

/// The share of the samples' instructions that are in blocks which streams missed, of these texts: those of a ring, or all.
pub(super) fn share(
    seen: &SeenBlocks,
    samples: &[Counted],
    streams: &[Stream],
    is_of: impl Fn(TextIdx) -> bool,
) -> f64 {
    let ran = seen.executions(streams.iter().map(|stream| stream.hits as f64));
    let (mut hits, mut weight) = (0.0, 0.0);
    for stream in streams.iter().filter(|stream| is_of(stream.text)) {
        hits += stream.hits as f64;
        weight += stream.weight;
    }
    let (mut unseen, mut all) = (0.0, 0.0);
    let blocks = samples.chunk_by(|a, b| a.block == b.block);
    for block in blocks.filter(|block| block.first().is_some_and(|first| is_of(first.block.text))) {
        let instructions: f64 = block.iter().map(|counted| counted.weight).sum();
        all += instructions;
        let number = block.first().and_then(|counted| seen.number(counted.block));
        let length = number.and_then(|number| seen.lengths.get(number));
        let was_seen = number
            .and_then(|number| ran.get(number))
            .is_some_and(|ran| NONE < *ran);
        let (Some(length), false) = (length, was_seen) else {
            continue;
        };
        let (sampled, count) = (
            block.iter().map(|counted| counted.hits).sum(),
            instructions / f64::from(*length),
        );
        let ebs = Estimate {
            hits: sampled,
            count,
            std_error: independent(sampled, count),
        };
        if saw_nothing(&Estimate::default(), &ebs, count * over(hits, weight)) {
            unseen += instructions;
        }
    }
    over(unseen, all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::blocks::{BlockId, BlockMap};
    use hbbp_model::snapshot::ProcessIdx;

    fn counted(block: u32, process: u32, hits: f64) -> Counted {
        Counted {
            block: BlockId {
                text: TextIdx(0),
                block,
            },
            process: ProcessIdx(process),
            hits,
            weight: 1000.0 * hits,
        }
    }

    #[test]
    fn only_what_streams_should_have_seen_is_unseen() {
        // Without a map a block has one instruction and no stream executes any; a stream represents a hundred executions.
        let samples = [
            counted(0, 1, 30.0),
            counted(0, 2, 30.0),
            counted(1, 1, 3.0),
            counted(2, 1, 37.0),
        ];
        let seen = SeenBlocks::new(&BlockMap::default(), &samples, &[], &[]);
        let stream = Stream {
            text: TextIdx(0),
            process: ProcessIdx(0),
            first: 0,
            end: 1,
            source: 0,
            hits: 10,
            weight: 1000.0,
        };
        // Three samples may be chance.
        assert_eq!(share(&seen, &samples, &[stream], |_| true), 0.97);
        // Of another text there is nothing.
        assert_eq!(share(&seen, &samples, &[stream], |text| text != TextIdx(0)), 0.0);
        // Streams that represent ten times as many executions are too few.
        let rare = Stream {
            weight: 1e7,
            ..stream
        };
        assert_eq!(share(&seen, &samples, &[rare], |_| true), 0.0);
        assert_eq!(share(&seen, &[], &[], |_| true), 0.0);
    }
}
