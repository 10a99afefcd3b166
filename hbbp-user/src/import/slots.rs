//! What a stack weighs that another event than taken branches triggered.
//!
//! Such an event overflows where it counts fast: cycles where code is slow, instructions in long runs between branches. Its
//! stacks are therefore taken behind some branches more often than these are executed, and so are the streams in them. How
//! much more often, two things tell:
//!
//! 1. What the trigger counts behind each branch. Where that is time and records hold cycles, or instructions or branches of
//!    streams whose text is known, older slots show how many of them pass, and a stack weighs the inverse of what passes
//!    behind its own.
//! 2. The shares of branches in the slots. Every branch of a running program has the same share in every slot, newest or
//!    oldest. So a stack weighs as much more or less as its trigger has a larger or smaller share in older slots than as
//!    trigger; as the older slots are themselves of weighed stacks, this is repeated. No model of a processor is in it. But it
//!    compares only code that occurs in one stack. Between loops that are never left within a stack the weights decide that
//!    it begins with, and these follow from the bytes of code: as many instructions have about as many bytes, and take
//!    about as many cycles, in one loop as in another. So they do between the rings: an interrupt leaves no branch that
//!    leads there, and what is not in the stacks would drain the weight of a ring into the other one.
//!
//! What that leaves on the emulated machine: kernel-tests/results/time-triggered.txt.

use hashbrown::HashMap;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::is_kernel;
use hbbp_ebpf::stream::executed;

use super::Sample;
use super::stream_cost::{FindText, LONGEST, StreamCosts, Trigger};

/// The slot whose branch stands for the trigger. The newest one may be a copy on processors of the Skylake family: of a
/// recording of one of them with exact counts, the distance per address is 0.8 % by this slot, 1.1 % by the newest, and 2.8 %
/// without weights. What runs after the trigger the event has chosen, so streams that are newer weigh nothing.
pub(super) const TRIGGER: usize = 1;

/// How often shares are compared. Of loads on the emulated machine whose error is 8.0 % as recorded, 2 rounds leave 2.9 %, 8
/// rounds 1.9 %, 16 rounds 1.6 % and 40 rounds 1.3 %.
const ROUNDS: u32 = 16;

/// Stacks of average weight that each class is given besides its own, so that a branch which triggered a few stacks and is
/// frequent elsewhere does not blow these up: with less, chance grows from round to round.
const PRIOR_STACKS: f64 = 30.0;

/// Streams of average cost that each class is given besides its own.
const PRIOR_STREAMS: f64 = 3.0;

/// Distinct branches that are kept, and distinct pairs of a trigger and an older branch: as many as are counted of an interval.
const CAPACITY: usize = 1 << 22;

/// Bytes of the last instruction of a stream, whose start alone is known: most branches have two to five.
const LAST: u64 = 3;

/// A branch of an event: its number, the process of user code, source and target.
type Branch = (u32, u32, u64, u64);

/// The branches of all stacks, and what stacks weigh by them.
#[derive(Debug, Default)]
pub(super) struct SlotWeights {
    numbers: HashMap<Branch, u32>,
    /// By number.
    classes: Vec<Class>,
    /// By trigger and older branch: stacks, each shared equally between its older branches of the trigger's ring.
    pairs: HashMap<(u32, u32), f64>,
    streams: StreamCosts,
}

/// Stacks with the same trigger.
#[derive(Clone, Copy, Debug)]
struct Class {
    event: u32,
    is_kernel: bool,
    costs: Costs,
    /// Stacks.
    triggered: f64,
    /// What each of them weighs.
    weight: f64,
}

/// What passes while streams run.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    /// What the trigger counts in the streams behind the branches of a class, where these are in older slots: of the one in
    /// which a stack is taken that has such a branch in the slot [`TRIGGER`]. 0 where nothing tells.
    passed: f64,
    n_behind: f64,
    /// Bytes of all streams in the stacks of a class. 0 where the trigger counts something else than instructions or time.
    bytes: f64,
    n_in_stacks: f64,
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

/// The bytes from the target of one branch to the end of the next one; `None` where they make no stream.
fn bytes(older: &BranchEntry, newer: &BranchEntry) -> Option<f64> {
    let bytes = newer.from.checked_sub(older.to)?;
    (bytes < LONGEST).then_some((bytes + LAST) as f64)
}

impl SlotWeights {
    /// Looks at the stack of a sample, newest entry first, without entries of wrong paths.
    pub(super) fn look(
        &mut self,
        (event, counts): (u32, Trigger),
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
            let pair = (number, older);
            if self.pairs.len() < CAPACITY || self.pairs.contains_key(&pair) {
                *self.pairs.entry(pair).or_default() += each;
            }
        }
        self.look_at_costs((event, counts), sample, executed(entries), text);
    }

    fn look_at_costs(
        &mut self,
        (event, counts): (u32, Trigger),
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
            let passed = self.streams.cost(counts, sample, (older, newer), text);
            if let Some((passed, behind)) = passed.zip(self.number(branch(event, tgid, behind))) {
                self.change(behind, |class| {
                    class.costs.passed += passed * times;
                    class.costs.n_behind += times;
                });
            }
        }
    }

    /// The number of a branch; `None` where there are too many.
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
        let due = self.weights();
        // In a fixed order, so that sums of fractions are the same in each run.
        let mut pairs: Vec<_> = std::mem::take(&mut self.pairs).into_iter().collect();
        pairs.sort_unstable_by_key(|(pair, _)| *pair);
        let is_timed = |class: &Class| timed.contains(&class.event);
        for _ in 0..ROUNDS {
            let mut shares = vec![0.0; self.classes.len()];
            for ((trigger, older), stacks) in &pairs {
                let weight = self
                    .classes
                    .get(*trigger as usize)
                    .map_or(1.0, |class| class.weight);
                if let Some(share) = shares.get_mut(*older as usize) {
                    *share += stacks * weight;
                }
            }
            for (class, share) in self.classes.iter_mut().zip(shares) {
                if !is_timed(class) {
                    let weight = class.triggered * class.weight;
                    class.weight *= (share + PRIOR_STACKS) / (weight + PRIOR_STACKS);
                }
            }
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

    /// What the stacks of each event and ring weigh together.
    fn weights(&self) -> HashMap<(u32, bool), f64> {
        let mut weights = HashMap::new();
        for class in &self.classes {
            *weights.entry((class.event, class.is_kernel)).or_default() += class.triggered * class.weight;
        }
        weights
    }

    /// Weights by what passes behind the triggers: in what they count where that is known, else in bytes. Returns the events of
    /// which it is known.
    fn weigh_by_costs(&mut self) -> Vec<u32> {
        let mut of_event: HashMap<u32, (Costs, f64, f64)> = HashMap::new();
        for class in &self.classes {
            of_event.entry(class.event).or_default().0.add(&class.costs);
        }
        for class in &mut self.classes {
            let (costs, stacks, weights) = of_event.entry(class.event).or_default();
            class.weight = class.costs.weight(costs);
            *stacks += class.triggered;
            *weights += class.triggered * class.weight;
        }
        for class in &mut self.classes {
            if let Some((_, stacks, weights)) = of_event.get(&class.event).filter(|(.., sum)| 0.0 < *sum) {
                class.weight *= stacks / weights;
            }
        }
        let timed = of_event.iter().filter(|(_, (costs, ..))| costs.are_known());
        timed.map(|(event, _)| *event).collect()
    }

    /// What a stack weighs; 1 on average over the stacks of an event, and for one that is too short to tell.
    pub(super) fn weight(&self, event: u32, tgid: u32, entries: &[BranchEntry]) -> f64 {
        let trigger = split(entries).map(|(trigger, _)| branch(event, tgid, trigger));
        let number = trigger.and_then(|trigger| self.numbers.get(&trigger));
        let class = number.and_then(|number| self.classes.get(*number as usize));
        class.map_or(1.0, |class| class.weight)
    }
}

impl Costs {
    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.n_behind += other.n_behind;
        self.bytes += other.bytes;
        self.n_in_stacks += other.n_in_stacks;
    }

    /// Whether what passes is known of most streams: files of a recording may be missing.
    fn are_known(&self) -> bool {
        0.0 < self.passed && self.n_in_stacks <= 2.0 * self.n_behind
    }

    /// How many streams of these run while one of `all` does.
    fn weight(&self, all: &Self) -> f64 {
        let (cost, n, mean) = if all.are_known() {
            (self.passed, self.n_behind, all.passed / all.n_behind)
        } else if 0.0 < all.bytes {
            (self.bytes, self.n_in_stacks, all.bytes / all.n_in_stacks)
        } else {
            return 1.0;
        };
        mean * (n + PRIOR_STREAMS) / (cost + PRIOR_STREAMS * mean)
    }
}

#[cfg(test)]
mod tests;
