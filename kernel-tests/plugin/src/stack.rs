//! The branch stack of a sample, with the faults of the hardware profile.

use kernel_tests::layout::{Branch, Record};

use crate::cpu::{Cpu, HISTORY};
use crate::machine::PmuModel;

impl PmuModel {
    /// The branch stack as this hardware profile shows it.
    pub(crate) fn fill_stack(&mut self, cpu: &mut Cpu, record: &mut Record) {
        let depth = self.hardware_profile.depth;
        let newest = cpu.branches - self.sticky_age(cpu, depth);
        let oldest = newest.saturating_sub(depth as u64).max(cpu.wiped.min(newest));
        let entry = |number: u64| {
            (
                cpu.history[number as usize % HISTORY],
                cpu.cycles_since_branch(number),
            )
        };
        let mut entries: Vec<(Branch, u16)> = (oldest..newest).rev().map(entry).collect();
        if let Some((last, _)) = entries.last_mut() {
            let before = oldest.checked_sub(1).map(|before| entry(before).0);
            *last = self.oldest_entry(cpu.oldest.replace(*last), before, *last);
            if self.random.percent(self.hardware_profile.missing_percent) {
                entries.pop();
            }
        }
        if !self.hardware_profile.branch_cycles {
            entries.iter_mut().for_each(|(_, cycles)| *cycles = 0);
        }
        if self.hardware_profile.filter_interrupts {
            entries.retain(|(branch, _)| !self.gates.contains_key(&branch.to));
        }
        if self.random.percent(self.hardware_profile.duplicate_percent) && !entries.is_empty() {
            entries.insert(0, entries[0]);
        }
        if self.random.percent(self.hardware_profile.wrong_path_percent) && 2 < entries.len() {
            let at = 1 + self.random.below(entries.len() as u32 - 2) as usize;
            // A branch that was predicted and not taken: it leaves where its successor in the stack arrives, and goes
            // to a location of another branch.
            let wrong = Branch {
                from: entries[at].0.to,
                to: entries[at - 1].0.from,
            };
            entries.insert(at, (wrong, 0));
            record.wrong_path = 1 << at;
        }
        if self.hardware_profile.zero_on_switch {
            entries.resize(depth, (Branch::default(), 0));
        }
        entries.truncate(depth);
        record.wrong_path &= (1u64 << entries.len()) - 1;
        record.nr = entries.len() as u32;
        for (n, (branch, cycles)) in entries.into_iter().enumerate() {
            record.entries[n] = branch;
            record.cycles[n] = cycles;
        }
    }

    /// The oldest entry as this hardware profile shows it: `true_one`, that of the `last` stack, or half of the branch `before`.
    fn oldest_entry(&mut self, last: Option<Branch>, before: Option<Branch>, true_one: Branch) -> Branch {
        let stuck = self.random.percent(self.hardware_profile.stuck_percent);
        let garbled = self.random.percent(self.hardware_profile.garbled_percent);
        match (last.filter(|_| stuck), before.filter(|_| garbled)) {
            (Some(last), _) => last,
            (None, Some(before)) => Branch {
                from: before.from,
                to: true_one.to,
            },
            (None, None) => true_one,
        }
    }

    /// How many branches further back the stack begins, so that a sticky branch is its oldest entry.
    fn sticky_age(&mut self, cpu: &Cpu, depth: usize) -> u64 {
        if self.hardware_profile.sticky_one_in == 0
            || !self.random.percent(self.hardware_profile.sticky_percent)
        {
            return 0;
        }
        let known = (cpu.branches - cpu.wiped.min(cpu.branches)).min(HISTORY as u64);
        (depth as u64 - 1..known.max(depth as u64 - 1))
            .find(|age| {
                let branch = cpu.history[(cpu.branches - 1 - age) as usize % HISTORY];
                self.is_sticky(branch.from)
            })
            .map_or(0, |age| age + 1 - depth as u64)
    }

    /// Sticky branches are chosen by their offset in the page, which neither KASLR nor a new mapping changes.
    fn is_sticky(&self, from: u64) -> bool {
        let mixed = ((from & 0xfff) ^ self.hardware_profile.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        mixed.is_multiple_of(u64::from(self.hardware_profile.sticky_one_in))
    }
}
