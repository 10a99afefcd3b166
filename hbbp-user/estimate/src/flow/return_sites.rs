//! Which call returns to which start.
//!
//! A call comes back, so its return site is reached as often as the call ran. That is more certain than where each return
//! goes, above all where all functions share one return instruction (return thunks, arch/x86/lib/retpoline.S).

use std::collections::{HashMap, HashSet};

use super::graph::{Edge, FlowGraph, Node};
use crate::sums::{add, at};
use hbbp_code::blocks::{BlockMap, Flow};

/// Most times that the returns to a return site may differ from the calls before it, either way, and still be taken for
/// theirs: a bias is less than that, and a function that does not return as a rule is more.
const RETURNS: f64 = 4.0;

/// The targets of branches, with an edge of amount 1 from each call to its return site in place of the recorded returns.
/// The other amounts are probabilities.
pub(super) fn from_calls(map: &BlockMap, graph: &FlowGraph, mut targets: Vec<Edge>) -> Vec<Edge> {
    let flow = |(text, instruction, _): Node| Some(map.text(text)?.instruction(instruction)?.flow);
    let is_return = |location: &Node| matches!(flow(*location), Some(Flow::Return | Flow::InterruptReturn));
    let numbered = graph.sources.iter().zip(0..);
    let returns: HashSet<usize> = numbered
        .filter(|(location, _)| is_return(location))
        .map(|(_, n)| n)
        .collect();
    let mut returned = vec![0.0; graph.starts.len()];
    for branch in graph.branches.iter().filter(|b| returns.contains(&b.from)) {
        add(&mut returned, branch.to, branch.amount);
    }
    let mut ran = vec![0.0; graph.sources.len()];
    for stream in &graph.streams {
        add(&mut ran, stream.to, stream.amount);
    }
    let sources: HashMap<Node, usize> = graph.sources.iter().copied().zip(0..).collect();
    let call_before = |(&(text, instruction, process), start): (&Node, usize)| {
        let before = (text, instruction.checked_sub(1)?, process);
        let is_call = matches!(
            flow(before),
            Some(Flow::Call | Flow::IndirectCall | Flow::SystemCall)
        );
        let call = *sources.get(&before).filter(|_| is_call)?;
        let (returned, ran) = (at(&returned, start), at(&ran, call));
        let agree = 0.0 < returned && returned < RETURNS * ran && ran < RETURNS * returned;
        agree.then_some(Edge {
            from: call,
            to: start,
            amount: 1.0,
        })
    };
    let calls: Vec<Edge> = graph.starts.iter().zip(0..).filter_map(call_before).collect();
    let sites: HashSet<usize> = calls.iter().map(|call| call.to).collect();
    targets.retain(|target| !(returns.contains(&target.from) && sites.contains(&target.to)));
    targets.extend(calls);
    targets
}
