//! Training pairs: each block of a profile with what a rule can ask of it, the estimates of both methods, and its exact count.
//!
//! A block is a pair where both methods have data of its ring and each of its addresses is in that block alone. Code
//! that was patched is in several versions of a text, and exact counts by address do not say which of them was
//! executed. What is in none of the pairs is summed by ring, so that pairs and remainder make the totals of the
//! evaluation.

use std::collections::BTreeMap;

use super::amounts::{Amounts, FunctionKey};
use super::block::Address;
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::Site;
use hbbp_estimate::rule::Features;
use hbbp_estimate::{BlockCount, BlockCounts};
use hbbp_model::addr::{ImageAddr, Ring};

/// A block of the profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Its ring.
    pub ring: Ring,
    /// Number of its function, for [`super::Evaluation::function`].
    pub(super) location: usize,
    /// Its first instruction.
    pub start: ImageAddr,
    /// What a rule can ask of it.
    pub features: Features,
    /// Executed instructions, exact and by each method.
    pub amounts: Amounts,
}

/// All of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs {
    /// The pairs, in the order of the blocks.
    pub blocks: Vec<Pair>,
    /// Executed instructions of each ring in none of them.
    pub remainder: BTreeMap<Ring, Amounts>,
}

impl Pairs {
    /// The pairs of an estimate, from the amounts of all addresses in their order, and of what has no address.
    pub(super) fn of(
        map: &BlockMap,
        counts: &BlockCounts,
        addresses: &[((Ring, Site), Address)],
        unplaced: &[(usize, Amounts)],
        locations: &[FunctionKey],
    ) -> Self {
        let blocks: Vec<(&BlockCount, Vec<usize>)> = counts
            .blocks
            .iter()
            .filter_map(|block| Some((block, numbers(map, block, addresses)?)))
            .collect();
        let mut holders = vec![0u32; addresses.len()];
        for at in blocks.iter().flat_map(|(_, members)| members) {
            holders.get_mut(*at).into_iter().for_each(|holders| *holders += 1);
        }
        let mut pairs = Self::default();
        let mut is_in_pair = vec![false; addresses.len()];
        for (block, members) in &blocks {
            let is_alone = members.iter().all(|at| holders.get(*at) == Some(&1));
            let first = members.first().and_then(|at| addresses.get(*at));
            let Some(((_, site), address)) = first.filter(|_| is_alone && has_both(block)) else {
                continue;
            };
            let mut amounts = Amounts::default();
            for at in members {
                is_in_pair.get_mut(*at).into_iter().for_each(|is| *is = true);
                addresses
                    .get(*at)
                    .into_iter()
                    .for_each(|(_, it)| amounts.add(&it.amounts));
            }
            pairs.blocks.push(Pair {
                ring: block.ring,
                location: address.location,
                start: site.addr,
                features: Features::of(block),
                amounts,
            });
        }
        let others = addresses.iter().zip(&is_in_pair).filter(|(_, is)| !**is);
        for (((ring, _), address), _) in others {
            pairs.remainder.entry(*ring).or_default().add(&address.amounts);
        }
        for (location, amounts) in unplaced {
            if let Some(function) = locations.get(*location) {
                pairs.remainder.entry(function.ring).or_default().add(amounts);
            }
        }
        pairs
    }
}

fn has_both(block: &BlockCount) -> bool {
    block.ebs.is_some() && block.lbr.is_some()
}

/// The numbers of the addresses of a block; `None` of code that the reference does not count.
fn numbers(map: &BlockMap, block: &BlockCount, addresses: &[((Ring, Site), Address)]) -> Option<Vec<usize>> {
    let text = map.text(block.block.text)?;
    let number = |instruction| {
        let site = Site {
            module: text.module,
            addr: text.addr(instruction),
        };
        addresses
            .binary_search_by_key(&(block.ring, site), |(key, _)| *key)
            .ok()
    };
    let instructions = map.instructions(block.block);
    instructions
        .iter()
        .map(|instruction| number(*instruction))
        .collect()
}
