//! Weights of branch stacks that another event than taken branches triggered.
//!
//! Such an event overflows where it counts fast: cycles in slow code, instructions in long runs between branches. Its stacks
//! are therefore sampled after some branches more often than these are executed, and so are the streams in them. Two things
//! show by how much:
//!
//! 1. What the trigger counts after each branch. Older slots show how many of these pass after a branch: cycles where
//!    records hold them, and instructions or branches of streams whose text is known. The weight of a stack is the
//!    inverse of what passes after its own branch.
//! 2. The shares of branches in the slots. Every branch of a running program has the same share in every slot, newest or
//!    oldest. So the weight of a stack is the share of its trigger in older slots, divided by its share as a trigger. The
//!    older slots belong to reweighted stacks themselves, so this is iterated. It needs no model of a processor, but it
//!    compares only code that occurs in one stack.
//!
//! Loops that are never left within a stack are compared by what the trigger counts. So are the rings, as an interrupt leaves no
//! branch into the kernel. Executions are then the number of stacks divided by what passes in an average stream around the code.
//!
//! Where time is the trigger and records hold no cycles, the times of instruction kinds are fitted to the recording ([`times`]): a
//! branch that triggers twice the stacks that its share in older slots suggests leads to a stream of twice the time. Where the
//! text is unknown or something else is the trigger, streams of equal length in bytes count as equally long.
//!
//! The remaining errors on the emulated machine are in kernel-tests/results/time-triggered.txt.

use hashbrown::HashMap;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::is_kernel;
use hbbp_ebpf::stream::executed;

use super::Sample;
use super::stream_cost::{FindText, LONGEST, StreamCosts, Trigger};
use class::{Class, Costs, PRIOR_STREAMS, STEPS};
use hbbp_model::kinds::{KNOWN_TIMES, Kinds};
use instructions::Instructions;
use neighbours::{Neighbours, Pairs};

/// The slot whose branch represents the trigger. The newest one may be a copy on processors of the Skylake family: of a
/// recording of one of them with exact counts, the distance per address is 0.8 % by this slot, 1.1 % by the newest, and
/// 2.8 % without weights. The event selects what is executed after the trigger, so newer streams have no weight.
pub(super) const TRIGGER: usize = 1;

/// How often shares are compared. Of loads on the emulated machine whose error is 8.0 % as recorded, 2 rounds leave 2.9 %, 8
/// rounds 1.9 %, 16 rounds 1.6 % and 40 rounds 1.3 %.
const ROUNDS: u32 = 16;

/// The same where weights begin with the times of instructions, and are nearer from the start. Of every second workload of the
/// emulated machine, in the order of `workload::ALL`, 3 rounds leave 1.92 %, 5 rounds 1.81 %, 8 rounds 1.73 % and 16 rounds
/// 1.88 %: chance grows from round to round.
const ROUNDS_FROM_TIMES: u32 = 8;

/// Stacks of average weight that each class is given in addition to its own. Without them, a branch which triggered a
/// few stacks and is frequent elsewhere would blow these up. With less, chance grows from round to round.
const PRIOR_STACKS: f64 = 30.0;

/// Distinct branches that are kept: the same number as of an interval.
const CAPACITY: usize = 1 << 22;

/// Bytes of the last instruction of a stream, whose start alone is known: most branches have two to five.
const LAST: u64 = 3;

/// A branch of an event: its number, the process of user code, source and target.
type Branch = (u32, u32, u64, u64);

/// The branches of all stacks, and the weights of stacks by them.
#[derive(Debug, Default)]
pub(super) struct SlotWeights {
    numbers: HashMap<Branch, u32>,
    /// By number.
    classes: Vec<Class>,
    /// Each stack is shared between its older branches of the trigger's ring.
    neighbours: Neighbours,
    /// Of the streams whose time is not recorded.
    instructions: Instructions,
    streams: StreamCosts,
}

/// The trigger of a stack and the branches in older slots that are compared with it. The oldest is left out: branches stick
/// to its slot on some processors (paper section III.C).
fn split(entries: &[BranchEntry]) -> Option<(&BranchEntry, &[BranchEntry])> {
    let [trigger, older @ .., _oldest] = executed(entries).get(TRIGGER..)? else {
        return None;
    };
    (!older.is_empty()).then_some((trigger, older))
}

fn branch(event: u32, tgid: u32, entry: &BranchEntry) -> Branch {
    let process = if is_kernel(entry.from) { 0 } else { tgid };
    (event, process, entry.from, entry.to)
}

/// The bytes from the target of one branch to the end of the next one; `None` if they make no stream.
fn bytes(older: &BranchEntry, newer: &BranchEntry) -> Option<f64> {
    let bytes = newer.from.checked_sub(older.to)?;
    (bytes < LONGEST).then_some((bytes + LAST) as f64)
}

impl SlotWeights {
    /// Looks at the stack of a sample, newest entry first, without entries of wrong paths.
    pub(super) fn look(
        &mut self,
        event: u32,
        counts: Trigger,
        sample: &Sample<'_>,
        entries: &[BranchEntry],
        text: &mut FindText<'_>,
    ) {
        let (tgid, times) = (sample.tgid, sample.times as f64);
        let Some((trigger, older)) = split(entries) else {
            return;
        };
        let Some(number) = self.number(branch(event, tgid, trigger)) else {
            return;
        };
        self.change(number, |class| class.triggered += times);
        let is_alike = |entry: &&BranchEntry| is_kernel(entry.from) == is_kernel(trigger.from);
        let each = times / older.iter().filter(is_alike).count().max(1) as f64;
        for entry in older.iter().filter(is_alike) {
            let Some(older) = self.number(branch(event, tgid, entry)) else {
                continue;
            };
            self.neighbours.add(number, older, each);
        }
        self.look_at_costs(event, counts, sample, executed(entries), text);
    }

    fn look_at_costs(
        &mut self,
        event: u32,
        counts: Trigger,
        sample: &Sample<'_>,
        entries: &[BranchEntry],
        text: &mut FindText<'_>,
    ) {
        let (tgid, times) = (sample.tgid, sample.times as f64);
        let trigger = entries.get(TRIGGER).map(|entry| branch(event, tgid, entry));
        let Some(trigger) = trigger.and_then(|trigger| self.number(trigger)) else {
            return;
        };
        if counts == Trigger::Other {
            return;
        }
        let is_timed = counts == Trigger::Time && entries.iter().all(|entry| entry.cycles() == 0);
        if is_timed {
            let newest = entries.first();
            let leads = newest.is_some_and(|newest| self.streams.leads_to_ip(sample, newest, text));
            self.instructions.triggered(trigger, leads, times);
        }
        for window in entries.windows(TRIGGER + 2).skip(1) {
            let [newer, older, .., behind] = window else {
                continue;
            };
            let Some(bytes) = bytes(older, newer) else {
                continue;
            };
            self.change(trigger, |class| {
                class.costs.bytes += bytes * times;
                class.costs.n_in_stacks += times;
            });
            let behind = self.number(branch(event, tgid, behind));
            if is_timed {
                if let Some(kinds) = self.streams.kinds(sample, older, newer, text) {
                    self.instructions.add(trigger, behind, &kinds, times);
                }
                continue;
            }
            let passed = self.streams.cost(counts, sample, older, newer, text);
            if let Some(passed) = passed {
                self.change(trigger, |class| {
                    class.costs.inside += passed * times;
                    class.costs.n_inside += times;
                });
            }
            if let Some((passed, behind)) = passed.zip(behind) {
                self.change(behind, |class| {
                    class.costs.passed += passed * times;
                    class.costs.n_behind += times;
                });
            }
        }
    }

    /// The number of a branch; `None` if there are too many.
    fn number(&mut self, branch: Branch) -> Option<u32> {
        let next = self.classes.len();
        if let Some(number) = self.numbers.get(&branch) {
            return Some(*number);
        }
        let number = u32::try_from(next).ok().filter(|_| next < CAPACITY)?;
        let (event, _, from, _) = branch;
        self.classes.push(Class {
            event,
            is_kernel: is_kernel(from),
            costs: Costs::default(),
            triggered: 0.0,
            weight: 1.0,
        });
        self.numbers.insert(branch, number);
        Some(number)
    }

    fn change(&mut self, number: u32, change: impl FnOnce(&mut Class)) {
        if let Some(class) = self.classes.get_mut(number as usize) {
            change(class);
        }
    }

    /// Ends the look: from now on stacks have weights, whose sum over an event is the number of its stacks.
    pub(super) fn settle(&mut self) {
        let timed = self.weigh_by_costs();
        let pairs = std::mem::take(&mut self.neighbours).into_pairs(self.classes.len());
        let instructions = std::mem::take(&mut self.instructions);
        let modelled = instructions.known_events(&self.classes);
        let due = self.weights();
        self.equalize(
            &pairs,
            |event| !timed.contains(&event) && !modelled.contains(&event),
            ROUNDS,
            Some(&due),
        );
        self.scale_by_costs(&pairs, &timed);
        if !modelled.is_empty() {
            self.weigh_by_times(&pairs, &instructions, &modelled);
        }
    }

    /// Weights stacks such that branches have the same share in all slots, of the events that are `wanted`. The sum
    /// over a ring is scaled to `due`, if given.
    fn equalize(
        &mut self,
        pairs: &Pairs,
        wanted: impl Fn(u32) -> bool,
        rounds: u32,
        due: Option<&HashMap<(u32, bool), f64>>,
    ) {
        for _ in 0..rounds {
            let weights: Vec<f64> = self.classes.iter().map(|class| class.weight).collect();
            for (class, share) in self.classes.iter_mut().zip(pairs.shares(&weights)) {
                if wanted(class.event) {
                    let weight = class.triggered * class.weight;
                    class.weight *= (share + PRIOR_STACKS) / (weight + PRIOR_STACKS);
                }
            }
            let Some(due) = due else { continue };
            let weights = self.weights();
            for class in &mut self.classes {
                let ring = (class.event, class.is_kernel);
                let (due, weight) = (due.get(&ring), weights.get(&ring));
                if let (Some(due), Some(weight)) = (due, weight.filter(|weight| 0.0 < **weight)) {
                    class.weight *= due / weight;
                }
            }
        }
    }

    /// Weights by the times of instructions, which are fitted first.
    fn weigh_by_times(&mut self, pairs: &Pairs, instructions: &Instructions, events: &[u32]) {
        let is_modelled = |event| events.contains(&event);
        let confirmed = instructions.confirmed(&self.classes, pairs);
        let known = KNOWN_TIMES.map(|(time, _)| time);
        let fit = |weights: &mut Self, times: &Kinds| {
            let begin = instructions.weights(times, &confirmed);
            weights.weigh(&begin, is_modelled);
            weights.equalize(pairs, is_modelled, ROUNDS_FROM_TIMES, None);
        };
        fit(self, &known);
        let weights: Vec<f64> = self.classes.iter().map(|class| class.weight).collect();
        let times = times::fit(&instructions.rows(pairs, &weights, &confirmed));
        fit(self, &times);
        let weights: Vec<f64> = self.classes.iter().map(|class| class.weight).collect();
        let inside = instructions.inside(&times, weights.len());
        self.weigh(&scaled(pairs, &weights, &inside), is_modelled);
    }

    /// Scales weights by what the triggers of some events count in the streams.
    fn scale_by_costs(&mut self, pairs: &Pairs, events: &[u32]) {
        let mut all = Costs::default();
        for class in self.classes.iter().filter(|class| events.contains(&class.event)) {
            all.add(&class.costs);
        }
        let average = all.inside / all.n_inside.max(1.0);
        let inside = |class: &Class| {
            let Costs { inside, n_inside, .. } = class.costs;
            (inside + PRIOR_STREAMS * average) / (n_inside + PRIOR_STREAMS)
        };
        let inside: Vec<f64> = self.classes.iter().map(inside).collect();
        let weights: Vec<f64> = self.classes.iter().map(|class| class.weight).collect();
        self.weigh(&scaled(pairs, &weights, &inside), |event| events.contains(&event));
    }

    /// Gives stacks of some events these weights, whose sum over an event becomes the number of its stacks.
    fn weigh(&mut self, weights: &[f64], wanted: impl Fn(u32) -> bool) {
        let mut sums: HashMap<u32, (f64, f64)> = HashMap::new();
        for (class, weight) in self.classes.iter().zip(weights) {
            let (stacks, sum) = sums.entry(class.event).or_default();
            *stacks += class.triggered;
            *sum += class.triggered * weight;
        }
        for (class, weight) in self.classes.iter_mut().zip(weights) {
            let sums = sums.get(&class.event).filter(|(_, sum)| 0.0 < *sum);
            if let Some((stacks, sum)) = sums.filter(|_| wanted(class.event)) {
                class.weight = weight * stacks / sum;
            }
        }
    }

    /// The total weight of the stacks of each event and ring.
    fn weights(&self) -> HashMap<(u32, bool), f64> {
        let mut weights = HashMap::new();
        for class in &self.classes {
            *weights.entry((class.event, class.is_kernel)).or_default() += class.triggered * class.weight;
        }
        weights
    }

    /// Weights by what passes after the triggers: in what they count where that is known, else in bytes. Returns the events of
    /// which it is known.
    fn weigh_by_costs(&mut self) -> Vec<u32> {
        let mut of_event: HashMap<u32, Costs> = HashMap::new();
        for class in &self.classes {
            of_event.entry(class.event).or_default().add(&class.costs);
        }
        let weight = |class: &Class| {
            of_event
                .get(&class.event)
                .map_or(1.0, |all| class.costs.weight(all))
        };
        let weights: Vec<f64> = self.classes.iter().map(weight).collect();
        self.weigh(&weights, |_| true);
        let timed = of_event.iter().filter(|(_, costs)| costs.are_known());
        timed.map(|(event, _)| *event).collect()
    }

    /// The weight of a stack; 1 on average over the stacks of an event, and for one that is too short to have one.
    pub(super) fn weight(&self, event: u32, tgid: u32, entries: &[BranchEntry]) -> f64 {
        let trigger = split(entries).map(|(trigger, _)| branch(event, tgid, trigger));
        let number = trigger.and_then(|trigger| self.numbers.get(&trigger));
        let class = number.and_then(|number| self.classes.get(*number as usize));
        class.map_or(1.0, |class| class.weight)
    }
}

/// Weights by which the executions of code are proportional to its number of stacks, divided by the time of an average
/// stream around it.
///
/// `inside` has the mean time of the streams in the stacks of each branch.
fn scaled(pairs: &Pairs, weights: &[f64], inside: &[f64]) -> Vec<f64> {
    let took: Vec<f64> = weights
        .iter()
        .zip(inside)
        .map(|(weight, took)| weight * took)
        .collect();
    let around = pairs.means(&took, STEPS).into_iter();
    let scale = around.map(|took| if 0.0 < took { 1.0 / took } else { 1.0 });
    weights
        .iter()
        .zip(scale)
        .map(|(weight, scale)| weight * scale)
        .collect()
}

mod class;
mod instructions;
mod neighbours;
mod times;

#[cfg(test)]
mod tests;
