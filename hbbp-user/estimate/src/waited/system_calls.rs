//! System calls, whose time with interrupts off is sampled elsewhere, and partly in the other ring.
//!
//! SYSCALL turns interrupts off. The kernel turns them on somewhat later (STI), off again before it leaves (CLI), and SYSRET turns
//! them on in user code. So what was sampled behind that STI is the time of SYSCALL and of the kernel's way in. What was
//! sampled behind SYSCALL is that of the kernel's way out: SYSCALL itself has no sample there. Both ways are those with the fewest
//! jumps of conditional branches, and then the shortest by known times. Compilers move what is unlikely, such as signals and
//! tracing, out of the line (`unlikely` of include/linux/compiler.h). Their instructions share the samples by executions and
//! times, as ways into a block do. Each SYSCALL has as many parts of the way in as there are samples of the way out behind it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::iter::successors;

use super::code::Place;
use super::executions::Executions;
use super::interrupts::{Effect, Interrupts};
use super::shares::shares;
use super::times::Times;
use crate::sources::ebs::Hits;
use hbbp_code::blocks::Flow;
use hbbp_code::locate::TextIdx;
use hbbp_model::snapshot::ProcessIdx;

/// Where SYSCALL leads (arch/x86/entry/entry_64.S).
const ENTRY: &str = "entry_SYSCALL_64";

/// Instructions that are searched for a way; it has some 100.
const MOST_SEARCHED: usize = 1 << 14;

/// Samples behind SYSCALL by process image and instruction.
pub(super) type Calls = BTreeMap<ProcessIdx, BTreeMap<Place, f64>>;

/// The instructions of the kernel's ways with interrupts off, none where they are not known.
#[derive(Default)]
pub(super) struct KernelWays {
    pub(super) way_in: Vec<Place>,
    pub(super) way_out: Vec<Place>,
}

/// The time of system calls with interrupts off.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SystemCalls {
    /// The instruction behind which the time of the way in was sampled.
    turned_on: Option<Place>,
    way_in: Vec<(Place, f64)>,
    /// The share of SYSCALL in the way in.
    of_call: f64,
    way_out: Vec<(Place, f64)>,
    /// The shares of each SYSCALL of a process image.
    calls: BTreeMap<ProcessIdx, Vec<(Place, f64)>>,
}

impl SystemCalls {
    pub(super) fn new(ways: &KernelWays, calls: Calls, executions: &mut Executions<'_>) -> Self {
        let mut found = Self::default();
        let call = calls.values().flat_map(BTreeMap::keys).next();
        if let (Some(last), Some(call)) = (ways.way_in.last(), call) {
            let behind = (last.0, last.1 + 1);
            let samples = executions.hits.get(&behind).copied().unwrap_or_default();
            let all = [&ways.way_in[..], &[*call]].concat();
            found.way_in = executions.shares(&all, *last, samples);
            let of_call = found.way_in.iter().position(|(at, _)| at == call);
            found.of_call = of_call.map_or(0.0, |at| found.way_in.swap_remove(at).1);
            found.turned_on = Some(*last);
        }
        if let Some(first) = ways.way_out.first() {
            let samples = calls.values().flat_map(BTreeMap::values).sum();
            found.way_out = executions.shares(&ways.way_out, *first, samples);
        }
        let of_process =
            |(process, calls): (_, BTreeMap<Place, f64>)| (process, shares(calls.into_iter().collect()));
        found.calls = calls.into_iter().map(of_process).collect();
        found
    }

    /// The instructions that time of a process image before an instruction belongs to, if it is that of a system call.
    pub(super) fn of(
        &self,
        interrupts: &Interrupts<'_>,
        process: ProcessIdx,
        at: Place,
    ) -> Option<Vec<(Place, f64)>> {
        if !self.way_out.is_empty() && interrupts.is_call(at) {
            return Some(self.way_out.clone());
        }
        if self.turned_on != Some(at) {
            return None;
        }
        let calls = self.calls.get(&process).map_or(&[][..], Vec::as_slice);
        let of_calls = calls.iter().map(|(call, share)| (*call, share * self.of_call));
        // Where the calls of the process were not seen, the kernel has all of it.
        let shares = shares(self.way_in.iter().copied().chain(of_calls).collect());
        (!shares.is_empty()).then_some(shares)
    }
}

impl KernelWays {
    /// The ways of the kernel that was hit.
    pub(super) fn new(interrupts: &Interrupts<'_>, times: &Times, hits: &Hits) -> Self {
        let search = Search {
            interrupts,
            times,
            hits,
        };
        Self {
            way_in: search.way_in().unwrap_or_default(),
            way_out: search.way_out().unwrap_or_default(),
        }
    }
}

/// Finds the ways.
struct Search<'a> {
    interrupts: &'a Interrupts<'a>,
    times: &'a Times,
    hits: &'a Hits,
}

impl Search<'_> {
    /// From the entry of the kernel to the instruction behind STI.
    fn way_in(&self) -> Option<Vec<Place>> {
        let entry = self.interrupts.code.kernel_function(ENTRY)?;
        let is_end = |at| self.interrupts.effect(at) == Effect::OnAfterNext;
        let mut way = self.shortest(&[entry], |at| self.next(at), is_end)?;
        way.reverse();
        let (text, sti) = *way.last()?;
        way.push((text, sti + 1));
        Some(way)
    }

    /// From behind CLI to SYSRET.
    fn way_out(&self) -> Option<Vec<Place>> {
        let code = &self.interrupts.code;
        let texts = code.map.texts.iter().zip((0..).map(TextIdx));
        let kernel = texts.filter(|(_, text)| code.is_of_kernel(*text));
        let all =
            kernel.flat_map(|(blocks, text)| (0..).map(move |at| (text, at)).take(blocks.n_instructions()));
        let returns: Vec<Place> = all
            .filter(|at| self.interrupts.effect(*at) == Effect::Return)
            .collect();
        let is_end = |at| self.interrupts.effect(at) == Effect::Off;
        // The interrupt of a clock can be taken before a CLI that is executed, as they are still on there.
        let is_sampled = |at| is_end(at) && self.hits.contains_key(&at);
        let before = |at| self.before(at);
        let mut way = self
            .shortest(&returns, before, is_sampled)
            .or_else(|| self.shortest(&returns, before, is_end))?;
        way.remove(0);
        Some(way)
    }

    /// What can be executed after an instruction, in this function or one that it calls.
    fn next(&self, at: Place) -> Vec<Place> {
        let code = &self.interrupts.code;
        let comes_back = matches!(code.flow(at), Some(Flow::Call | Flow::IndirectCall));
        let next = (at.0, at.1 + 1);
        let next = (comes_back || code.falls(at)).then_some(next);
        next.into_iter().chain(code.target(at)).collect()
    }

    /// What can have been executed before an instruction: in this function, one that called it, or one that came back.
    fn before(&self, at: Place) -> Vec<Place> {
        let code = &self.interrupts.code;
        let mut before = code.ways(at).from;
        if let Some(call) = code.call_before(at) {
            let callee = code.target(call);
            let mut work_left = MOST_SEARCHED;
            let returns = callee.map(|callee| code.returns(callee, &mut work_left));
            before.extend(
                returns
                    .filter(|returns| !returns.is_empty())
                    .unwrap_or_else(|| vec![call]),
            );
        }
        before
    }

    /// The way to an instruction with an effect that jumps least often by conditional branches, of these the one that takes the least
    /// time, from that instruction back (E. W. Dijkstra, A note on two problems in connexion with graphs, 1959).
    fn shortest(
        &self,
        from: &[Place],
        step: impl Fn(Place) -> Vec<Place>,
        is_end: impl Fn(Place) -> bool,
    ) -> Option<Vec<Place>> {
        let code = &self.interrupts.code;
        // In 1/16 of a cycle, so that equal sums are equal.
        #[expect(clippy::cast_sign_loss, reason = "times are positive")]
        let time = |at| (16.0 * self.times.of(code, at).cycles) as u64 + 1;
        let jumps = |a: Place, b: Place| {
            let (from, to) = match code.target(a) == Some(b) {
                true => (a, b),
                false => (b, a),
            };
            code.flow(from) == Some(Flow::Conditional) && code.target(from) == Some(to)
        };
        let mut came_from: HashMap<Place, Option<Place>> = HashMap::new();
        let mut open: BinaryHeap<_> = from.iter().map(|at| Reverse((0, time(*at), *at, None))).collect();
        while let Some(Reverse((jumped, until, at, before))) = open.pop() {
            if came_from.contains_key(&at) || MOST_SEARCHED <= came_from.len() {
                continue;
            }
            came_from.insert(at, before);
            if is_end(at) {
                let way = successors(Some(at), |at| came_from.get(at).copied().flatten());
                return Some(way.collect());
            }
            open.extend(step(at).into_iter().map(|next| {
                let jumped = jumped + u64::from(jumps(at, next));
                Reverse((jumped, until + time(next), next, Some(at)))
            }));
        }
        None
    }
}
