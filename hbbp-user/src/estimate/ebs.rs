//! Event based sampling: paper section III.A.
//!
//! An eventing IP in a block counts for the whole block:
//! executions(block) = samples in the block x period / instructions in the block.
//! Samples of a clock are spread over the instructions of their block in the same way, but stay samples.

use super::{Counted, Roles};
use crate::addr::Ring;
use crate::blocks::{BlockId, BlockMap, Flow, TextBlocks};
use crate::locate::{Located, LocatedIp, Tally, Unresolved};
use crate::snapshot::{EventUnit, Snapshot};

/// What became of the samples of all events.
pub(super) struct Sampled {
    /// Samples of the events that serve as EBS, sorted by (block, process).
    pub(super) counts: Vec<Counted>,
    /// Samples on instructions, by event; together with `unresolved` all that were located.
    pub(super) resolved: Tally<()>,
    /// Samples that hit no instruction, or found the CPU halted.
    pub(super) unresolved: Tally<Unresolved>,
}

/// Finds the block of every sample.
pub(super) fn sampled(snapshot: &Snapshot, located: &Located, map: &BlockMap, roles: &Roles) -> Sampled {
    let mut sampled = Sampled {
        counts: Vec::new(),
        resolved: Tally::default(),
        unresolved: Tally::default(),
    };
    for ip in &located.ips {
        let ring = super::ring(snapshot, map, ip.location.text);
        let unit = snapshot
            .run
            .events
            .get(ip.event.0 as usize)
            .map_or(EventUnit::Other, |event| event.unit);
        match block(map, ip, ring, unit) {
            Ok(block) => {
                sampled.resolved.add(ip.event, (), ring, ip.hits);
                if roles.ebs.contains(&ip.event) {
                    sampled.counts.push(counted(block, ip));
                }
            }
            Err(why) => sampled.unresolved.add(ip.event, why, ring, ip.hits),
        }
    }
    sampled.counts = super::summed(sampled.counts);
    sampled
}

fn counted(block: BlockId, ip: &LocatedIp) -> Counted {
    let (hits, weight) = (ip.hits as f64, ip.weight as f64);
    Counted {
        block,
        process: ip.process,
        hits,
        weight,
    }
}

fn block(map: &BlockMap, ip: &LocatedIp, ring: Ring, unit: EventUnit) -> Result<BlockId, Unresolved> {
    let text = map.text(ip.location.text).ok_or(Unresolved::NoText)?;
    let instruction = text.find(ip.location.addr)?;
    let by_time = matches!(unit, EventUnit::Nanoseconds | EventUnit::Cycles);
    if by_time && ring == Ring::Kernel && follows_idle(text, instruction) {
        return Err(Unresolved::Halted);
    }
    Ok(BlockId {
        text: ip.location.text,
        block: text.block_of(instruction),
    })
}

/// Whether the instruction before waits for an interrupt. The interrupt of a clock finds a halted CPU at the
/// instruction behind HLT (SDM vol. 2, HLT: "the saved instruction pointer points to the instruction following").
fn follows_idle(text: &TextBlocks, instruction: u32) -> bool {
    let before = instruction
        .checked_sub(1)
        .and_then(|before| text.instruction(before));
    before.is_some_and(|before| before.flow == Flow::Idle)
}
