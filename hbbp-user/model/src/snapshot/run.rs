//! The facts of a run: where, when, with which events and periods, and what the kernel counted.

use std::collections::BTreeMap;

use super::ClassCount;
use crate::addr::Ring;

/// The facts of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Version of hbbp-sys that measured.
    pub tool_version: String,
    /// Where it was measured.
    pub host: HostFacts,
    /// Start of the run in ns since 1970.
    pub started: u64,
    /// Length of the run in ns.
    pub duration: u64,
    /// What was measured, in words: "the whole system", "process 4711", "the command `make`".
    pub scope: String,
    /// The events, in the order of the ladder.
    pub events: Vec<Event>,
    /// Classes of instructions that were counted with them.
    pub classes: Vec<ClassCount>,
    /// Where the kernel's text came from.
    pub kernel_text: KernelTextSource,
    /// Sentences that a reader of this run must know, such as why there are no branch stacks.
    pub notes: Vec<String>,
    /// Why no executions could be sampled, and what could: a clause. Empty if they were, if another event was requested, and
    /// if nothing is known of it.
    pub without_executions: String,
    /// The time that was not measured, in ns, according to a note; [`Self::WHOLE`] if the whole run is affected.
    pub unmeasured: BTreeMap<String, u64>,
    /// What the measurement itself cost.
    pub overhead: Overhead,
}

impl Run {
    /// As much unmeasured time as no run is long.
    pub const WHOLE: u64 = u64::MAX;

    /// Adds a note on time that was not measured, in ns.
    pub fn note_unmeasured(&mut self, note: String, time: u64) {
        let sum = self.unmeasured.entry(note.clone()).or_default();
        *sum = sum.saturating_add(time);
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The share of the run that was not measured, by a note; 0 if it says nothing of that.
    pub fn share_unmeasured(&self, note: &str) -> f64 {
        let time = self.unmeasured.get(note).copied().unwrap_or(0);
        match self.duration.saturating_add(time) {
            0 => 0.0,
            all => time as f64 / all as f64,
        }
    }
}

/// The machine of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// Host name.
    pub name: String,
    /// CPU model name as the processor gives it.
    pub cpu_model: String,
    /// Kernel release (`uname -r`).
    pub kernel_release: String,
    /// Build id of the kernel, empty where it is unknown.
    pub kernel_build_id: Vec<u8>,
    /// Number of CPUs online.
    pub n_cpus: u32,
}

/// What a measurement takes of the machine that it measures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overhead {
    /// CPU time of the tool's user half from its start until the profile was complete, in ns: loading the programs,
    /// measuring and resolving. Saving the profile and reporting on it are not included.
    pub cpu: u64,
    /// Peak resident memory of the tool itself, in bytes.
    pub memory: u64,
    /// CPU time of the sampling itself, in ns: the programs in the kernel, the interrupts that run them, and the records of
    /// processes. 0 where it is not known.
    pub sampling: u64,
    /// The budget that the periods were adapted to, if there was one.
    pub budget: Option<CpuBudget>,
}

/// The CPU time that a measurement may take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CpuBudget {
    /// Parts per million of the time of all CPUs.
    pub share: u32,
    /// Where the run time of the programs in [`Overhead::sampling`] comes from; that of interrupts and
    /// records is always estimated.
    pub programs: RunTime,
}

/// Where a run time comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RunTime {
    /// The kernel measured it (`kernel.bpf_stats_enabled`).
    Measured,
    /// Samples times what one usually takes.
    Estimated,
}

/// A sampled event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// Name, such as `cpu-clock` or `INST_RETIRED.PREC_DIST`.
    pub name: String,
    /// What one unit of its count is.
    pub unit: EventUnit,
    /// Whether it is known to count near branches only. The events of AMD and Goldmont count far branches and interrupts
    /// too (AMD PPR, PMCx0C4; BR_INST_RETIRED.ALL_TAKEN_BRANCHES), and then a sample falls on any branch alike.
    pub near_only: bool,
    /// The ring whose units it counts; `None` if it counts those of both.
    pub ring: Option<Ring>,
    /// Whether its samples carry branch stacks.
    pub branch_stack: bool,
    /// `precise_ip` as it was granted.
    pub precise: u8,
    /// The sampling period.
    pub period: Period,
    /// Samples that reached the collector: runs of its program in the kernel, over all counters.
    pub runs: u64,
    /// What the kernel counted, one entry for each counter that was opened.
    pub counters: Vec<Counter>,
}

/// What an event counts.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum EventUnit {
    /// Nanoseconds of a clock: samples are weighted by time.
    #[default]
    Nanoseconds,
    /// Core cycles: samples are weighted by time.
    Cycles,
    /// Retired instructions: samples are executions.
    Instructions,
    /// Retired taken branches: the branch stacks of the samples are executions.
    TakenBranches,
    /// Dispatched micro-operations (AMD IBS): samples weight an instruction by its operations.
    MicroOps,
    /// Something else, named by the event.
    Other,
}

/// How often an event is sampled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Period {
    /// In units of the event; 1 for an event without counters whose period is unknown.
    Fixed(u64),
    /// Samples per second; the kernel chooses the period.
    Frequency(u64),
    /// Successive fixed periods, the shortest and the longest, of an event whose period was adapted, to a budget or to the share of
    /// its ring. Each sample has
    /// the weight of its own, and each counter knows the samples that were due.
    Between(u64, u64),
}

impl Default for Period {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

/// Whether a period is a prime number: then it keeps step only with loops of as many events, or a multiple.
///
/// By division: a hundred thousand of them for the longest periods, some tens of times.
pub fn is_prime(period: u64) -> bool {
    let divisors = 2..=period.isqrt();
    2 <= period
        && divisors
            .into_iter()
            .all(|divisor| !period.is_multiple_of(divisor))
}

/// One opened counter of an event.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counter {
    /// The CPU it counted on; `None` if it followed a task.
    pub cpu: Option<u32>,
    /// Units counted.
    pub count: u64,
    /// Time the counter was enabled, in ns.
    pub enabled: u64,
    /// Time it really counted, in ns; less than `enabled` means that it shared the hardware.
    pub running: u64,
    /// Samples of this counter that reached the collector; `None` if they are known only for the whole event.
    pub runs: Option<u64>,
    /// Time in ns that its CPU was idle, in steps of the kernel's clock tick; `None` if that is unknown.
    /// The timer of a clock event may not fire while its CPU is idle.
    pub idle: Option<u64>,
    /// Time in ns that the hypervisor took although its CPU had work to do (steal time), in the same steps; `None`
    /// where that is unknown. No timer fires in it.
    pub steal: Option<u64>,
    /// Time in ns that guests of this host took of its CPU, in the same steps; `None` if that is unknown. Their programs are
    /// not sampled.
    pub guest: Option<u64>,
    /// Samples that were due, where the period changed a little during the run; `None` if it did not, and they are
    /// the count divided by the period.
    pub due: Option<u64>,
}

/// Where the kernel's text was read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum KernelTextSource {
    /// Nowhere: kernel samples are counted but have no instructions.
    #[default]
    None,
    /// The live text, through /proc/kcore.
    Kcore,
    /// The live text, copied by a BPF program.
    Probe,
    /// A static image; what the kernel patched since is not in it.
    Vmlinux(String),
}

impl EventUnit {
    /// Whether a sample says that an instruction was executed, rather than that time passed at it.
    pub const fn counts_executions(self) -> bool {
        matches!(self, Self::Instructions | Self::TakenBranches)
    }
}

impl Counter {
    /// Whether it shared the hardware, and counted a part of the time only.
    pub const fn is_multiplexed(&self) -> bool {
        0 < self.running && self.running < self.enabled
    }

    /// What was added since it was `before`, with a period of `period` or near it.
    #[must_use]
    pub fn since(self, before: &Self, period: u64) -> Self {
        let added = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before.unwrap_or(0)));
        Self {
            cpu: self.cpu,
            count: self.count.saturating_sub(before.count),
            enabled: self.enabled.saturating_sub(before.enabled),
            running: self.running.saturating_sub(before.running),
            runs: added(self.runs, before.runs),
            idle: added(self.idle, before.idle),
            steal: added(self.steal, before.steal),
            guest: added(self.guest, before.guest),
            due: added(self.due, Some(before.due_at(period))),
        }
    }

    /// Adds what a counter that was opened later on the same CPU counted, with a period of `period` or near it. Samples are
    /// those of the CPU, and are left as they are.
    pub fn add_later(&mut self, later: &Self, period: u64) {
        // Each is rounded down.
        self.due = Some(self.due_at(period).saturating_add(later.due_at(period)));
        self.count = self.count.saturating_add(later.count);
        self.enabled = self.enabled.saturating_add(later.enabled);
        self.running = self.running.saturating_add(later.running);
    }

    /// Samples that were due on this counter, whose period was `period` or near it.
    pub fn due_at(&self, period: u64) -> u64 {
        self.due.unwrap_or(self.count / period.max(1))
    }
}

impl Event {
    /// Whether its branch stacks are bursts: branches of user code that were emulated, each burst from a sample of a clock.
    pub fn is_of_bursts(&self) -> bool {
        self.branch_stack && self.unit == EventUnit::Nanoseconds && self.ring == Some(Ring::User)
    }

    /// Whether its period changed a little during the run.
    pub fn varied(&self) -> bool {
        self.counters.iter().any(|counter| counter.due.is_some())
    }

    /// Units between two samples that were due, in the mean where periods changed; `None` if the kernel chose the period.
    pub fn mean_period(&self) -> Option<u64> {
        let period = match self.period {
            Period::Fixed(period) => period,
            Period::Frequency(_) => return None,
            Period::Between(shortest, longest) => {
                let counts = self.counters.iter().map(|it| it.count);
                let count = counts.fold(0, u64::saturating_add);
                let due = self.due().unwrap_or(0);
                (count / due.max(1)).clamp(shortest, longest.max(shortest))
            }
        };
        Some(period.max(1))
    }

    /// Samples that the kernel should have taken: the sum over the counters of count / period, each rounded down, or of
    /// what is known to have been due where the period changed.
    /// `None` if the kernel chose the period, or where the counters are not known, as in recordings of other tools.
    pub fn due(&self) -> Option<u64> {
        match self.period {
            _ if self.counters.is_empty() => None,
            Period::Fixed(period) | Period::Between(period, _) => Some(
                self.counters
                    .iter()
                    .fold(0, |sum, c| sum.saturating_add(c.due_at(period))),
            ),
            Period::Frequency(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_samples_round_down_for_each_counter() {
        let counter = |count| Counter {
            count,
            ..Counter::default()
        };
        let event = Event {
            period: Period::Fixed(10),
            counters: vec![counter(19), counter(10)],
            ..Event::default()
        };
        assert_eq!(event.due(), Some(2));
        assert_eq!(
            Event {
                period: Period::Frequency(99),
                ..event
            }
            .due(),
            None
        );
    }
}
