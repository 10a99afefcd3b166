//! Inclusive time of loops, and who called them, from call chains ([`crate::callers`]).
//!
//! A sample is charged once to each loop that its instruction or a call on its chain lies in, so that recursion counts
//! once. Samples without a chain, and callers that are not known, are not charged, so inclusive time is a lower bound.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::call_sites::{CallSite, Calls};
use super::function::range_at;
use super::nest::Loops;
use super::region::Region;
use crate::callers::{At, Callers, Charged};
use crate::mix::{Estimated, function as function_at};
use crate::time::Amount;
use hbbp_code::blocks::{BlockId, BlockMap};
use hbbp_code::locate::TextIdx;
use hbbp_model::snapshot::Snapshot;

/// Most calls that are kept of all, and of each loop.
const MOST_SITES: usize = 50;
const MOST_CALLERS: usize = 5;

/// The functions with calls on chains that are not among the ranges of blocks that were `seen`, sorted.
pub(super) fn unseen(
    callers: &Callers,
    snapshot: &Snapshot,
    map: &BlockMap,
    seen: &[(TextIdx, Range<u32>)],
) -> Vec<(TextIdx, Range<u32>)> {
    let calls: BTreeSet<At> = callers.charged.iter().flat_map(|it| &it.calls).copied().collect();
    let mut found: Vec<(TextIdx, Range<u32>)> = Vec::new();
    for (idx, call) in calls {
        let Some(text) = map.text(idx) else { continue };
        let block = text.block_of(call);
        let covers = |(of, range): &(TextIdx, Range<u32>)| *of == idx && range.contains(&block);
        let before = seen.partition_point(|(of, range)| (*of, range.start) <= (idx, block));
        let last = before.checked_sub(1).and_then(|last| seen.get(last));
        if last.is_some_and(covers) || found.last().is_some_and(covers) {
            continue;
        }
        if let Some(module) = snapshot.modules.get(text.module.0 as usize) {
            found.push((idx, range_at(module, text, block)));
        }
    }
    found
}

impl Loops {
    /// Fills in inclusive times and callers.
    pub(super) fn charge(&mut self, callers: &Callers, estimated: &Estimated<'_>) {
        let map = &estimated.map;
        let regions: Vec<&Region> = self
            .loops
            .iter()
            .map(|it| &it.region)
            .chain(&self.irreducible)
            .collect();
        let sums = Sums::new(callers, map, &regions);
        let samples = callers.total.hits;
        let site = |(call, amount): (At, Amount)| -> Option<CallSite> {
            let text = map.text(call.0)?;
            let addr = text.addr(text.instruction(call.1)?);
            let module = estimated.snapshot.modules.get(text.module.0 as usize)?;
            let named = || format!("{}+{addr}", module.name);
            Some(CallSite {
                module: text.module,
                addr,
                function: function_at(module, addr).unwrap_or_else(named),
                line: None,
                within: sums.regions.innermost(call, &self.loops),
                time: amount.figure(samples),
            })
        };
        let by_time = |all: BTreeMap<At, Amount>, most: usize| -> Vec<CallSite> {
            let mut all: Vec<(At, Amount)> = all.into_iter().collect();
            all.sort_by(|(a, x), (b, y)| y.units.total_cmp(&x.units).then(a.cmp(b)));
            all.into_iter().take(most).filter_map(site).collect()
        };
        let all = callers.by_call();
        let calls = Calls {
            unit: callers.unit,
            total: callers.total.units,
            ends: callers.ends,
            n_sites: all.len(),
            sites: by_time(all, MOST_SITES),
        };
        let of_loops: Vec<Vec<CallSite>> = sums
            .callers
            .into_iter()
            .map(|callers| by_time(callers, MOST_CALLERS))
            .collect();
        let inclusive = sums.inclusive;
        for ((it, callers), amount) in self.loops.iter_mut().zip(of_loops).zip(&inclusive) {
            it.callers = callers;
            it.region.inclusive = Some(amount.figure(samples));
        }
        let irreducible = inclusive.iter().skip(self.loops.len());
        for (region, amount) in self.irreducible.iter_mut().zip(irreducible) {
            region.inclusive = Some(amount.figure(samples));
        }
        self.calls = Some(calls);
    }
}

/// The regions of each block.
struct Regions<'a> {
    of: HashMap<BlockId, Vec<usize>>,
    map: &'a BlockMap,
}

impl<'a> Regions<'a> {
    fn new(map: &'a BlockMap, regions: &[&Region]) -> Self {
        let mut of: HashMap<BlockId, Vec<usize>> = HashMap::new();
        for (n, region) in regions.iter().enumerate() {
            for block in &region.blocks {
                let id = BlockId {
                    text: region.text,
                    block: *block,
                };
                of.entry(id).or_default().push(n);
            }
        }
        Self { of, map }
    }

    /// Those that an instruction lies in.
    fn at(&self, (text, instruction): At) -> &[usize] {
        let block = self.map.text(text).map(|it| it.block_of(instruction));
        let id = block.map(|block| BlockId { text, block });
        id.and_then(|id| self.of.get(&id)).map_or(&[], Vec::as_slice)
    }

    /// The innermost loop that an instruction lies in.
    fn innermost(&self, at: At, loops: &[super::Loop]) -> Option<usize> {
        let depth = |n: &usize| loops.get(*n).map(|it| it.depth);
        let inside = self.at(at).iter().filter(|n| **n < loops.len());
        inside.copied().max_by_key(|n| depth(n))
    }
}

/// Inclusive time by region, and who called each.
struct Sums<'a> {
    regions: Regions<'a>,
    inclusive: Vec<Amount>,
    callers: Vec<BTreeMap<At, Amount>>,
}

impl<'a> Sums<'a> {
    fn new(callers: &Callers, map: &'a BlockMap, regions: &[&Region]) -> Self {
        let mut sums = Self {
            regions: Regions::new(map, regions),
            inclusive: vec![Amount::default(); regions.len()],
            callers: vec![BTreeMap::new(); regions.len()],
        };
        for charged in &callers.charged {
            sums.add(charged);
        }
        sums
    }

    fn add(&mut self, charged: &Charged) {
        // Finds the outermost frame of each region on the chain. The next call entered the region from outside.
        let mut places: BTreeMap<usize, usize> = BTreeMap::new();
        let chain = std::iter::once(&charged.spender).chain(&charged.calls);
        for (place, at) in chain.enumerate() {
            places.extend(self.regions.at(*at).iter().map(|region| (*region, place)));
        }
        for (region, place) in places {
            if let Some(sum) = self.inclusive.get_mut(region) {
                *sum += charged.amount;
            }
            if let Some((callers, call)) = self.callers.get_mut(region).zip(charged.calls.get(place)) {
                *callers.entry(*call).or_default() += charged.amount;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Loop, loops};
    use super::*;
    use crate::callers::tests::sampled;
    use hbbp_estimate::rule::PAPER;

    #[test]
    fn a_loop_is_charged_with_what_it_calls_once() {
        // In `leaf`, which `f` called, which called itself twice, and was called by the loop of `main`; and by an
        // unknown caller. What lies after a call belongs to the callee.
        let snapshot = sampled(&[
            (0x21, 0x19, &[0x1e, 0x1e, 0x9], 3),
            (0x14, 0, &[0x9], 2),
            (0x2e, 0, &[0x9], 5),
            (0x9, 0, &[], 1),
        ]);
        let estimated = Estimated::new(&snapshot, &PAPER.parse().unwrap());
        let found = loops(&estimated);
        let calls = found.calls.as_ref().unwrap();
        assert_eq!((calls.total, calls.n_sites), (110.0, 4));
        assert_eq!(calls.ends.without_caller, 5);
        let [main] = found.loops.as_slice() else {
            panic!("{found:#?}")
        };
        assert_eq!((main.region.function.as_str(), main.callers.len()), ("main", 0));
        assert_eq!(main.region.inclusive.unwrap().value, 60.0);
        let in_main = calls.sites.iter().find(|site| site.function == "main").unwrap();
        assert_eq!(
            (in_main.addr.0, in_main.within, in_main.time.value),
            (4, Some(0), 60.0)
        );
    }

    #[test]
    fn a_loop_that_was_never_sampled_itself_has_its_time() {
        let snapshot = sampled(&[(0x14, 0, &[0x9], 2)]);
        let estimated = Estimated::new(&snapshot, &PAPER.parse().unwrap());
        let found = loops(&estimated);
        let inclusive = |it: &Loop| it.region.inclusive.map(|time| time.value);
        let all: Vec<_> = found.loops.iter().map(inclusive).collect();
        assert_eq!(all, [Some(20.0)]);
    }
}
