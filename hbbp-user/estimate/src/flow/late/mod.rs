//! Stacks that are read late: the moment that each was taken at, and how far off that leaves what they show.
//!
//! Only the stack of a precise event is recorded with the event. Any other stack is read in the interrupt, some tens of cycles
//! after its event overflowed (arch/x86/events/intel/core.c, Linux v6.12; AMD's as well). It ends at the last branch before that
//! moment, so its newest slots hold the branches taken in between: many in fast code, few in slow code. Code before slow code is
//! therefore shown too often, and code after it too rarely.
//!
//! Let `reach(x)` be the mean number of branches before a branch x whose stacks are read after it. Of an execution of a stream
//! that ends at x, a stack of n streams shows
//!
//! ```text
//! n + reach(x) - reach(the branch that is n further on)
//! ```
//!
//! instead of n ([`reach`]). Reach follows from the flow of the recorded streams, from what their instructions take, and from the time
//! until stacks are read. That time nobody knows, but the newest slots tell ([`newest`]): a branch is found there 1 + reach(x) -
//! reach(the next branch) times as often as in all slots. Where no time explains the newest slots better than none, nothing is
//! weighed. Times of instructions are those of manuals, and only their ratio to the unknown time matters. So errors of a third in them
//! leave a part of the bias, and no more.

mod newest;
mod reach;
mod together;

use super::chain::Chain;
use super::graph::{Edge, FlowGraph};
use crate::kinds_of_forms::kinds_of_forms;
use crate::sources::stream::Stream;
use crate::sums::{add, at, over};
use hbbp_code::blocks::BlockMap;
use hbbp_model::kinds::{KNOWN_TIMES, kind};
use newest::Newest;
use reach::{BIN, Reach, Reached};
use together::Together;

/// How much more likely the newest slots must be with a time than without one, as a logarithm: two parameters of a false model gain
/// one each in the mean, and by chance hardly more than this.
const GAIN: f64 = 10.0;

/// Standard deviations of chance beyond which the streams after the newest branches are longer: what is found by chance in one of
/// thirty thousand runs.
const SIGMAS: f64 = 4.0;

/// Rounds in which the flow is that of the streams of the last one. Three, with bins of a cycle, changed the errors of seven workloads
/// of the emulated machine by at most 0.15 points, three of them for the better.
const ROUNDS: usize = 2;

/// The least part that a stream can be shown in: what is read so late that it should hardly be seen is where the model ends.
const LEAST: f64 = 0.1;

/// When stacks were read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Late {
    /// Least and longest time after the trigger, in cycles of a plain instruction.
    pub cycles: (f64, f64),
}

/// The graph with the streams and branches that stacks would have shown, were all read when their event overflowed; `None` if
/// nothing says that they were not. Streams take `durations`, in cycles; `depth` is the mean number of streams of a stack.
pub(crate) fn weighed(graph: &FlowGraph, durations: &[f64], depth: f64) -> Option<(FlowGraph, Late)> {
    if !end_before_slow_code(graph, durations) {
        return None;
    }
    let together = Together::new(graph);
    let (apart, graph) = (graph, &together.graph);
    let durations = &together.of_streams(durations);
    let newest = Newest::new(graph);
    let all: f64 = graph.streams.iter().map(|edge| edge.amount).sum();
    let mut weighed = graph.clone();
    let mut late = None;
    for _ in 0..ROUNDS {
        let bins = durations.iter().map(|cycles| cycles / BIN);
        let chain = Chain::new(&weighed, bins.collect());
        let reach = Reach::new(&chain);
        let (gain, skid) = newest.best(&chain, &reach)?;
        if gain < GAIN {
            return None;
        }
        late = Some(Late {
            cycles: skid.cycles(),
        });
        let reached = Reached::new(&chain, &reach, skid, depth);
        let shown = |reach: f64| (1.0 + reach / depth).max(LEAST);
        let amounts = |edges: &[Edge], reach: Vec<f64>| -> Vec<f64> {
            let edges = edges.iter().zip(reach);
            edges.map(|(edge, reach)| edge.amount / shown(reach)).collect()
        };
        let streams = amounts(&graph.streams, reached.of_streams(&chain));
        let branches = amounts(&graph.branches, reached.of_branches(&chain));
        let factor = all / streams.iter().sum::<f64>();
        if !factor.is_finite() {
            return None;
        }
        let scaled = |amounts: Vec<f64>| amounts.into_iter().map(move |amount| amount * factor);
        weighed = graph.with(scaled(streams), scaled(branches));
    }
    late.map(|late| (together.apart(apart, &weighed), late))
}

/// Whether longer streams follow the newest branches of stacks than follow all branches, by more than chance: of a moment that no branch
/// chose, that is so in proportion to their length. It is little work, where a time is a lot.
fn end_before_slow_code(graph: &FlowGraph, durations: &[f64]) -> bool {
    let mut of_starts = vec![0.0; graph.starts.len()];
    let mut shares = vec![0.0; graph.sources.len()];
    for (edge, duration) in graph.streams.iter().zip(durations) {
        add(&mut of_starts, edge.from, edge.amount * duration);
        add(&mut shares, edge.to, edge.amount);
    }
    let (mut followed, mut behind) = (vec![0.0; shares.len()], vec![0.0; shares.len()]);
    for edge in &graph.branches {
        let duration = over(at(&of_starts, edge.to), at(&graph.inflow, edge.to));
        add(&mut followed, edge.from, edge.amount);
        add(&mut behind, edge.from, edge.amount * duration);
    }
    let mean_and_square = |amounts: &[f64]| {
        let (mut all, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for (amount, (behind, followed)) in amounts.iter().zip(behind.iter().zip(&followed)) {
            if 0.0 < *followed {
                let duration = behind / followed;
                all += amount;
                sum += amount * duration;
                squares += amount * duration * duration;
            }
        }
        (all, over(sum, all), over(squares, all))
    };
    let (_, mean, square) = mean_and_square(&shares);
    let (n, newest, _) = mean_and_square(&graph.newest);
    SIGMAS * over(square - mean * mean, n).max(0.0).sqrt() < newest - mean
}

/// What each stream takes, in cycles: the times of its instructions that manuals have, and the taken branch that ends it.
pub(crate) fn durations(map: &BlockMap, streams: &[Stream]) -> Vec<f64> {
    let kinds = kinds_of_forms(&map.forms);
    let time = |kind: usize| KNOWN_TIMES.get(kind).map_or(1.0, |(time, _)| *time);
    let of_form: Vec<f64> = kinds.iter().map(|kind| time(usize::from(*kind))).collect();
    let of_stream = |stream: &Stream| {
        let text = map.text(stream.text);
        let instructions = text.map(|text| text.instructions(stream.first..stream.end));
        let of = instructions.unwrap_or_default().iter();
        let sum: f64 = of
            .map(|instruction| at(&of_form, usize::from(instruction.form.0)))
            .sum();
        sum + time(kind::TAKEN)
    };
    streams.iter().map(of_stream).collect()
}

#[cfg(test)]
mod tests {
    use super::super::graph::tests::graph;
    use super::*;

    /// Streams of a stack.
    const DEPTH: usize = 15;

    /// Branches: where each leads to with which probability, and the cycles of the stream that ends with it. From the fast loop of 0 to 3 one
    /// comes to the slow one of 4 to 6 by chance, and back.
    const BRANCHES: [(&[(usize, f64)], f64); 7] = [
        (&[(1, 1.0)], 2.0),
        (&[(2, 0.7), (3, 0.3)], 3.0),
        (&[(3, 1.0)], 2.0),
        (&[(0, 0.8), (4, 0.2)], 4.0),
        (&[(5, 0.5), (6, 0.5)], 12.0),
        (&[(6, 1.0)], 25.0),
        (&[(4, 0.6), (0, 0.4)], 6.0),
    ];

    /// Runs the branches, and takes a stack after each 101st one, `least` to `longest` cycles late. Returns the executions and the graph
    /// of the stacks: the start after each branch has one stream, to that branch.
    fn sampled(least: f64, longest: f64) -> (Vec<f64>, FlowGraph) {
        const N: usize = BRANCHES.len();
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (mut at, mut now) = (0, 0.0);
        let mut ran = Vec::new();
        for _ in 0..2_000_000 {
            let (targets, _) = BRANCHES[at];
            let mut left = random();
            at = targets
                .iter()
                .find(|(_, part)| {
                    left -= part;
                    left < 0.0
                })
                .map_or(targets[0].0, |(to, _)| *to);
            now += BRANCHES[at].1;
            ran.push((at, now));
        }
        let mut executed = vec![0.0; N];
        ran.iter().for_each(|(branch, _)| executed[*branch] += 1.0);
        let (mut streams, mut leads, mut newest) = (vec![0.0; N], vec![[0.0; N]; N], vec![0.0; N]);
        for n in (100..ran.len() - 200).step_by(101) {
            let until = ran[n].1 + least + random() * (longest - least);
            let last = n + ran[n + 1..].iter().take_while(|(_, at)| *at <= until).count();
            let stack = &ran[last - DEPTH..=last];
            newest[stack[DEPTH].0] += 1.0;
            for pair in stack.windows(2) {
                streams[pair[1].0] += 1.0;
                leads[pair[0].0][pair[1].0] += 1.0;
            }
        }
        let streams: Vec<_> = streams
            .iter()
            .enumerate()
            .map(|(n, hits)| (n, n, *hits))
            .collect();
        let leads = leads.iter().enumerate().flat_map(|(from, leads)| {
            let leads = leads.iter().enumerate().filter(|(_, hits)| 0.0 < **hits);
            leads.map(move |(to, hits)| (from, to, *hits))
        });
        let mut graph = graph(&streams, &leads.collect::<Vec<_>>());
        graph.newest = newest;
        (executed, graph)
    }

    /// Half of the sum of the differences between shares.
    fn off(executed: &[f64], graph: &FlowGraph) -> f64 {
        let [ran, shown]: [f64; 2] = [executed.iter().sum(), graph.inflow.iter().sum()];
        let both = executed.iter().zip(&graph.inflow);
        both.map(|(executed, inflow)| (executed / ran - inflow / shown).abs())
            .sum::<f64>()
            / 2.0
    }

    fn durations(wrong: impl Fn(usize) -> f64) -> Vec<f64> {
        let of = |(n, (_, cycles)): (usize, &(_, f64))| cycles * wrong(n);
        BRANCHES.iter().enumerate().map(of).collect()
    }

    #[test]
    fn newest_slots_tell_how_late_stacks_are_and_weights_undo_it() {
        let (executed, graph) = sampled(20.0, 60.0);
        let recorded = off(&executed, &graph);
        let (weighed, late) = super::weighed(&graph, &durations(|_| 1.0), DEPTH as f64).unwrap();
        let (least, longest) = late.cycles;
        // Much later looks like a little later: both are the mean over the loop.
        assert!(least <= 24.0 && 48.0 <= longest, "{late:?}");
        let left = off(&executed, &weighed);
        assert!(0.02 < recorded && left < recorded / 2.0, "{recorded} {left}");
        let sum = |graph: &FlowGraph| graph.inflow.iter().sum::<f64>();
        assert!((sum(&weighed) / sum(&graph) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn wrong_times_of_instructions_leave_a_part() {
        let (executed, graph) = sampled(20.0, 60.0);
        let wrong = durations(|n| if n % 2 == 0 { 1.3 } else { 0.8 });
        let (weighed, _) = super::weighed(&graph, &wrong, DEPTH as f64).unwrap();
        assert!(off(&executed, &weighed) < off(&executed, &graph) / 2.0);
    }

    #[test]
    fn stacks_on_time_stay_as_they_are() {
        let (_, graph) = sampled(0.0, 0.0);
        assert!(super::weighed(&graph, &durations(|_| 1.0), DEPTH as f64).is_none());
    }
}
