//! Whether streams are balanced: against the bias of the oldest slot, where a run has it, and against chance. How far off that bias leaves
//! what is counted.

use std::collections::BTreeMap;

use super::Unit;
use super::basis::Basis;
use super::flow::balance::{Known, Targets, balance};
use super::flow::errors::Errors;
use super::flow::excess::excess;
use super::flow::graph::FlowGraph;
use super::flow::landed::Landed;
use super::flow::skid::SampledBlocks;
use super::sources::oldest_slot::Branches;
use super::stages::Stage;
use hbbp_code::locate::TextIdx;

/// Standard deviations of chance beyond which the oldest slots have streams balanced. Stacks at a fixed period are spread over the
/// slots more evenly than by chance, so that without a bias the excess is mostly below zero; where it is not, a branch sticks a little, or the period keeps
/// step with a loop, and flow and eventing IPs know better (kernel-tests/results/accuracy.txt).
const SUSPECT: f64 = 0.25;

/// Share of the oldest slots that branches must hold beyond what is expected before a bias is told: where stacks are few, a hundredth
/// of them taken at the wrong moment is less than the sampling error of most counts.
const BIAS: f64 = 0.01;

/// Where stacks are many, errors by chance are small beside that: then the standard deviations of chance beyond which it is told.
/// An excess of 1.0 % left the trip counts of loops off by 6 %, ten times the error that was stated.
const SIGMAS: f64 = 2.0;

/// Standard deviations beyond which streams are balanced that are longer or shorter than was counted. By chance that is one run of
/// twenty at most.
const LENGTHS: f64 = 2.0;

/// Fewest stacks that are balanced where nothing says that they are biased: where they are fewer, it is a few successions that tell
/// of the flow.
const STACKS: f64 = 1000.0;

/// Most streams that are balanced where nothing says that they are biased, and whose samples are traced by the times of instructions: in
/// some seconds. Where code is as flat as that, chance costs a function a tenth and the mix as a whole little.
const MOST: usize = 1 << 17;

/// The bias of a run whose streams are suspect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bias {
    /// The share of the oldest slots that branches hold beyond what is expected.
    pub excess: f64,
    /// Whether that is a bias of the processor, rather than chance or a period that keeps step with a loop.
    pub is_told: bool,
    /// How far samples skid over an edge between two blocks, in instructions: a standard deviation.
    pub skid: f64,
    /// By text and instruction where streams start: the share of them that can be too many or too few.
    at: BTreeMap<(TextIdx, u32), f64>,
}

impl Bias {
    /// The share of the streams from a start that can be too many or too few.
    pub(crate) fn at(&self, text: TextIdx, start: u32) -> f64 {
        self.at.get(&(text, start)).copied().unwrap_or_default()
    }
}

/// Balances streams: how often each ran, and the bias where branches are in the oldest slot out of proportion, or where
/// streams are longer or shorter than was counted. Where neither is so, the balance takes out of the counts what is due to chance,
/// since flow tells of it. `landed` says where samples land; it takes some time.
pub(super) fn balanced(
    basis: Basis<'_>,
    graph: &FlowGraph,
    branches: &Branches,
    known: Known<'_>,
    landed: impl FnOnce() -> Option<Landed>,
    streams_per_stack: f64,
) -> Option<(Vec<f64>, Option<Bias>)> {
    let (beyond, by_chance) = (branches.excess().max(0.0), branches.excess_by_chance());
    let is_off = known
        .per_branch
        .is_some_and(|lengths| LENGTHS * lengths.error() < lengths.residual(graph.runs()).abs());
    let is_suspect = SUSPECT * by_chance < beyond || is_off;
    let is_small = graph.streams.len() <= MOST;
    let due_to_chance = basis.runs(Stage::Chance) && is_small && STACKS <= branches.stacks;
    // What other events than taken branches triggered was weighed when it was imported. Balancing it as well was worse on the
    // recording of a Skylake with exact counts (1.37 against 0.96 % distance). It was also worse in three of four loads of the
    // emulated machine.
    let balances = basis.assignment.unit == Unit::Executions
        && basis.runs(Stage::Balance)
        && (is_suspect || due_to_chance)
        && !graph.branches.is_empty();
    if !balances {
        return None;
    }
    let at = excess(graph, branches.share, streams_per_stack);
    // Of two measurements that are both biased neither can tell how much the other one is: then chance is what they are
    // weighed by. Without any samples that leaves 1.1 % in the mean on the emulated machine, and the bias 1.3 %.
    let knows_bias = is_suspect && known.samples.have_samples() && basis.runs(Stage::BiasVariance);
    let errors = Errors {
        streams_per_stack,
        excess: if knows_bias { &at } else { &[] },
        dispersion: &graph.of_starts,
    };
    let samples = match (basis.runs(Stage::Samples), basis.runs(Stage::Skid)) {
        (false, _) => SampledBlocks::default(),
        (true, false) => known.samples.without_skid(),
        (true, true) => {
            let is_due = basis.runs(Stage::Times) && is_small && known.samples.have_samples();
            match is_due.then(landed).flatten() {
                Some(landed) => known.samples.with_landed(landed),
                None => known.samples,
            }
        }
    };
    let known = Known { samples, ..known };
    let targets = if basis.runs(Stage::ReturnSites) {
        Targets::with_return_sites(graph, basis.map)
    } else {
        Targets::recorded(graph)
    };
    let runs = balance(graph, &targets, &known, errors);
    let bias = is_suspect.then(|| Bias {
        excess: beyond,
        is_told: BIAS.min(SIGMAS * by_chance) < beyond,
        skid: known.samples.skid(&runs),
        at: by_instruction(graph, &at),
    });
    Some((runs, bias))
}

/// Of all process images together, weighed by their streams.
fn by_instruction(graph: &FlowGraph, excess: &[f64]) -> BTreeMap<(TextIdx, u32), f64> {
    let mut sums: BTreeMap<(TextIdx, u32), (f64, f64)> = BTreeMap::new();
    for ((start, inflow), excess) in graph.starts.iter().zip(&graph.inflow).zip(excess) {
        let (all, off) = sums.entry((start.0, start.1)).or_default();
        *all += inflow;
        *off += inflow * excess;
    }
    let share = |(start, (all, off)): (_, (f64, f64))| (0.0 < all).then_some((start, off / all));
    sums.into_iter().filter_map(share).collect()
}
