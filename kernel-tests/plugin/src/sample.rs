//! The sampling counters: when they overflow, where the sample lands, and the record it leaves.

use std::ops::Range;

use kernel_tests::classes::Class;
use kernel_tests::layout::{
    Branch, COUNTERS, EVENT_BRANCHES, EVENT_CYCLES, EVENT_INSTRUCTIONS, EVENT_TAKEN, EVENT_TIMER, FLAG_EXACT,
    MAX_DEPTH, Record,
};

use crate::block::{Block, sums};
use crate::cpu::Cpu;
use crate::machine::PmuModel;

/// One counter that is switched on.
#[derive(Clone, Copy)]
pub(crate) struct Counting {
    /// `EVENT_INSTRUCTIONS`, `EVENT_TAKEN`, `EVENT_CYCLES`, `EVENT_BRANCHES` or that of a class.
    pub(crate) event: u32,
    /// Rings that count, as a bit mask.
    pub(crate) rings: u32,
    /// Events between overflows, 0 = none.
    pub(crate) period: u64,
    /// Requested precise level.
    pub(crate) precise: u32,
    /// Number of this configuration.
    pub(crate) generation: u32,
    /// Value of the rings' total when it was configured.
    pub(crate) base: u64,
    /// Events that this counter had counted before, while it was switched on.
    pub(crate) before: u64,
    /// Value of the rings' total at the next overflow.
    pub(crate) at: u64,
}

impl Counting {
    /// Events counted when the rings' total is `total`, over all the times that the counter was switched on.
    pub(crate) const fn counted(&self, total: u64) -> u64 {
        self.before + (total - self.base)
    }
}

/// The counters of one CPU.
pub(crate) struct Sampler {
    pub(crate) counters: [Option<Counting>; COUNTERS],
    /// Events that each counter had counted when it was last switched off.
    pub(crate) counted: [u64; COUNTERS],
    /// One of the counters is a timer: every block takes the careful path.
    pub(crate) has_timer: bool,
}

/// A sample in progress.
pub(crate) struct Skid {
    pub(crate) counter: usize,
    pub(crate) generation: u32,
    /// When it lands, in cycles of instructions ([`Cpu::clock`]).
    pub(crate) lands: u64,
    /// Events that the counter had counted at the overflow.
    pub(crate) counted: u64,
    /// Instructions the CPU had executed at the overflow.
    pub(crate) executed: u64,
}

/// What retires at once: the instructions `first..end` of a block.
pub(crate) struct Retired {
    pub(crate) ring: usize,
    pub(crate) block: &'static Block,
    pub(crate) first: u32,
    pub(crate) end: u32,
    /// The last of them is a near branch.
    pub(crate) near: bool,
    /// It was taken.
    pub(crate) taken: bool,
}

impl Retired {
    /// Cycles of the instructions before this one.
    pub(crate) fn cycles_before(&self, index: u32) -> u64 {
        u64::from(self.block.cycles_before(index) - self.block.cycles_before(self.first))
    }

    /// Cycles, with those that `taken_cycles` gives to a taken branch.
    pub(crate) fn cycles(&self, taken_cycles: u32) -> u64 {
        self.cycles_before(self.end) + u64::from(self.taken) * u64::from(taken_cycles)
    }

    /// Index of the instruction that counts the `n`th of these events, from 1, and the cycles that are then left of it.
    fn index(&self, event: u32, n: u64) -> (u32, u32) {
        match event {
            EVENT_TAKEN | EVENT_BRANCHES => (self.end - 1, 0),
            EVENT_CYCLES | EVENT_TIMER => {
                let at = u64::from(self.block.cycles_before(self.first)) + n;
                let index = self.block.ends.partition_point(|end| u64::from(*end) < at) as u32;
                let index = index.min(self.end - 1);
                let end = u64::from(self.block.cycles_before(index + 1));
                (index, end.saturating_sub(at) as u32)
            }
            _ => (self.first + n as u32 - 1, 0),
        }
    }
}

/// An overflow within a block.
pub(crate) struct Overflow {
    /// Index of the instruction.
    pub(crate) index: u32,
    /// Cycles of the instruction that are left after the overflow.
    pub(crate) cycles_left: u32,
    pub(crate) counter: usize,
    /// Events that the counter had counted with this one.
    pub(crate) counted: u64,
    /// Instructions the CPU had executed with this one.
    pub(crate) executed: u64,
}

impl Cpu {
    /// The total that a counter counts.
    pub(crate) fn total(&self, event: u32, rings: u32) -> u64 {
        let counted = self.counted();
        let of_class = |class: Class| counted.classes.map(|of_ring| of_ring[class as usize]);
        let per_ring = match event {
            EVENT_INSTRUCTIONS => counted.retired,
            EVENT_CYCLES | EVENT_TIMER => counted.cycles,
            EVENT_BRANCHES => counted.branch_instructions,
            _ => Class::of_event(event).map_or(counted.taken, of_class),
        };
        per_ring
            .iter()
            .enumerate()
            .filter(|(ring, _)| rings >> ring & 1 == 1)
            .map(|(_, n)| n)
            .sum()
    }

    /// Cycles of instructions that the counters saw, without those of taken branches.
    pub(crate) fn clock(&self) -> u64 {
        let counted = self.counted();
        let of_branches = counted.taken.iter().sum::<u64>() * u64::from(self.taken_cycles);
        counted.cycles.iter().sum::<u64>() - of_branches
    }

    /// Counts what retires.
    pub(crate) fn count(&mut self, retired: &Retired) {
        let (ring, cycles) = (retired.ring, retired.cycles(self.taken_cycles));
        let counts = &mut self.counts[usize::from(self.frozen)];
        counts.retired[ring] += u64::from(retired.end - retired.first);
        counts.taken[ring] += u64::from(retired.taken);
        counts.branch_instructions[ring] += u64::from(retired.near);
        counts.cycles[ring] += cycles;
        if self.has_classes {
            let classes_of = &retired.block.classes_of;
            let range = retired.first as usize..retired.end as usize;
            let classes = sums(classes_of.get(range).unwrap_or_default());
            counts.add_classes(ring, &classes, retired.taken);
        }
        self.until -= cycles as i64;
    }

    /// The overflows when these instructions retire; the counters are set to their next overflow. In the order of the
    /// instructions.
    pub(crate) fn overflows(&mut self, retired: &Retired) -> Vec<Overflow> {
        let mut found = Vec::new();
        let executed = self.executed(0) + self.executed(1);
        if self.frozen {
            return found;
        }
        for counter in 0..COUNTERS {
            let Some(mut counting) = self.sampler.counters[counter] else {
                continue;
            };
            if counting.period == 0 || counting.rings >> retired.ring & 1 == 0 {
                continue;
            }
            let before = self.total(counting.event, counting.rings);
            let events = match counting.event {
                EVENT_INSTRUCTIONS => u64::from(retired.end - retired.first),
                EVENT_CYCLES | EVENT_TIMER => retired.cycles(self.taken_cycles),
                EVENT_BRANCHES => u64::from(retired.near),
                _ => u64::from(retired.taken),
            };
            while counting.at <= before + events {
                let (index, cycles_left) = retired.index(counting.event, counting.at - before);
                let executed = executed + u64::from(index - retired.first) + 1;
                found.push(Overflow {
                    index,
                    cycles_left,
                    counter,
                    counted: counting.counted(counting.at),
                    executed,
                });
                counting.at += counting.period;
            }
            self.sampler.counters[counter] = Some(counting);
        }
        found.sort_by_key(|overflow| overflow.index);
        found
    }

    /// Sets the countdown of the fast path to the earliest overflow or landing that can come.
    pub(crate) fn rearm(&mut self) {
        let counting = self.sampler.counters.iter().flatten();
        let periodic = counting.filter(|counting| 0 < counting.period);
        let overflow = periodic.map(|it| it.at.saturating_sub(self.total(it.event, it.rings)));
        let clock = self.clock();
        let landing = self.skids.iter().map(|skid| skid.lands.saturating_sub(clock));
        let first = overflow.chain(landing).filter(|_| !self.frozen).min();
        self.until = first.map_or(i64::MAX, |until| until.min(i64::MAX as u64) as i64);
    }
}

/// The precise level whose records hold the address of the next instruction (perf_event_open(2): a constant skid).
const NEXT_IP: u32 = 1;

impl PmuModel {
    /// A counter overflowed at the instruction at `ip`, which retired when the clock was at `now`; `next` is the instruction after it.
    pub(crate) fn overflow(
        &mut self,
        cpu: &mut Cpu,
        cpu_idx: usize,
        overflow: &Overflow,
        now: u64,
        [ip, next]: [u64; 2],
    ) {
        let Some(counting) = cpu.sampler.counters[overflow.counter] else {
            return;
        };
        self.shared.area(cpu_idx).overflows += 1;
        let (least, most) = self.hardware_profile.skid[(counting.precise & 3) as usize];
        let skid = least + self.random.below(most - least + 1);
        let cycles = skid.saturating_sub(overflow.cycles_left);
        if 0 < cycles {
            cpu.skids.push(Skid {
                counter: overflow.counter,
                generation: counting.generation,
                lands: now + u64::from(cycles),
                counted: overflow.counted,
                executed: overflow.executed,
            });
            return;
        }
        // With a skid, it is taken while the instruction still runs.
        let (ip, flags) = match (counting.precise, skid) {
            (NEXT_IP, _) => (next, 0),
            (_, 0) => (ip, FLAG_EXACT),
            _ => (ip, 0),
        };
        let due = [overflow.counted, overflow.executed];
        self.sample(cpu, cpu_idx, overflow.counter, due, ip, flags);
    }

    /// The instruction at `ip` runs from one time of the clock to another: samples whose time has come land on it. Those that name
    /// the next instruction wait for it, which is known when it runs: their stack then has the branch to it.
    pub(crate) fn skid(&mut self, cpu: &mut Cpu, cpu_idx: usize, ip: u64, runs: Range<u64>) {
        if cpu.frozen || cpu.skids.is_empty() {
            return;
        }
        let mut under_way = std::mem::take(&mut cpu.skids);
        under_way.retain(|skid| {
            let counting = cpu.sampler.counters[skid.counter];
            let names_next = counting.is_some_and(|counting| counting.precise == NEXT_IP);
            if runs.end < skid.lands || names_next && runs.start < skid.lands {
                return true;
            }
            match counting {
                Some(counting) if counting.generation == skid.generation => {
                    self.sample(cpu, cpu_idx, skid.counter, [skid.counted, skid.executed], ip, 0);
                }
                _ => self.shared.area(cpu_idx).lost_stopped += 1,
            }
            false
        });
        cpu.skids = under_way;
    }

    /// Takes the sample: the record goes into the ring, or is counted as lost. `due` holds the events that the counter
    /// had counted and the instructions that the CPU had executed at the overflow, for the trace.
    pub(crate) fn sample(
        &mut self,
        cpu: &mut Cpu,
        cpu_idx: usize,
        counter: usize,
        due: [u64; 2],
        ip: u64,
        flags: u32,
    ) {
        let Some(counting) = cpu.sampler.counters[counter] else {
            return;
        };
        let slots = self.hardware_profile.ring_slots;
        let dropped = self.random.percent(self.hardware_profile.drop_percent);
        let area = self.shared.area(cpu_idx);
        if dropped {
            area.lost_dropped += 1;
            return;
        }
        // SAFETY: `tail` is a field of the shared area; the guest writes it, so it is read as volatile.
        let tail = unsafe { std::ptr::read_volatile(&raw const area.tail) };
        if slots <= area.head.wrapping_sub(tail) {
            area.lost_full += 1;
            return;
        }
        let mut record = Record {
            seq: area.head,
            ip,
            counter: counter as u32,
            generation: counting.generation,
            tgid: area.tgid,
            pid: area.pid,
            period: counting.period,
            value: due[0] - counting.before,
            branches: cpu.branches,
            nr: 0,
            flags,
            wrong_path: 0,
            entries: [Branch::default(); MAX_DEPTH],
            cycles: [0; MAX_DEPTH],
        };
        if !self.hardware_profile.empty_stacks {
            self.fill_stack(cpu, &mut record);
        }
        self.trace.sample(cpu_idx, &record, due);
        self.shared.put(cpu_idx, record);
    }
}
