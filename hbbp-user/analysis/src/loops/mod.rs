//! Loops of the executed code: how often each was entered and gone round, and what it executed.
//!
//! ```text
//! streams, branches -> function (a flow graph for each function)
//!    -> graph, dominators -> natural (nested loops, irreducible regions) -> figures (iterations, invocations, trips)
//! ```
//!
//! Loops are found as OptiWISE does (Guo et al., CGO 2024, section IV), on estimated executions instead of counted
//! ones, and in the kernel as in user code. What a loop executes is what its own blocks do, with those of inner loops
//! and without the functions that it calls. Where call chains were sampled, time and instructions of what it calls are known
//! as well (`calls`), and those of functions. Every text version of a function that was patched has loops of its own.

mod call_sites;
mod calls;
mod dominators;
mod edges;
mod executed;
mod figures;
mod function;
mod graph;
mod natural;
mod nest;
mod region;

use std::ops::Range;

use crate::callers::Callers;
use crate::mix::Estimated;
pub use call_sites::{CallSite, Calls};
use figures::{AtBlocks, Instructions};
pub use figures::{Entered, Rounds};
use function::{Function, Nodes, range_at};
use hbbp_code::locate::TextIdx;
use hbbp_estimate::{BlockCount, Flows};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::Snapshot;
use natural::{Found, MOST_STEPS, NaturalLoop, levels, natural_loops};
pub use nest::{Loop, Loops};
pub use region::{Inclusive, Region};

/// The loops of a run.
pub fn loops(estimated: &Estimated<'_>) -> Loops {
    let (snapshot, map, counts) = (estimated.snapshot, &estimated.map, estimated.counts());
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
            let all = Region::new(
                snapshot,
                first.block.text,
                text,
                range.start,
                range.clone().collect(),
                ran,
            );
            found.functions.extend(all);
        }
        found.add_function(estimated, &flows, first.block.text, range, ran, &mut steps);
        rest = others;
    }
    // Functions without a sample of their own, whose loops called what has some.
    for (text, range) in callers
        .iter()
        .flat_map(|callers| calls::unseen(callers, snapshot, map, &seen))
    {
        let blocks = map.text(text);
        let all =
            blocks.and_then(|of| Region::new(snapshot, text, of, range.start, range.clone().collect(), &[]));
        found.functions.extend(all);
        found.add_function(estimated, &flows, text, range, &[], &mut steps);
    }
    found.unit = Some(counts.assignment.unit);
    found.fill(estimated, callers.as_ref());
    found
}

impl Loops {
    /// Adds the loops of a range of blocks, of which some were executed.
    fn add_function(
        &mut self,
        estimated: &Estimated<'_>,
        flows: &Flows<'_>,
        text: TextIdx,
        range: Range<u32>,
        ran: &[BlockCount],
        steps: &mut usize,
    ) {
        let (snapshot, map, counts) = (estimated.snapshot, &estimated.map, estimated.counts());
        let is_recorded = !counts.assignment.lbr.is_empty();
        let nodes = if is_recorded { Nodes::Ran } else { Nodes::All };
        let Some(function) = Function::new(snapshot, map, flows, text, range, nodes, ran) else {
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
                let skid = counts.biases.flow.as_ref().map_or(0.0, |bias| bias.skid);
                figures::rounds(&function, &graph, &levels, natural, ran, skid)
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
        amounts.fill(&mut self.functions.iter_mut().collect::<Vec<_>>());
        self.total = counts
            .blocks
            .iter()
            .map(|block| block.chosen().count * f64::from(block.instructions))
            .sum();
        if let Some(time) = estimated.time() {
            self.time = Some((time.unit, time.total()));
            let at_blocks = AtBlocks::new(&estimated.map, time);
            let regions = self.loops.iter_mut().map(|it| &mut it.region);
            for region in regions.chain(&mut self.irreducible).chain(&mut self.functions) {
                region.time = Some(at_blocks.of(region));
            }
        }
        if let Some(callers) = callers {
            self.charge(callers, estimated);
        }
        for regions in [&mut self.irreducible, &mut self.functions] {
            regions.retain(|region| 0.0 < region.weight());
            regions.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
        }
        self.sort();
    }
}

impl Function<'_> {
    /// These nodes as a part of the function, its figures still to be filled in; `ran` are the blocks of the function that did.
    fn region(&self, snapshot: &Snapshot, ran: &[BlockCount], nodes: &[usize]) -> Option<Region> {
        let blocks = nodes.iter().filter_map(|node| self.nodes.get(*node).copied());
        Region::new(
            snapshot,
            self.text,
            self.blocks(),
            self.start(),
            blocks.collect(),
            ran,
        )
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
