//! Loops of the code that ran: how often each was entered and gone round, and what it executed.
//!
//! ```text
//! streams, branches -> flow (how control passed) -> function (a flow graph for each function)
//!    -> graph, dominators -> natural (nested loops, irreducible regions) -> figures (iterations, invocations, trips)
//! ```
//!
//! Loops are found as OptiWISE does (Guo et al., CGO 2024, section IV), on estimated executions in place of counted ones,
//! and in the kernel as in user code. What a loop executes is what its own blocks do, with those of inner loops and without
//! the functions that it calls: which caller a function ran for is not recorded. Every text version of a function that was
//! patched has loops of its own.

mod dominators;
mod figures;
mod flow;
mod function;
mod graph;
mod natural;

use std::ops::Range;

use crate::addr::{ImageAddr, Ring};
use crate::estimate::{BlockCount, BlockCounts, Figure, Unit};
use crate::locate::TextIdx;
use crate::mix::{Estimated, function as function_at};
use crate::snapshot::{ModuleIdx, Snapshot};
use figures::Instructions;
use flow::Flows;
use function::{Function, range_at};
use natural::{Found, NaturalLoop, natural_loops};

/// The loops of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loops {
    /// By falling amount; an outer loop stands before its inner ones.
    pub loops: Vec<Loop>,
    /// Regions that go round and are entered at several blocks: no loops, by falling amount.
    pub irreducible: Vec<Region>,
    /// Loops that were not walked, because loops are nested so deeply that it would take too long.
    pub left_out: u64,
    /// What all code executed, in the unit of the estimate.
    pub total: f64,
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
}

/// How often control went through a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    /// Times that the loop was gone round, those that leave it before its end included.
    pub iterations: Figure,
    /// Times that it was entered from outside.
    pub invocations: Figure,
    /// Iterations for each time that it was entered.
    pub trips: Figure,
}

/// The loops of a run.
pub fn loops(estimated: &Estimated<'_>) -> Loops {
    let (snapshot, map, counts) = (estimated.snapshot(), estimated.map(), estimated.counts());
    let flows = Flows::new(map, counts);
    let mut found = Loops::default();
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
        found.add_function(estimated, &flows, (first.block.text, range), ran);
        rest = others;
    }
    found.fill(counts);
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
    ) {
        let (snapshot, map, counts) = (estimated.snapshot(), estimated.map(), estimated.counts());
        let is_recorded = !counts.assignment.lbr.is_empty();
        let known = is_recorded.then_some(ran);
        let Some(function) = Function::new(snapshot, map, flows, range, known) else {
            return;
        };
        let graph = function.graph();
        let roots = function.roots(&graph);
        let passed = |from, to| {
            function
                .edges
                .get(&(from, to))
                .map_or(0.0, |passed| passed.executions)
        };
        let Found {
            loops,
            irreducible,
            left_out,
        } = natural_loops(&graph, &roots, &passed);
        self.left_out += left_out as u64;
        let region = |nodes: &[usize]| function.region(snapshot, ran, nodes);
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
                figures::rounds(&function, &graph, &loops, natural, ran)
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
            });
        }
        self.irreducible
            .extend(irreducible.iter().filter_map(|nodes| region(nodes)));
    }

    /// Fills in what each region executed, leaves out what did not run, and puts all in order.
    fn fill(&mut self, counts: &BlockCounts) {
        let amounts = Instructions::new(counts);
        let regions = self.loops.iter_mut().map(|it| &mut it.region);
        amounts.fill(&mut regions.collect::<Vec<_>>());
        amounts.fill(&mut self.irreducible.iter_mut().collect::<Vec<_>>());
        self.total = counts
            .blocks
            .iter()
            .map(|block| block.chosen().count * f64::from(block.instructions))
            .sum();
        self.irreducible.retain(|region| 0.0 < region.amount.value);
        self.irreducible
            .sort_by(|a, b| b.amount.value.total_cmp(&a.amount.value));
        self.sort();
    }

    /// Sorts by falling amount, each loop after the one that it lies in.
    fn sort(&mut self) {
        let amount = |n: usize| self.loops.get(n).map_or(0.0, |it| it.region.amount.value);
        let mut order: Vec<usize> = (0..self.loops.len()).filter(|n| 0.0 < amount(*n)).collect();
        // An outer loop executes no less than an inner one, and stands before it.
        order.sort_by(|a, b| amount(*b).total_cmp(&amount(*a)).then(a.cmp(b)));
        let mut places: Vec<Option<usize>> = vec![None; self.loops.len()];
        for (place, n) in order.iter().enumerate() {
            if let Some(slot) = places.get_mut(*n) {
                *slot = Some(place);
            }
        }
        let place = |n: usize| places.get(n).copied().flatten();
        let sorted = order.iter().filter_map(|n| self.loops.get(*n).cloned());
        let sorted = sorted.map(|mut it| {
            it.parent = it.parent.and_then(place);
            it
        });
        self.loops = sorted.collect();
    }

    /// Whether amounts are executions, on whatever scale: samples of time do not say how often anything ran.
    pub const fn has_executions(unit: Unit) -> bool {
        matches!(unit, Unit::Executions | Unit::RelativeExecutions)
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
            ring: ran.first()?.ring,
            function: function_at(module, start).unwrap_or_else(named),
            text: self.text,
            blocks: blocks.collect(),
            amount: Figure::default(),
        })
    }

    /// Where a loop begins, and the branch back to there.
    fn ends(&self, natural: &NaturalLoop) -> (ImageAddr, ImageAddr) {
        let ran = |tail: &usize| {
            let edge = self.edges.get(&(*tail, natural.header));
            edge.map_or(0.0, |passed| passed.executions)
        };
        let most = natural
            .tails
            .iter()
            .max_by(|a, b| ran(a).total_cmp(&ran(b)).then(a.cmp(b)));
        let header = self.first_of(natural.header);
        (header, most.map_or(header, |tail| self.last_of(*tail)))
    }
}
