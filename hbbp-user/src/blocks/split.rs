//! Instructions to basic blocks: where a block begins.
//!
//! A leader is the first instruction of a text, a symbol's start, the target of a direct branch, what follows an
//! instruction that ends a block, and what was observed as the target of a taken branch.
//! Interrupts return to wherever they struck; such a target is no leader, or hot blocks would fall to pieces with the
//! time that they are watched. Streams that begin or end inside a block are counted by the instruction instead.

use super::decode::{Flow, Instruction};
use crate::locate::{Located, Place};

/// The instruction indices at which blocks begin, for instructions without a gap.
///
/// `leaders` are further offsets, in any order, that begin a block if they begin an instruction.
pub(super) fn firsts(instructions: &[Instruction], leaders: impl Iterator<Item = u32>) -> Box<[u32]> {
    // One mark for each offset is filled faster than the instruction of each leader is looked for.
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

/// The places where branches of the program were observed to arrive, sorted.
///
/// `flow` tells how the instruction at a place passes control on.
pub(super) fn arrivals(located: &Located, flow: impl Fn(Place) -> Option<Flow>) -> Vec<Place> {
    let mut arrivals = Vec::new();
    let mut returns = Vec::new();
    for branch in &located.branches {
        match flow(branch.from) {
            Some(Flow::InterruptReturn) => returns.extend(branch.to),
            _ => arrivals.extend(branch.to),
        }
    }
    returns.sort_unstable();
    let starts = located.streams.iter().map(|s| s.start);
    arrivals.extend(starts.filter(|start| returns.binary_search(start).is_err()));
    arrivals.sort_unstable();
    arrivals.dedup();
    arrivals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::ImageAddr;
    use crate::blocks::FormIdx;
    use crate::locate::{LocatedBranch, LocatedStream, TextIdx};
    use crate::snapshot::{EventIdx, ProcessIdx};

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

    fn place(addr: u64) -> Place {
        Place {
            text: TextIdx(0),
            addr: ImageAddr(addr),
        }
    }

    #[test]
    fn blocks_end_at_transfers_and_begin_at_leaders() {
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
    fn bytes_that_are_no_instruction_end_a_block() {
        let instructions = instructions(&[Flow::Next, Flow::Invalid, Flow::Next]);
        assert_eq!(*firsts(&instructions, [].into_iter()), [0, 1, 2]);
    }

    #[test]
    fn where_only_interrupts_return_to_no_block_begins() {
        let branch = |from, to| LocatedBranch {
            process: ProcessIdx::KERNEL,
            from: place(from),
            to: Some(place(to)),
            event: EventIdx(0),
            hits: 1,
            oldest: 0,
        };
        let stream = |start| LocatedStream {
            start: place(start),
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
        let flow = |p: Place| {
            Some(if p.addr.0 == 1 {
                Flow::InterruptReturn
            } else {
                Flow::Jump
            })
        };
        assert_eq!(arrivals(&located, flow), [place(20), place(30)]);
    }
}
