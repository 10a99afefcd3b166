//! Loops of the code that ran: how often each was entered and gone round, and what it executed.
//!
//! ```text
//! streams, branches -> function (a flow graph for each function)
//!    -> graph, dominators -> natural (nested loops, irreducible regions) -> figures (iterations, invocations, trips)
//! ```
//!
//! Loops are found as OptiWISE does (Guo et al., CGO 2024, section IV), on estimated executions in place of counted ones,
//! and in the kernel as in user code. What a loop executes is what its own blocks do, with those of inner loops and without
//! the functions that it calls. Where call chains were sampled, the time of what it calls is known as well (`calls`). Every text
//! version of a function that was patched has loops of its own.

mod calls;
mod dominators;
mod edges;
mod figures;
mod function;
mod graph;
mod natural;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::callers::Callers;
use crate::mix::{Estimated, function as function_at};
use crate::time::cpi;
pub use calls::{CallSite, Calls};
use figures::{AtBlocks, Instructions};
use function::{Function, Nodes, range_at};
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::TextIdx;
use hbbp_estimate::{BlockCount, Figure, Flows, Unit};
use hbbp_model::addr::{ImageAddr, Ring};
use hbbp_model::snapshot::{EventUnit, ModuleIdx, Snapshot, SourceLocations};
use natural::{Found, MOST_STEPS, NaturalLoop, levels, natural_loops};

/// The loops of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loops {
    /// By falling time, or amount where time was not sampled beside it; an outer loop stands before its inner ones.
    pub loops: Vec<Loop>,
    /// Regions that go round and are entered at several blocks: no loops, in the same order.
    pub irreducible: Vec<Region>,
    /// Loops that were not walked, because loops are nested so deeply that it would take too long.
    pub left_out: u64,
    /// What all code executed, in the unit of the estimate.
    pub total: f64,
    /// Where call chains were sampled: what was called from where.
    pub calls: Option<Calls>,
    /// The unit of time, and the time of all code, where it was sampled beside executions.
    pub time: Option<(EventUnit, f64)>,
    /// What the amounts are.
    pub unit: Option<Unit>,
}

/// Part of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// Its module.
    pub module: ModuleIdx,
    /// Its ring.
    pub ring: Ring,
    /// The function: the name of its symbol, or of its module and address.
    pub function: String,
    /// Its text.
    pub text: TextIdx,
    /// Its blocks in that text, rising.
    pub blocks: Vec<u32>,
    /// What these executed, without what they called, in the unit of the estimate.
    pub amount: Figure,
    /// The time that passed in them; `None` where it was not sampled beside executions.
    pub time: Option<Figure>,
    /// The time that passed in them and in what they called, of what called itself once; `None` where no call chains were
    /// sampled.
    pub inclusive: Option<Figure>,
    /// Their source lines as `file:first-last`, once [`Loops::locate`] has been told of locations.
    pub lines: Option<String>,
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
    /// How often control went through it; `None` where branch stacks do not tell.
    pub rounds: Option<Rounds>,
    /// The calls that led into it, with its inclusive time for each, falling; none where no call chains were sampled.
    pub callers: Vec<CallSite>,
}

/// How often control went through a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    /// Times that the loop was gone round, those that leave it before its end included.
    pub iterations: Figure,
    /// Times that it was entered from outside, and iterations for each of them; `None` where it was never seen to be entered.
    pub entered: Option<Entered>,
}

/// How often a loop was entered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entered {
    /// Times that it was entered from outside.
    pub invocations: Figure,
    /// Iterations for each of them.
    pub trips: Figure,
}

/// The loops of a run.
pub fn loops(estimated: &Estimated<'_>) -> Loops {
    let (snapshot, map, counts) = (estimated.snapshot(), estimated.map(), estimated.counts());
    let flows = Flows::new(map, counts);
    let mut found = Loops::default();
    let mut steps = MOST_STEPS;
    let callers = Callers::new(estimated);
    let mut seen: Vec<(TextIdx, Range<u32>)> = Vec::new();
    let mut rest = counts.blocks.as_slice();
    while let Some(first) = rest.first() {
        let text = map.text(first.block.text);
        let module = text.and_then(|text| snapshot.modules.get(text.module.0 as usize));
        let (Some(text), Some(module)) = (text, module) else {
            rest = rest.get(1..).unwrap_or(&[]);
            continue;
        };
        let range = range_at(module, text, first.block.block);
        let inside =
            |count: &BlockCount| count.block.text == first.block.text && count.block.block < range.end;
        let (ran, others) = rest.split_at(rest.partition_point(inside).max(1));
        if callers.is_some() {
            seen.push((first.block.text, range.clone()));
        }
        found.add_function(estimated, &flows, (first.block.text, range), ran, &mut steps);
        rest = others;
    }
    // Functions without a sample of their own, whose loops called what has some.
    for range in callers
        .iter()
        .flat_map(|callers| calls::unseen(callers, snapshot, map, &seen))
    {
        found.add_function(estimated, &flows, range, &[], &mut steps);
    }
    found.unit = Some(counts.assignment.unit);
    found.fill(estimated, callers.as_ref());
    found
}

impl Loops {
    /// Adds the loops of a range of blocks, of which some ran.
    fn add_function(
        &mut self,
        estimated: &Estimated<'_>,
        flows: &Flows<'_>,
        range: (TextIdx, Range<u32>),
        ran: &[BlockCount],
        steps: &mut usize,
    ) {
        let (snapshot, map, counts) = (estimated.snapshot(), estimated.map(), estimated.counts());
        let is_recorded = !counts.assignment.lbr.is_empty();
        let nodes = if is_recorded { Nodes::Ran } else { Nodes::All };
        let Some(function) = Function::new(snapshot, map, flows, range, (nodes, ran)) else {
            return;
        };
        let (graph, roots) = function.graph();
        let passed = |from, to| function.edges.executions(from, to);
        let Found {
            loops,
            irreducible,
            left_out,
        } = natural_loops(&graph, &roots, steps, &passed);
        self.left_out += left_out as u64;
        let region = |nodes: &[usize]| function.region(snapshot, ran, nodes);
        let levels = levels(&loops);
        let first = self.loops.len();
        for natural in &loops {
            let Some(region) = region(&natural.nodes) else {
                continue;
            };
            let parent = natural.parent.map(|parent| first + parent);
            let above = parent.and_then(|parent| self.loops.get(parent));
            let depth = above.map_or(0, |above: &Loop| above.depth + 1);
            let (header, tail) = function.ends(natural);
            let rounds = if is_recorded {
                let skid = counts.bias.as_ref().map_or(0.0, |bias| bias.skid);
                figures::rounds(&function, (&graph, &levels), natural, ran, skid)
            } else {
                None
            };
            self.loops.push(Loop {
                region,
                header,
                tail,
                depth,
                parent,
                rounds,
                callers: Vec::new(),
            });
        }
        self.irreducible
            .extend(irreducible.iter().filter_map(|nodes| region(nodes)));
    }

    /// Fills in what each region executed, leaves out what did not run, and puts all in order.
    fn fill(&mut self, estimated: &Estimated<'_>, callers: Option<&Callers>) {
        let counts = estimated.counts();
        let amounts = Instructions::new(counts);
        let regions = self.loops.iter_mut().map(|it| &mut it.region);
        amounts.fill(&mut regions.collect::<Vec<_>>());
        amounts.fill(&mut self.irreducible.iter_mut().collect::<Vec<_>>());
        self.total = counts
            .blocks
            .iter()
            .map(|block| block.chosen().count * f64::from(block.instructions))
            .sum();
        if let Some(time) = estimated.time() {
            self.time = Some((time.unit, time.total()));
            let at_blocks = AtBlocks::new(estimated.map(), time);
            let regions = self.loops.iter_mut().map(|it| &mut it.region);
            for region in regions.chain(&mut self.irreducible) {
                region.time = Some(at_blocks.of(region));
            }
        }
        if let Some(callers) = callers {
            self.charge(callers, estimated);
        }
        self.irreducible.retain(|region| 0.0 < region.weight());
        self.irreducible.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
        self.sort();
    }

    /// Sorts by falling weight, each loop after the one that it lies in.
    fn sort(&mut self) {
        let weight = |n: usize| self.loops.get(n).map_or(0.0, |it| it.region.weight());
        let mut order: Vec<usize> = (0..self.loops.len()).filter(|n| 0.0 < weight(*n)).collect();
        // An outer loop weighs no less than an inner one, and stands before it.
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

    /// Whether amounts are executions, on whatever scale: samples of time do not say how often anything ran.
    pub const fn has_executions(unit: Unit) -> bool {
        matches!(unit, Unit::Executions | Unit::RelativeExecutions)
    }
}

impl Region {
    /// What it is sorted by.
    fn weight(&self) -> f64 {
        self.inclusive.or(self.time).unwrap_or(self.amount).value
    }

    /// Time for each instruction; `None` where executions are too few to divide by, or time was not sampled.
    pub fn cpi(&self) -> Option<Figure> {
        cpi(self.time?, self.amount)
    }

    /// The instructions of its blocks, by module and address.
    pub fn instructions(&self, map: &BlockMap) -> impl Iterator<Item = (ModuleIdx, ImageAddr)> {
        let text = map.text(self.text).into_iter();
        text.flat_map(|text| {
            let instructions = self
                .blocks
                .iter()
                .flat_map(|block| text.instructions(text.block(*block)));
            instructions.map(|it| (text.module, text.addr(*it)))
        })
    }
}

impl Loops {
    /// Says where the first `n` loops stand in the source: the lines of the file that most of their instructions are from.
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

    /// The calls that are told of the first `n` loops, by module and address.
    pub fn call_addresses(&self, n: usize) -> impl Iterator<Item = (ModuleIdx, ImageAddr)> {
        let callers = self.loops.iter().take(n).flat_map(|it| &it.callers);
        let sites = self.calls.iter().flat_map(|calls| &calls.sites);
        callers.chain(sites).map(|site| (site.module, site.addr))
    }
}

impl Function<'_> {
    /// These nodes as a part of the function, its amount still to be filled in; `ran` are the blocks of the function that did.
    fn region(&self, snapshot: &Snapshot, ran: &[BlockCount], nodes: &[usize]) -> Option<Region> {
        let blocks = nodes.iter().filter_map(|node| self.nodes.get(*node).copied());
        let (idx, start) = self.place()?;
        let module = snapshot.modules.get(idx.0 as usize)?;
        let named = || format!("{}+{start}", module.name);
        Some(Region {
            module: idx,
            ring: match ran.first() {
                Some(block) => block.ring,
                None if module.kind.is_kernel() => Ring::Kernel,
                None => Ring::User,
            },
            function: function_at(module, start).unwrap_or_else(named),
            text: self.text,
            blocks: blocks.collect(),
            amount: Figure::default(),
            time: None,
            inclusive: None,
            lines: None,
        })
    }

    /// Where a loop begins, and the branch back to there.
    fn ends(&self, natural: &NaturalLoop) -> (ImageAddr, ImageAddr) {
        let ran = |tail: &usize| self.edges.executions(*tail, natural.header);
        let most = natural
            .tails
            .iter()
            .max_by(|a, b| ran(a).total_cmp(&ran(b)).then(a.cmp(b)));
        let header = self.first_of(natural.header);
        (header, most.map_or(header, |tail| self.last_of(*tail)))
    }
}
