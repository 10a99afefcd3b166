//! Inclusive figures of loops and functions, and who called them, from call chains ([`crate::callers`]).
//!
//! A sample is charged once to each region that its instruction or a call on its chain lies in, so that recursion counts
//! once. Samples without a chain, and callers that are not known, are not charged, so inclusive time is a lower bound.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::call_sites::{CallSite, Calls};
use super::executed::{Below, Executed, Known};
use super::function::range_at;
use super::nest::Loops;
use super::region::{Inclusive, Region};
use crate::callers::{At, Callers, Charged};
use crate::mix::{Estimated, function as function_at};
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
    /// Fills in inclusive figures and callers.
    pub(super) fn charge(&mut self, callers: &Callers, estimated: &Estimated<'_>) {
        let map = &estimated.map;
        let regions: Vec<&Region> = self
            .loops
            .iter()
            .map(|it| &it.region)
            .chain(&self.irreducible)
            .chain(&self.functions)
            .collect();
        let executed = Executed::new(map, &self.functions, callers, self.known(callers));
        let sums = Sums::new(callers, &executed, Regions::new(map, &regions), regions.len());
        let site = |(call, below): (At, Below)| -> Option<CallSite> {
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
                called: executed.inclusive(&below, None),
            })
        };
        let by_time = |all: BTreeMap<At, Below>, most: usize| -> Vec<CallSite> {
            let mut all: Vec<(At, Below)> = all.into_iter().collect();
            all.sort_by(|(a, x), (b, y)| y.time.units.total_cmp(&x.time.units).then(a.cmp(b)));
            all.into_iter().take(most).filter_map(site).collect()
        };
        let all = callers.by_call(|below: &mut Below, charged| {
            below.add(executed.find(charged.spender), charged.amount);
        });
        let calls = Calls {
            unit: callers.unit,
            total: callers.total.units,
            ends: callers.ends,
            n_sites: all.len(),
            sites: by_time(all, MOST_SITES),
        };
        let n_loops = self.loops.len();
        let of_loops: Vec<Vec<CallSite>> = sums
            .callers
            .into_iter()
            .take(n_loops)
            .map(|callers| by_time(callers, MOST_CALLERS))
            .collect();
        let inclusive: Vec<Inclusive> = regions
            .iter()
            .zip(&sums.inclusive)
            .map(|(region, below)| executed.inclusive(below, Some(region.amount)))
            .collect();
        self.set(inclusive, of_loops);
        self.calls = Some(calls);
    }

    /// What is known next to the time of call chains.
    fn known(&self, callers: &Callers) -> Known {
        Known {
            executions: self.unit.is_some_and(Self::has_executions),
            same_time: self.time.is_some_and(|(unit, _)| unit == callers.unit),
        }
    }

    /// Sets the inclusive figures of all regions, and the callers of loops, in their order.
    fn set(&mut self, inclusive: Vec<Inclusive>, callers: Vec<Vec<CallSite>>) {
        for (it, callers) in self.loops.iter_mut().zip(callers) {
            it.callers = callers;
        }
        let regions = self.loops.iter_mut().map(|it| &mut it.region);
        let regions = regions.chain(&mut self.irreducible).chain(&mut self.functions);
        for (region, inclusive) in regions.zip(inclusive) {
            region.inclusive = Some(inclusive);
        }
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

/// What each region spent and called, and who called it.
struct Sums<'a> {
    regions: Regions<'a>,
    /// Without the functions that a region's own time is of: its instructions are known.
    inclusive: Vec<Below>,
    callers: Vec<BTreeMap<At, Below>>,
}

impl<'a> Sums<'a> {
    fn new(callers: &Callers, executed: &Executed<'_>, regions: Regions<'a>, n_regions: usize) -> Self {
        let mut sums = Self {
            regions,
            inclusive: vec![Below::default(); n_regions],
            callers: vec![BTreeMap::new(); n_regions],
        };
        for charged in &callers.charged {
            sums.add(charged, executed.find(charged.spender));
        }
        sums
    }

    fn add(&mut self, charged: &Charged, function: Option<usize>) {
        // Finds the outermost frame of each region on the chain. The next call entered the region from outside.
        let mut places: BTreeMap<usize, usize> = BTreeMap::new();
        let chain = std::iter::once(&charged.spender).chain(&charged.calls);
        for (place, at) in chain.enumerate() {
            places.extend(self.regions.at(*at).iter().map(|region| (*region, place)));
        }
        let own = self.regions.at(charged.spender);
        for (region, place) in places {
            if let Some(sum) = self.inclusive.get_mut(region) {
                sum.add(function.filter(|_| !own.contains(&region)), charged.amount);
            }
            if let Some((callers, call)) = self.callers.get_mut(region).zip(charged.calls.get(place)) {
                callers.entry(*call).or_default().add(function, charged.amount);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Loop, loops};
    use super::*;
    use crate::callers::tests::{sampled, sampled_beside};
    use hbbp_estimate::rule::PAPER;
    use proptest::prelude::*;

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
        assert_eq!(main.region.inclusive.unwrap().time.value, 60.0);
        let in_main = calls.sites.iter().find(|site| site.function == "main").unwrap();
        assert_eq!(
            (in_main.addr.0, in_main.within, in_main.called.time.value),
            (4, Some(0), 60.0)
        );
    }

    #[test]
    fn a_loop_that_was_never_sampled_itself_has_its_time() {
        let snapshot = sampled(&[(0x14, 0, &[0x9], 2)]);
        let estimated = Estimated::new(&snapshot, &PAPER.parse().unwrap());
        let found = loops(&estimated);
        let inclusive = |it: &Loop| it.region.inclusive.map(|inclusive| inclusive.time.value);
        let all: Vec<_> = found.loops.iter().map(inclusive).collect();
        assert_eq!(all, [Some(20.0)]);
    }

    /// What each function of the program executed: samples at its instructions, ten instructions each.
    const EXECUTED: [(u64, u64); 9] = [
        (0x4, 10),
        (0x9, 10),
        (0x14, 40),
        (0x19, 20),
        (0x1f, 20),
        (0x20, 80),
        (0x21, 80),
        (0x22, 80),
        (0x2e, 30),
    ];

    /// The value of instructions, rounded.
    fn instructions(of: &Inclusive) -> f64 {
        of.instructions.unwrap().value.round()
    }

    fn inclusive(loops: &Loops, function: &str) -> f64 {
        let mut found = loops.functions.iter().filter(|it| it.function == function);
        instructions(&found.next().unwrap().inclusive.unwrap())
    }

    #[test]
    fn instructions_of_callees_belong_to_calls_as_their_time_does() {
        // A quarter of the time of `leaf` is below `f`, of that the half in a recursion, and the rest below `bare`.
        let snapshot = sampled_beside(
            &EXECUTED,
            &[
                (0x21, 0x19, &[0x1e, 0x9], 100),
                (0x21, 0x19, &[0x9], 100),
                (0x21, 0x2e, &[], 600),
                (0x14, 0, &[0x9], 200),
            ],
        );
        let estimated = Estimated::new(&snapshot, &PAPER.parse().unwrap());
        let found = loops(&estimated);
        let calls = found.calls.as_ref().unwrap();
        let call = |addr: u64| {
            let mut sites = calls.sites.iter().filter(|site| site.addr.0 == addr);
            instructions(&sites.next().unwrap().called)
        };
        // 2,400 instructions of `leaf`, 800 of `f`, 200 of `main`, 300 of `bare`.
        assert_eq!((call(0x14), call(0x29), call(0x19)), (600.0, 1800.0, 300.0));
        assert_eq!(call(0x4), 600.0 + 800.0);
        assert_eq!(inclusive(&found, "leaf"), 2400.0);
        assert_eq!(inclusive(&found, "f"), 1400.0);
        assert_eq!(inclusive(&found, "bare"), 300.0 + 1800.0);
        assert_eq!(inclusive(&found, "main"), 200.0 + 1400.0);
        let [main] = found.loops.as_slice() else {
            panic!("{found:#?}")
        };
        // `main` is entered once, outside of its loop.
        let own = main.region.amount.value;
        let all = main.region.inclusive.unwrap();
        assert_eq!(instructions(&all), (own + 1400.0).round());
        let cpi = all.cpi.unwrap();
        assert!((cpi.value - 4000.0 / (own + 1400.0)).abs() < 1e-9, "{cpi:?}");
    }

    #[test]
    fn samples_of_time_alone_have_no_instructions() {
        let snapshot = sampled(&[(0x21, 0x19, &[0x9], 4)]);
        let estimated = Estimated::new(&snapshot, &PAPER.parse().unwrap());
        let found = loops(&estimated);
        let all = found.functions.iter().map(|it| it.inclusive.unwrap());
        assert!(
            all.clone().count() == 3
                && all
                    .clone()
                    .all(|it| it.instructions.is_none() && it.cpi.is_none())
        );
    }

    proptest! {
        /// Whatever the chains, what the calls of a function called is at most what that executed. A function has all of its own
        /// instructions, and no more than there are.
        #[test]
        fn callees_are_never_charged_with_more_than_they_executed(hits in prop::collection::vec(1_u64..50, 5)) {
            let snapshot = sampled_beside(
                &EXECUTED,
                &[
                    (0x21, 0x19, &[0x1e, 0x1e, 0x9], hits[0]),
                    (0x20, 0x19, &[0x9], hits[1]),
                    (0x22, 0x2e, &[], hits[2]),
                    (0x14, 0, &[0x9], hits[3]),
                    (0x2e, 0, &[0x9], hits[4]),
                ],
            );
            let estimated = Estimated::new(&snapshot, &PAPER.parse().unwrap());
            let found = loops(&estimated);
            let sites = &found.calls.as_ref().unwrap().sites;
            let into_leaf = sites.iter().filter(|site| [0x14, 0x29].contains(&site.addr.0));
            let into_leaf: f64 = into_leaf.map(|site| site.called.instructions.unwrap().value).sum();
            prop_assert!((into_leaf - 2400.0).abs() < 1e-6, "{into_leaf}");
            for it in &found.functions {
                let all = it.inclusive.unwrap().instructions.unwrap();
                prop_assert!(it.amount.value <= all.value + 1e-6 && all.value <= found.total + 1e-6);
                prop_assert!(it.amount.std_error <= all.std_error + 1e-6);
            }
        }
    }
}
