//! Control flow of each image, weighted by executions: what optimizers of compiled code read.
//!
//! Two things were counted: ranges from a branch target to the next taken branch, and the taken branches between them.
//! Ranges have the weights of the estimate, which conserve flow. The branches that lead to an address add up to the
//! ranges that start there, exactly. Those that leave one add up to the ranges that end there, as nearly as possible.
//!
//! ```text
//! streams    [start ... last]  weight            ranges of the image that both ends lie in
//! branches   from -> start     hits   ---------> weights that agree with the ranges from start and up to from (edges)
//! ```

use std::collections::BTreeMap;

use super::counted::Counted;
use super::edges::{Edge, End, Start, edges};
use hbbp_code::blocks::TextBlocks;
use hbbp_code::locate::Site;
use hbbp_estimate::Stream;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::ModuleIdx;

/// The control flow of all images.
#[derive(Debug, Default, PartialEq)]
pub struct ControlFlow {
    /// By module; only executed modules.
    pub images: BTreeMap<ModuleIdx, ImageFlow>,
    /// Executions of streams that an interrupt ended before their first instruction: they are no range.
    pub interrupted_at_once: f64,
    /// Executions of branches between rings and of interrupts, which are in no image's control flow: system calls, exceptions,
    /// and returns from them. Their sources need not be branch instructions, nor their targets begin a block.
    pub far: f64,
}

/// The control flow of one image, in addresses of the snapshot.
#[derive(Debug, Default, PartialEq)]
pub struct ImageFlow {
    /// Straight lines of instructions by the addresses of the first and the last one.
    pub ranges: BTreeMap<(ImageAddr, ImageAddr), Range>,
    /// Taken branches by source and target; `None` is an address outside of the image.
    pub branches: BTreeMap<(Option<ImageAddr>, Option<ImageAddr>), Branch>,
}

/// Executions of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Range {
    /// Executions.
    pub executions: f64,
    /// Those of them that followed a return.
    pub after_return: f64,
}

/// Executions of a taken branch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Branch {
    /// Executions.
    pub executions: f64,
    /// Those of them that were mispredicted, where that is known.
    pub mispredicted: f64,
    /// Whether it is known for none of them.
    pub prediction_unknown: bool,
}

/// The control flow of a snapshot; empty if it has no branch stacks.
pub fn control_flow(counted: &Counted<'_>) -> ControlFlow {
    let mut flow = ControlFlow::default();
    let starts = starts(counted);
    let mut known: BTreeMap<Site, f64> = BTreeMap::new();
    let mut after_return: BTreeMap<Site, f64> = BTreeMap::new();
    for edge in edges(counted, &starts, &ends(counted)) {
        let to = edge.to.site();
        if let Some(to) = to {
            *known.entry(to).or_default() += edge.recorded.hits as f64;
        }
        if edge.is_far {
            flow.far += edge.executions;
            continue;
        }
        flow.add_branch(&edge);
        let is_return = edge.from.site().is_some_and(|from| counted.is_return(from));
        if let Some(to) = to.filter(|_| is_return) {
            *after_return.entry(to).or_default() += edge.executions;
        }
    }
    for (site, start) in &starts {
        let known = known.get(site).copied().unwrap_or(0.0);
        flow.far += start.executions * (1.0 - known / start.hits.max(known));
    }
    flow.add_ranges(counted, &starts, &after_return);
    flow
}

/// The text of a stream and the site of its first instruction.
fn start_of<'a>(counted: &'a Counted<'_>, stream: &Stream) -> Option<(&'a TextBlocks, Site)> {
    let text = counted.map.text(stream.text)?;
    let addr = text.addr(text.instruction(stream.first)?);
    let module = text.module;
    Some((text, Site { module, addr }))
}

fn starts(counted: &Counted<'_>) -> BTreeMap<Site, Start> {
    let mut starts: BTreeMap<Site, Start> = BTreeMap::new();
    for stream in &counted.counts.streams {
        if let Some((_, site)) = start_of(counted, stream) {
            let start = starts.entry(site).or_default();
            start.executions += stream.weight;
            start.hits += stream.hits as f64;
        }
    }
    starts
}

/// The last instruction of a stream; `None` if an interrupt ended it before the first one.
fn last_of(text: &TextBlocks, stream: &Stream) -> Option<ImageAddr> {
    let last = stream.end.checked_sub(1).filter(|last| stream.first <= *last)?;
    Some(text.addr(text.instruction(last)?))
}

/// Executions of ranges by their last instruction.
fn ends(counted: &Counted<'_>) -> BTreeMap<Site, f64> {
    let mut ends = BTreeMap::new();
    for stream in &counted.counts.streams {
        let text = counted.map.text(stream.text);
        if let Some((text, addr)) = text.and_then(|text| Some((text, last_of(text, stream)?))) {
            let module = text.module;
            *ends.entry(Site { module, addr }).or_default() += stream.weight;
        }
    }
    ends
}

impl ControlFlow {
    fn add_ranges(
        &mut self,
        counted: &Counted<'_>,
        starts: &BTreeMap<Site, Start>,
        after_return: &BTreeMap<Site, f64>,
    ) {
        for stream in &counted.counts.streams {
            let Some((text, start)) = start_of(counted, stream) else {
                continue;
            };
            let Some(last) = last_of(text, stream) else {
                self.interrupted_at_once += stream.weight;
                continue;
            };
            let all = starts.get(&start).map_or(0.0, |start| start.executions);
            let returned = after_return.get(&start).copied().unwrap_or(0.0);
            let share = if 0.0 < all { (returned / all).min(1.0) } else { 0.0 };
            let image = self.images.entry(start.module).or_default();
            let range = image.ranges.entry((start.addr, last)).or_default();
            range.executions += stream.weight;
            range.after_return += stream.weight * share;
        }
    }

    fn add_branch(&mut self, edge: &Edge) {
        let Edge {
            recorded, executions, ..
        } = *edge;
        let [from, to] = [edge.from, edge.to].map(End::site);
        let inside = |site: Option<Site>, module: ModuleIdx| {
            site.filter(|site| site.module == module).map(|site| site.addr)
        };
        let mut modules: Vec<ModuleIdx> = [from, to].into_iter().flatten().map(|site| site.module).collect();
        modules.dedup();
        for module in modules {
            let ends = (inside(from, module), inside(to, module));
            let image = self.images.entry(module).or_default();
            let branch = image.branches.entry(ends).or_insert(Branch {
                prediction_unknown: true,
                ..Branch::default()
            });
            branch.executions += executions;
            if let (Some(n), 1..) = (recorded.mispredicted, recorded.hits) {
                branch.mispredicted += executions * n as f64 / recorded.hits as f64;
                branch.prediction_unknown = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::tests::{branch, snapshot, stream};
    use hbbp_estimate::rule::PAPER;
    use hbbp_model::addr::Va;

    fn flow(streams: &[(u64, u64, u64)], branches: &[(u64, u64, u64, u64)]) -> ControlFlow {
        let streams: Vec<_> = streams
            .iter()
            .map(|(start, end, hits)| stream(Va(*start), Va(*end), *hits))
            .collect();
        let branches: Vec<_> = branches
            .iter()
            .map(|(from, to, hits, wrong)| branch(Va(*from), Va(*to), *hits, *wrong))
            .collect();
        let snapshot = snapshot(&streams, &branches);
        let counted = Counted::new(&snapshot, &PAPER.parse().unwrap());
        control_flow(&counted)
    }

    #[test]
    fn branches_to_an_address_add_up_to_the_ranges_from_it() {
        // Four of the eight branches to 1000 were recorded with a stream after them, and four of eight from 1002.
        let flow = flow(
            &[(0x1000, 0x1002, 3), (0x1000, 0x1002, 1), (0x2000, 0x2002, 1)],
            &[
                (0x1002, 0x1000, 6, 3),
                (0x2002, 0x1000, 2, 0),
                (0x1002, 0x2000, 2, 0),
            ],
        );
        let image = &flow.images[&ModuleIdx(0)];
        let range = image.ranges[&(ImageAddr(0x1000), ImageAddr(0x1002))];
        assert_eq!(
            (range.executions, range.after_return),
            (4.0, 4.0),
            "both are returns"
        );
        let inside = image.branches[&(Some(ImageAddr(0x1002)), Some(ImageAddr(0x1000)))];
        let outside = image.branches[&(None, Some(ImageAddr(0x1000)))];
        assert_eq!((inside.executions, inside.mispredicted), (3.0, 1.5));
        assert_eq!(outside.executions, 1.0);
        let leaves = flow.images[&ModuleIdx(1)].branches[&(Some(ImageAddr(0x2002)), None)];
        assert_eq!(leaves.executions, 1.0);
        assert_eq!(flow.far, 0.0);
    }

    #[test]
    fn interrupts_and_changes_of_ring_are_in_no_image() {
        const KERNEL: u64 = 0xffff_ffff_8100_0000;
        let flow = flow(
            &[(0x1000, 0x1002, 4)],
            &[
                (0x1002, 0x1000, 1, 0),
                (0x1001, 0x1000, 1, 0),
                (KERNEL, 0x1000, 2, 0),
                (0x1002, KERNEL, 3, 0),
            ],
        );
        let branches = &flow.images[&ModuleIdx(0)].branches;
        assert_eq!(branches.len(), 1, "{branches:?}");
        assert_eq!(
            branches[&(Some(ImageAddr(0x1002)), Some(ImageAddr(0x1000)))].executions,
            1.0
        );
        // The interrupt at a NOP, two returns from the kernel, and three calls of it.
        assert_eq!(flow.far, 6.0);
    }
}
