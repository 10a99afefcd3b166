//! Instructions to basic blocks: where a block begins.
//!
//! Leaders are the first instruction of a text, starts of symbols, targets of direct branches, instructions after the
//! end of a block, and observed targets of taken branches.
//! Interrupts return to any instruction, so their return targets are not leaders: hot blocks would be split further the
//! longer they are observed. Streams that start or end inside a block are counted by instruction instead.

use super::flow::Flow;
use super::form::Instruction;
use crate::locate::{Located, Location};

/// The instruction indices at which blocks begin, for instructions without gaps.
///
/// `leaders` are further offsets, in any order, that begin a block if they begin an instruction.
pub(super) fn firsts(instructions: &[Instruction], leaders: impl Iterator<Item = u32>) -> Box<[u32]> {
    // A bitmap of offsets is faster than a search for the instruction of each leader.
    let n_offsets = instructions.last().map_or(0, |last| last.offset as usize + 1);
    let mut leads = vec![false; n_offsets];
    for offset in leaders {
        if let Some(lead) = leads.get_mut(offset as usize) {
            *lead = true;
        }
    }
    let mut after_end = true;
    let mut firsts = Vec::with_capacity(instructions.len() / 4);
    for (instruction, i) in instructions.iter().zip(0u32..) {
        let leads = leads.get(instruction.offset as usize) == Some(&true);
        if leads || after_end || instruction.flow == Flow::Invalid {
            firsts.push(i);
        }
        after_end = instruction.flow.ends_block();
    }
    firsts.into()
}

/// The instruction indices at which blocks begin, from those that are known (sorted) and further `leaders`, which are offsets
/// in any order as in [`firsts`].
pub(super) fn with_leaders(
    known: &[u32],
    instructions: &[Instruction],
    leaders: impl Iterator<Item = u32>,
) -> Box<[u32]> {
    let index = |offset: u32| {
        let found = instructions.binary_search_by_key(&offset, |instruction| instruction.offset);
        found.ok().and_then(|index| u32::try_from(index).ok())
    };
    let is_new = |first: &u32| known.binary_search(first).is_err();
    let mut more: Vec<u32> = leaders.filter_map(index).filter(is_new).collect();
    if more.is_empty() {
        return known.into();
    }
    more.extend(known);
    more.sort_unstable();
    more.dedup();
    more.into()
}

/// Observed targets of taken branches other than interrupt returns, sorted.
///
/// `flow` is the control flow of the instruction at a location.
pub(super) fn observed_targets(located: &Located, flow: impl Fn(Location) -> Option<Flow>) -> Vec<Location> {
    let mut targets = Vec::new();
    let mut returns = Vec::new();
    for branch in &located.branches {
        match flow(branch.from) {
            Some(Flow::InterruptReturn) => returns.extend(branch.to),
            _ => targets.extend(branch.to),
        }
    }
    returns.sort_unstable();
    let starts = located.streams.iter().map(|s| s.start);
    targets.extend(starts.filter(|start| returns.binary_search(start).is_err()));
    targets.sort_unstable();
    targets.dedup();
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::FormIdx;
    use crate::locate::{LocatedBranch, LocatedStream, TextIdx};
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::{EventIdx, ProcessIdx};

    fn instructions(flows: &[Flow]) -> Vec<Instruction> {
        let form = FormIdx(0);
        flows
            .iter()
            .zip(0u32..)
            .map(|(&flow, i)| Instruction {
                offset: i * 2,
                form,
                len: 2,
                flow,
            })
            .collect()
    }

    fn location(addr: u64) -> Location {
        Location {
            text: TextIdx(0),
            addr: ImageAddr(addr),
        }
    }

    #[test]
    fn blocks_end_at_branches_and_begin_at_leaders() {
        let flows = [
            Flow::Next,
            Flow::Call,
            Flow::Next,
            Flow::Next,
            Flow::Conditional,
            Flow::Next,
        ];
        let instructions = instructions(&flows);
        assert_eq!(*firsts(&instructions, [].into_iter()), [0, 2, 5]);
        assert_eq!(*firsts(&instructions, [6, 7, 100].into_iter()), [0, 2, 3, 5]);
    }

    #[test]
    fn leaders_that_are_known_later_give_the_same_blocks() {
        let instructions = instructions(&[Flow::Next, Flow::Call, Flow::Next, Flow::Next, Flow::Next]);
        let leaders = [8, 6, 100, 3, 4];
        let known = firsts(&instructions, [].into_iter());
        let later = with_leaders(&known, &instructions, leaders.into_iter());
        assert_eq!(later, firsts(&instructions, leaders.into_iter()));
        assert_eq!(*later, [0, 2, 3, 4]);
        assert_eq!(with_leaders(&known, &instructions, [1].into_iter()), known);
    }

    #[test]
    fn invalid_bytes_end_a_block() {
        let instructions = instructions(&[Flow::Next, Flow::Invalid, Flow::Next]);
        assert_eq!(*firsts(&instructions, [].into_iter()), [0, 1, 2]);
    }

    #[test]
    fn interrupt_return_targets_are_not_leaders() {
        let branch = |from, to| LocatedBranch {
            process: ProcessIdx::KERNEL,
            from: location(from),
            to: Some(location(to)),
            event: EventIdx(0),
            hits: 1,
            oldest: 0,
            weight: 1.0,
            oldest_weight: 0.0,
            mispredicted: None,
        };
        let stream = |start| LocatedStream {
            start: location(start),
            end: ImageAddr(99),
            event: EventIdx(0),
            process: ProcessIdx(0),
            hits: 1,
            weight: 1.0,
        };
        let located = Located {
            branches: vec![branch(1, 10), branch(2, 20), branch(1, 20)],
            streams: vec![stream(10), stream(20), stream(30)],
            ..Located::default()
        };
        let flow = |p: Location| {
            Some(if p.addr.0 == 1 {
                Flow::InterruptReturn
            } else {
                Flow::Jump
            })
        };
        assert_eq!(observed_targets(&located, flow), [location(20), location(30)]);
    }
}
