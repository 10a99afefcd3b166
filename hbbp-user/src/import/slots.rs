//! What a stack weighs that another event than taken branches triggered.
//!
//! Such an event overflows where it counts fast: cycles where code is slow. Its stacks are therefore taken behind some branches
//! more often than these are executed, and so are the streams in them. But one thing is known of stacks that are taken at any
//! branch alike: every branch then has the same share in every slot, the newest or the oldest. So a stack weighs as much
//! more or less as its trigger, the branch in slot [`TRIGGER`], has a larger or smaller share in older slots. No model of a
//! processor is in it.
//!
//! The older slots are themselves of weighed stacks, so the recording is read [`PASSES`] times. Code that is never left within a
//! stack keeps its weight: how often it was entered is nowhere recorded. So do the rings as a whole: an interrupt leaves no
//! branch that leads there, and what is not in the stacks would drain the weight of a ring into the other one.

use hashbrown::HashMap;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::is_kernel;
use hbbp_ebpf::stream::executed;

/// The slot whose branch stands for the trigger. The newest one may be a copy on processors of the Skylake family: of a
/// recording of one of them with exact counts, the distance per address is 0.96 % by this slot and 2.78 % without weights.
/// What runs after the trigger the event has chosen, so streams that are newer weigh nothing: with them it is 1.6 %.
pub(super) const TRIGGER: usize = 1;

/// How often the recording is read before it is counted: after the second time the distance changes by less than 0.01 %.
pub(super) const PASSES: u32 = 2;

/// Stacks of weight 1 that each class is given besides its own, so that a branch which triggered one stack and is frequent
/// elsewhere does not blow that one up.
const PRIOR: f64 = 1.0;

/// Distinct branches that are kept: as many as are counted of an interval.
const CAPACITY: usize = 1 << 22;

/// A branch of an event: its number, the process of user code, source and target.
type Branch = (u32, u32, u64, u64);

/// The branches of all stacks, and what stacks weigh by them.
#[derive(Debug, Default)]
pub(super) struct SlotWeights {
    branches: HashMap<Branch, Slots>,
    /// By event: stacks, and their weights before they are made to be as many.
    stacks: HashMap<(u32, bool), (f64, f64)>,
}

/// A branch of the stacks of an event.
#[derive(Clone, Copy, Debug)]
struct Slots {
    /// Stacks that it triggered.
    triggered: f64,
    /// Stacks that it would have triggered by its share of the older slots.
    due: f64,
    /// What the stacks weigh that it triggered, by the pass before.
    weight: f64,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            triggered: 0.0,
            due: 0.0,
            weight: 1.0,
        }
    }
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

impl SlotWeights {
    /// Looks at a stack that was taken `times` times, newest entry first, without entries of wrong paths.
    pub(super) fn look(&mut self, event: u32, tgid: u32, entries: &[BranchEntry], times: u64) {
        let Some((trigger, older)) = split(entries) else {
            return;
        };
        let weight = self.weight(event, tgid, entries);
        let times = times as f64;
        let is_alike = |entry: &&BranchEntry| is_kernel(entry.from) == is_kernel(trigger.from);
        let n_alike = older.iter().filter(is_alike).count();
        let each = weight * times / n_alike.max(1) as f64;
        self.change(branch(event, tgid, trigger), |slots| slots.triggered += times);
        for entry in older.iter().filter(is_alike) {
            self.change(branch(event, tgid, entry), |slots| slots.due += each);
        }
    }

    fn change(&mut self, branch: Branch, change: impl FnOnce(&mut Slots)) {
        if self.branches.len() < CAPACITY || self.branches.contains_key(&branch) {
            change(self.branches.entry(branch).or_default());
        }
    }

    /// Ends a pass: from now on stacks have new weights, whose sum is the number of the stacks.
    pub(super) fn end_pass(&mut self) {
        self.stacks.clear();
        for ((event, _, from, _), slots) in &mut self.branches {
            slots.weight *= (slots.due + PRIOR) / (slots.weight * slots.triggered + PRIOR);
            let (stacks, weights) = self.stacks.entry((*event, is_kernel(*from))).or_default();
            *stacks += slots.triggered;
            *weights += slots.triggered * slots.weight;
            (slots.triggered, slots.due) = (0.0, 0.0);
        }
    }

    /// What a stack weighs; 1 on average over the stacks of an event, and for one that is too short to tell.
    pub(super) fn weight(&self, event: u32, tgid: u32, entries: &[BranchEntry]) -> f64 {
        let Some((trigger, _)) = split(entries) else {
            return 1.0;
        };
        let slots = self.branches.get(&branch(event, tgid, trigger));
        let scale = match self.stacks.get(&(event, is_kernel(trigger.from))) {
            Some((stacks, weights)) if 0.0 < *weights => stacks / weights,
            _ => 1.0,
        };
        slots.map_or(1.0, |slots| slots.weight * scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop over blocks of which the branch of the first is slow: stacks are taken there nine times of ten.
    fn stacks() -> Vec<(Vec<BranchEntry>, u64)> {
        const LOOP: u64 = 4;
        let branch = |n: u64| BranchEntry {
            from: 0x1000 + 0x10 * (n % LOOP),
            to: 0x1000 + 0x10 * ((n + 1) % LOOP),
            flags: 0,
        };
        let from = |newest: u64| (0..16).map(|age| branch(newest + 64 - age)).collect();
        vec![(from(1), 90), (from(2), 4), (from(3), 3), (from(4), 3)]
    }

    fn weighed(passes: u32) -> SlotWeights {
        let mut weights = SlotWeights::default();
        for _ in 0..passes {
            for (entries, times) in stacks() {
                weights.look(0, 7, &entries, times);
            }
            weights.end_pass();
        }
        weights
    }

    #[test]
    fn shares_of_branches_become_equal_in_all_slots() {
        let weights = weighed(PASSES);
        let amounts: Vec<f64> = stacks()
            .iter()
            .map(|(entries, times)| weights.weight(0, 7, entries) * *times as f64)
            .collect();
        let all: f64 = amounts.iter().sum();
        assert!((all - 100.0).abs() < 1e-9, "{amounts:?}");
        for amount in &amounts {
            assert!((amount / 25.0 - 1.0).abs() < 0.3, "{amounts:?}");
        }
    }

    #[test]
    fn stacks_that_tell_nothing_weigh_one() {
        let weights = weighed(1);
        let (entries, _) = &stacks()[0];
        assert_eq!(weights.weight(0, 7, &entries[..2]), 1.0, "too short");
        assert_eq!(weights.weight(1, 7, entries), 1.0, "another event");
        assert_eq!(weights.weight(0, 8, entries), 1.0, "another process");
        assert!(weights.weight(0, 7, entries) < 0.5);
    }
}
