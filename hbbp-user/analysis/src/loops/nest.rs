//! The loops of a profile, in the order of their weight, and their source locations.

use std::collections::BTreeMap;

use super::call_sites::{CallSite, Calls};
use super::figures::Rounds;
use super::region::Region;
use hbbp_code::blocks::BlockMap;
use hbbp_estimate::Unit;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{EventUnit, ModuleIdx, SourceLocations};

/// The loops of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loops {
    /// By falling time, or amount where time was not sampled; an outer loop precedes its inner ones.
    pub loops: Vec<Loop>,
    /// Regions that go round and are entered at several blocks: no loops, in the same order.
    pub irreducible: Vec<Region>,
    /// Where call chains were sampled: all functions, by falling inclusive time.
    pub functions: Vec<Region>,
    /// Loops that were not walked, because loops are nested so deeply that it would take too long.
    pub left_out: u64,
    /// What all code executed, in the unit of the estimate.
    pub total: f64,
    /// Where call chains were sampled: what was called from where.
    pub calls: Option<Calls>,
    /// The unit of time, and the time of all code, where it was sampled.
    pub time: Option<(EventUnit, f64)>,
    /// What the amounts are.
    pub unit: Option<Unit>,
}

/// A natural loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// Its code.
    pub region: Region,
    /// The first instruction of the block that each iteration begins with.
    pub header: ImageAddr,
    /// The branch that went back to it most often; the last of its code where that is not known.
    pub tail: ImageAddr,
    /// Loops that it lies in.
    pub depth: u64,
    /// The innermost of these, as an index.
    pub parent: Option<usize>,
    /// How often it was followed; `None` if branch stacks do not show it.
    pub rounds: Option<Rounds>,
    /// The calls that led into it, with its inclusive figures for each, by falling time; none if no call chains were sampled.
    pub callers: Vec<CallSite>,
}

impl Loops {
    /// Sorts by falling weight, each loop after the one that it lies in.
    pub(super) fn sort(&mut self) {
        let weight = |n: usize| self.loops.get(n).map_or(0.0, |it| it.region.weight());
        let mut order: Vec<usize> = (0..self.loops.len()).filter(|n| 0.0 < weight(*n)).collect();
        // The weight of an outer loop is at least that of an inner one, so it sorts first.
        order.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)).then(a.cmp(b)));
        let mut places: Vec<Option<usize>> = vec![None; self.loops.len()];
        for (place, n) in order.iter().enumerate() {
            if let Some(slot) = places.get_mut(*n) {
                *slot = Some(place);
            }
        }
        let place = |n: usize| places.get(n).copied().flatten();
        let mut loops: Vec<Option<Loop>> = std::mem::take(&mut self.loops).into_iter().map(Some).collect();
        let sorted = order.iter().filter_map(|n| loops.get_mut(*n)?.take());
        let sorted = sorted.map(|mut it| {
            it.parent = it.parent.and_then(place);
            for site in &mut it.callers {
                site.within = site.within.and_then(place);
            }
            it
        });
        self.loops = sorted.collect();
        if let Some(calls) = &mut self.calls {
            calls.renumber(&places);
        }
    }

    /// Whether amounts are executions, on whatever scale: samples of time do not say how often anything was executed.
    pub const fn has_executions(unit: Unit) -> bool {
        matches!(unit, Unit::Executions | Unit::RelativeExecutions)
    }

    /// Finds where the first `n` loops are in the source: the lines of the file that most of their instructions are
    /// from.
    pub fn locate(&mut self, n: usize, map: &BlockMap, locations: &SourceLocations) {
        for it in self.loops.iter_mut().take(n) {
            let mut files: BTreeMap<&str, (u64, u32, u32)> = BTreeMap::new();
            for at in it.region.instructions(map) {
                let line = locations.get(&at).and_then(|location| location.line.as_deref());
                let Some((file, Ok(line))) = line
                    .and_then(|line| line.rsplit_once(':'))
                    .map(|(file, line)| (file, line.parse::<u32>()))
                else {
                    continue;
                };
                let (n, first, last) = files.entry(file).or_insert((0, line, line));
                (*n, *first, *last) = (*n + 1, line.min(*first), line.max(*last));
            }
            let most = files.into_iter().max_by_key(|(_, (n, ..))| *n);
            it.region.lines = most.map(|(file, (_, first, last))| match first == last {
                true => format!("{file}:{first}"),
                false => format!("{file}:{first}-{last}"),
            });
        }
        let callers = self.loops.iter_mut().take(n).flat_map(|it| &mut it.callers);
        let sites = self.calls.iter_mut().flat_map(|calls| &mut calls.sites);
        for site in callers.chain(sites) {
            let location = locations.get(&(site.module, site.addr));
            site.line = location.and_then(|location| location.line.clone());
        }
    }

    /// Adds to the location of each instruction its innermost loop, by the function and the addresses of header and tail.
    pub fn place(&self, map: &BlockMap, locations: &mut SourceLocations) {
        // An inner loop comes after the one that it lies in.
        for it in &self.loops {
            let name = format!("{} {:x}..{:x}", it.region.function, it.header.0, it.tail.0);
            for at in it.region.instructions(map) {
                locations.entry(at).or_default().innermost_loop = Some(name.clone());
            }
        }
    }

    /// The calls that are listed for the first `n` loops, by module and address.
    pub fn call_addresses(&self, n: usize) -> impl Iterator<Item = (ModuleIdx, ImageAddr)> {
        let callers = self.loops.iter().take(n).flat_map(|it| &it.callers);
        let sites = self.calls.iter().flat_map(|calls| &calls.sites);
        callers.chain(sites).map(|site| (site.module, site.addr))
    }
}
