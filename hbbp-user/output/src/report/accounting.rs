//! Accounting of every sample, from expected samples down to those in the mix, so that nothing is dropped silently.
//!
//! ```text
//!     due  =  reached  +  missing: stolen, idle, cause unknown
//! reached  =  refused by the maps  +  counted
//! counted  =  unresolved, by reason  +  of events that the mix does not use  +  in the mix
//!  kernel in the mix  =  kernel in the figures  +  of user code   (the ends of system calls, on a clock)
//! ```
//!
//! Counters and samples are not read at the same instant, so a few more samples than expected may be received; these
//! are shown too.
//! Any other difference is a bug, and is shown as such.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::completeness::Missing;
use hbbp_analysis::mix::{Analysis, apportion};
use hbbp_code::locate::{PerRing, Tally, Unresolved};
use hbbp_estimate::BlockCounts;
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::loss::LossUnit;
use hbbp_model::snapshot::{Event, EventIdx, Loss, ModuleIdx, Snapshot};

/// What leaves a sample of an event with branch stacks without one.
const WITHOUT_STACK: [Loss; 8] = [
    Loss::NoStack,
    Loss::StacksFull,
    Loss::BurstsFull,
    Loss::BurstsOf32Bits,
    Loss::BurstsOutside,
    Loss::BurstsGone,
    Loss::BurstsOverBudget,
    Loss::BurstsShort,
];

/// Samples of a run at each step, over all events.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Accounting {
    /// Expected samples by the counter values; `None` if the kernel chose a period.
    pub(super) due: Option<u64>,
    /// Expected samples that were not received, of each event.
    pub(super) missing: Vec<Missing>,
    /// Samples received beyond the expected ones.
    pub(super) beyond: u64,
    /// Samples received.
    pub(super) reached: u64,
    /// Samples dropped by the BPF maps, by reason.
    pub(super) refused: Vec<(Loss, u64)>,
    /// Samples of events that only deliver branch stacks: their streams are counted instead.
    pub(super) stacks: u64,
    /// Samples in the snapshot.
    pub(super) counted: PerRing,
    /// Samples that cannot be given an instruction that was executed, by reason.
    pub(super) unresolved: Vec<(Unresolved, PerRing)>,
    /// Modules of the unresolved samples inside an instruction, those with the most samples first.
    pub(super) inside: Vec<InModule>,
    /// Samples on an instruction, of events that the mix does not use.
    pub(super) other_events: PerRing,
    /// Samples that the mix is made of.
    pub(super) in_mix: PerRing,
    /// Those of the kernel that are time of user code, less those of user code that are time of the kernel. On a clock these
    /// are the ends of system calls.
    pub(super) of_user_code: i64,
}

/// Samples in a module.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct InModule {
    /// Name of the module.
    pub(super) module: String,
    /// Samples.
    pub(super) samples: u64,
}

impl Accounting {
    /// The accounting of a snapshot and its analysis.
    pub(super) fn new(snapshot: &Snapshot, analysis: &Analysis) -> Self {
        let counts = &analysis.counts;
        let followed = Self::follow(
            snapshot,
            &counts.assignment.ebs,
            &analysis.resolved,
            &analysis.unresolved,
        );
        let in_kernel = followed.in_mix.kernel.cast_signed();
        let in_figures = counts
            .waited
            .as_ref()
            .map(|_| kernel_figure(counts, followed.in_mix));
        Self {
            inside: by_module(snapshot, &counts.outcome.inside),
            of_user_code: in_figures.map_or(0, |n| in_kernel.saturating_sub(n.cast_signed())),
            ..followed
        }
    }

    /// Follows the samples of a snapshot to what became of them; the mix is made of those of the events `ebs`.
    fn follow(
        snapshot: &Snapshot,
        ebs: &[EventIdx],
        resolved: &Tally<()>,
        unresolved: &Tally<Unresolved>,
    ) -> Self {
        let events = &snapshot.run.events;
        let due: Option<Vec<u64>> = events.iter().map(Event::due).collect();
        let runs_and_due = || {
            events
                .iter()
                .map(|event| event.runs)
                .zip(due.iter().flatten().copied())
        };
        let counts = snapshot.intervals.iter().flat_map(|interval| &interval.ips);
        let with_counts: BTreeSet<EventIdx> = counts.map(|count| count.event).collect();
        let numbered = || events.iter().zip((0_u32..).map(EventIdx));
        let stacks = numbered().filter(|(event, idx)| event.branch_stack && !with_counts.contains(idx));
        let without_instruction = unresolved.by_event();
        let missing = |(event, idx): (&Event, EventIdx)| {
            let of_idle = without_instruction.get(&idx).map_or(0, |n| n.kernel);
            Missing::new(event, of_idle)
        };
        let lost = WITHOUT_STACK.map(|loss| snapshot.losses.get(loss));
        let stacks = total(stacks.map(|(event, _)| event.runs)).saturating_sub(lost.iter().sum());
        let losses = Loss::ALL.iter().filter(|loss| loss.unit() == LossUnit::Sample);
        let refused = losses
            .map(|loss| (*loss, snapshot.losses.get(*loss)))
            .filter(|(_, n)| 0 < *n);
        let refused: Vec<_> = refused.collect();
        let unresolved = Unresolved::ALL
            .iter()
            .map(|reason| (*reason, unresolved.get(*reason)));
        let unresolved: Vec<_> = unresolved.filter(|(_, n)| 0 < n.total()).collect();
        let in_mix = resolved.of_events(ebs);
        let resolved = resolved.get(());
        let other_events = PerRing {
            kernel: resolved.kernel.saturating_sub(in_mix.kernel),
            user: resolved.user.saturating_sub(in_mix.user),
        };
        let counted = sum(unresolved.iter().map(|(_, n)| *n).chain([resolved]));
        let reached = total(events.iter().map(|event| event.runs));
        Self {
            missing: numbered().map(missing).collect(),
            beyond: total(runs_and_due().map(|(runs, due)| runs.saturating_sub(due))),
            due: due.as_ref().map(|due| total(due.iter().copied())),
            reached,
            refused,
            stacks,
            counted,
            unresolved,
            inside: Vec::new(),
            other_events,
            in_mix,
            of_user_code: 0,
        }
    }

    /// Expected samples that were not received, over all events, by cause; none if a number is unknown.
    pub(super) fn missing(&self) -> Missing {
        let known = || self.missing.iter().filter(|_| self.due.is_some());
        let sum = |of: fn(&Missing) -> u64| total(known().map(of));
        Missing {
            stolen: sum(|missing| missing.stolen),
            idle: sum(|missing| missing.idle),
            unknown: sum(|missing| missing.unknown),
            of_tasks: known().any(|missing| missing.of_tasks),
        }
    }

    /// Samples of the mix by the ring whose time they are.
    pub(super) fn in_figures(&self) -> PerRing {
        PerRing {
            kernel: self
                .in_mix
                .kernel
                .saturating_add_signed(self.of_user_code.saturating_neg()),
            user: self.in_mix.user.saturating_add_signed(self.of_user_code),
        }
    }

    /// Samples received, but neither counted nor dropped (negative: the reverse).
    pub(super) fn unexplained(&self) -> i128 {
        let refused = self.refused.iter().map(|(_, n)| *n);
        let explained = total(refused.chain([self.stacks, self.counted.total()]));
        i128::from(self.reached) - i128::from(explained)
    }

    /// Samples on an instruction, whether the mix uses them or not.
    pub(super) fn resolved(&self) -> PerRing {
        sum([self.in_mix, self.other_events].into_iter())
    }

    /// Samples that could be asked for their instruction: all that were counted, but for those of a halted CPU,
    /// where nothing was executed and nothing went wrong.
    pub(super) fn asked(&self) -> PerRing {
        let halted = self
            .unresolved
            .iter()
            .filter(|(reason, _)| *reason == Unresolved::Halted);
        let halted = sum(halted.map(|(_, n)| *n));
        PerRing {
            kernel: self.counted.kernel.saturating_sub(halted.kernel),
            user: self.counted.user.saturating_sub(halted.user),
        }
    }
}

/// The samples that figures have in the kernel, rounded as a table by ring rounds them.
fn kernel_figure(counts: &BlockCounts, in_mix: PerRing) -> u64 {
    let of = |ring| {
        let parts = counts.parts.iter();
        let of_ring = parts.filter(|part| counts.blocks.get(part.block).is_some_and(|it| it.ring == ring));
        of_ring.map(|part| part.count).sum::<f64>()
    };
    let rings = apportion(&[of(Ring::Kernel), of(Ring::User)], in_mix.total());
    rings.first().copied().unwrap_or_default()
}

/// The modules by name, those with the most samples first.
fn by_module(snapshot: &Snapshot, samples: &BTreeMap<ModuleIdx, u64>) -> Vec<InModule> {
    let row = |(module, samples): (&ModuleIdx, &u64)| InModule {
        module: snapshot
            .modules
            .get(module.0 as usize)
            .map_or_else(|| "?".to_owned(), |module| module.name.clone()),
        samples: *samples,
    };
    let mut rows: Vec<InModule> = samples.iter().map(row).collect();
    rows.sort_by_key(|row| Reverse(row.samples));
    rows
}

/// The sum in each ring.
fn sum(counts: impl Iterator<Item = PerRing>) -> PerRing {
    let mut sum = PerRing::default();
    for n in counts {
        sum.add(Ring::Kernel, n.kernel);
        sum.add(Ring::User, n.user);
    }
    sum
}

/// The sum; a hostile file may hold numbers whose sum fits nowhere.
fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::Va;
    use hbbp_model::snapshot::run::Counter;
    use hbbp_model::snapshot::{Interval, IpCount, Period, ProcessIdx};

    /// Samples of instructions and of cycles, and branch stacks of a third event; some samples are lost.
    fn snapshot() -> Snapshot {
        let counter = |count| Counter {
            count,
            ..Counter::default()
        };
        let event = Event {
            period: Period::Fixed(10),
            runs: 96,
            counters: vec![counter(1_009)],
            ..Event::default()
        };
        let stacks = Event {
            branch_stack: true,
            runs: 12,
            counters: vec![counter(100)],
            ..event.clone()
        };
        let cycles = Event {
            runs: 5,
            counters: vec![counter(50)],
            ..event.clone()
        };
        let ip = |event, hits| {
            let (event, process) = (EventIdx(event), ProcessIdx(0));
            IpCount {
                event,
                process,
                ip: Va(1),
                exact: false,
                hits,
                weight: 0,
            }
        };
        let mut snapshot = Snapshot::default();
        snapshot.run.events = vec![event, stacks, cycles];
        snapshot.losses.add(Loss::CountsFull, 6);
        snapshot.intervals = vec![Interval {
            ips: vec![ip(0, 90), ip(2, 5)],
            ..Interval::default()
        }];
        snapshot
    }

    #[test]
    fn accounting_covers_every_sample() {
        let mut snapshot = snapshot();
        let (mut resolved, mut unresolved) = (Tally::default(), Tally::default());
        unresolved.add(EventIdx(0), Unresolved::NoText, Ring::User, 8);
        unresolved.add(EventIdx(0), Unresolved::Halted, Ring::Kernel, 30);
        resolved.add(EventIdx(0), (), Ring::Kernel, 10);
        resolved.add(EventIdx(0), (), Ring::User, 42);
        resolved.add(EventIdx(2), (), Ring::User, 5);
        let ebs = [EventIdx(0)];

        let all = Accounting::follow(&snapshot, &ebs, &resolved, &unresolved);
        assert_eq!(
            (all.due, all.missing().unknown, all.beyond, all.reached),
            (Some(115), 4, 2, 113)
        );
        assert_eq!((all.stacks, all.counted), (12, PerRing { kernel: 40, user: 55 }));
        assert_eq!(all.in_mix, PerRing { kernel: 10, user: 42 });
        assert_eq!(all.other_events, PerRing { kernel: 0, user: 5 });
        assert_eq!(
            (all.resolved(), all.asked()),
            (PerRing { kernel: 10, user: 47 }, PerRing { kernel: 10, user: 55 })
        );
        assert_eq!(all.unexplained(), 0);

        snapshot.run.events[0].period = Period::Frequency(99);
        let all = Accounting::follow(&snapshot, &ebs, &resolved, &unresolved);
        assert_eq!(
            (all.due, all.missing(), all.beyond),
            (None, Missing::default(), 0)
        );
    }

    #[test]
    fn stacks_that_were_refused_are_not_among_those_that_served() {
        let mut snapshot = snapshot();
        snapshot.losses.add(Loss::StacksFull, 2);
        snapshot.losses.add(Loss::NoStack, 1);
        let mut resolved = Tally::default();
        resolved.add(EventIdx(0), (), Ring::User, 90);
        resolved.add(EventIdx(2), (), Ring::User, 5);
        let all = Accounting::follow(&snapshot, &[EventIdx(0)], &resolved, &Tally::default());
        assert_eq!((all.stacks, all.unexplained()), (9, 0));
        assert_eq!(total(all.refused.iter().map(|(_, n)| *n)), 9);
    }
}
