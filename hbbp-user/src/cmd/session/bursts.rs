//! Bursts of user code while a measurement runs: each is followed at once, and its branches become the counts of a branch stack.
//!
//! The event of bursts is the last of the run. One has the weight of its period, as a branch stack has; its streams have the executions of
//! that time, in the cycles of the model ([`hbbp_bursts`]). What a period is in executions is not known, so that these are relative.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::{fmt, mem};

use hbbp_bursts::{Followed, Followers};
use hbbp_collect::Scope;
use hbbp_collect::bursts::{Bursts, PERIOD};
use hbbp_ebpf::burst::BurstHead;
use hbbp_emulate::{Branch, End, Limits};
use hbbp_model::addr::Va;
use hbbp_model::snapshot::{Event, EventIdx, Loss, Losses};
use hbbp_resolve::clock::{now, thread_time};
use hbbp_resolve::raw::{Raw, Sort, TaskKey, WEIGHT_ONE};

/// How long bursts are: the trial had no better figures with more (kernel-tests/experiments/bursts.py).
const LIMITS: Limits = Limits {
    branches: 256,
    steps: 1 << 14,
};

/// The fewest cycles that a burst counts with. Of one that ends sooner, the time is mostly what its first and its last branch wait
/// for, and it would have the weight of hundreds of others.
const FEWEST_CYCLES: f64 = 64.0;

/// CPU time of all CPUs that emulation may take, as its denominator: 0.5 %.
const PART_OF_TIME: u64 = 200;

/// What it may take on top, so that the first bursts of each process are followed, whose text is decoded anew.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The bursts of a measurement.
pub(crate) struct UserBursts {
    bursts: Bursts,
    followers: Followers,
    budget: EmulationBudget,
    streams: BurstStreams,
    ends: Ends,
    gone: u64,
    over_budget: u64,
}

impl UserBursts {
    /// Opens the event of bursts, whose number is this one, on a machine of `n_cpus`.
    pub(crate) fn open(scope: &Scope, event: u32, n_cpus: u32) -> anyhow::Result<Self> {
        Ok(Self {
            bursts: Bursts::open(scope)?,
            followers: Followers::default(),
            budget: EmulationBudget::new(n_cpus),
            streams: BurstStreams {
                event: EventIdx(event),
                counts: Vec::new(),
                short: 0,
            },
            ends: Ends::default(),
            gone: 0,
            over_budget: 0,
        })
    }

    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.budget.began = now();
        self.bursts.enable()
    }

    /// What notifies that there are some.
    pub(crate) fn ready(&self) -> anyhow::Result<OwnedFd> {
        self.bursts.ready()
    }

    /// Follows the bursts that have come. Their pages go when they are done.
    pub(crate) fn follow(&mut self) {
        for burst in self.bursts.read() {
            if !self.budget.has_room(now()) {
                self.over_budget += 1;
                continue;
            }
            let began = thread_time();
            match self.followers.follow(&burst.head, &burst.pages, LIMITS) {
                None => self.gone += 1,
                Some(followed) => {
                    // Where there are too many processes, the others go without.
                    let _ = self.bursts.want(burst.head.tgid, followed.wanted.iter().copied());
                    self.streams.add(&burst.head, &followed);
                    self.ends.add(&followed);
                }
            }
            self.budget.spent += thread_time().saturating_sub(began);
        }
    }

    /// The counts since the last call.
    pub(crate) fn take_counts(&mut self) -> Vec<Raw> {
        mem::take(&mut self.streams.counts)
    }

    /// Stops their event, and follows the last ones.
    pub(crate) fn stop(&mut self) -> anyhow::Result<Event> {
        let event = self.bursts.stop()?;
        self.follow();
        Ok(event)
    }

    pub(crate) fn add_losses(&self, losses: &mut Losses) -> anyhow::Result<()> {
        self.bursts.add_losses(losses)?;
        losses.add(Loss::BurstsGone, self.gone);
        losses.add(Loss::BurstsOverBudget, self.over_budget);
        losses.add(Loss::BurstsShort, self.streams.short);
        Ok(())
    }

    /// How bursts ended, and which memory they had.
    pub(crate) fn note(&self) -> anyhow::Result<String> {
        let stats = self.bursts.stats()?;
        Ok(format!(
            "bursts of user code: {}; of {} pages of memory that they asked for, {} were not there and {} found the ring full; {} \
             pages were read after the sample, and may have changed",
            self.ends, stats.pages, stats.pages_absent, stats.pages_full, self.ends.late
        ))
    }
}

/// The CPU time that emulation has taken and may take.
#[derive(Debug)]
struct EmulationBudget {
    /// When the measurement began, in ns of CLOCK_MONOTONIC.
    began: u64,
    n_cpus: u32,
    spent: Duration,
}

impl EmulationBudget {
    fn new(n_cpus: u32) -> Self {
        Self {
            began: now(),
            n_cpus,
            spent: Duration::ZERO,
        }
    }

    fn has_room(&self, now: u64) -> bool {
        let time = now.saturating_sub(self.began).saturating_mul(self.n_cpus.into());
        self.spent < Duration::from_nanos(time / PART_OF_TIME) + AT_ONCE
    }
}

/// The streams of bursts, as counts of branch stacks.
#[derive(Debug)]
struct BurstStreams {
    event: EventIdx,
    counts: Vec<Raw>,
    /// Bursts without a stream.
    short: u64,
}

impl BurstStreams {
    /// Adds a burst: its streams, each with its executions in a period, and its oldest branch.
    fn add(&mut self, head: &BurstHead, burst: &Followed) {
        let (Some(oldest), true) = (burst.branches.first(), 0.0 < burst.cycles) else {
            self.short += 1;
            return;
        };
        let count = |sort, start: u64, end: u64, source: u64, hits: u64| Raw {
            task: TaskKey {
                tgid: head.tgid,
                exec_id: head.exec_id,
            },
            tid: 0,
            first_time: head.time,
            sort,
            event: self.event,
            start: Va(start),
            end: Va(end),
            source: Va(source),
            hits,
            weight: weight(hits, burst.cycles),
        };
        let mut streams = BTreeMap::<(u64, u64, u64), u64>::new();
        for pair in burst.branches.windows(2) {
            if let [Branch { from: source, to }, Branch { from: end, .. }] = *pair {
                *streams.entry((to, end, source)).or_default() += 1;
            }
        }
        let streams = streams.into_iter();
        self.counts.extend(
            streams.map(|((start, end, source), hits)| count(Sort::Stream, start, end, source, hits)),
        );
        self.counts.push(count(Sort::Oldest, oldest.from, 0, 0, 1));
    }
}

/// The weight of occurrences in a burst that takes these cycles of a period.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a burst has 16,384 steps at most and a cycle at least, so that its weight is far below 2^53"
)]
fn weight(hits: u64, cycles: f64) -> u64 {
    (hits as f64 * (PERIOD * WEIGHT_ONE) as f64 / cycles.max(FEWEST_CYCLES)) as u64
}

/// How bursts ended.
#[derive(Debug, Default)]
struct Ends {
    by_reason: BTreeMap<End, u64>,
    late: u64,
}

impl Ends {
    fn add(&mut self, burst: &Followed) {
        let reason = match burst.end {
            End::TextNotRead(_) => End::TextNotRead(0),
            other => other,
        };
        *self.by_reason.entry(reason).or_default() += 1;
        self.late = self.late.saturating_add(burst.late as u64);
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let full = [End::Branches, End::Steps].map(|end| self.by_reason.get(&end).copied().unwrap_or(0));
        let all: u64 = self.by_reason.values().sum();
        write!(f, "{} of {all} have their full length", full.iter().sum::<u64>())?;
        let early = self.by_reason.iter();
        for (end, n) in early.filter(|(end, _)| !matches!(end, End::Branches | End::Steps)) {
            match end {
                End::TextNotRead(_) => write!(f, ", {n} ended early at text that is not in memory")?,
                end => write!(f, ", {n} ended early at: {end}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(branches: &[(u64, u64)], cycles: f64, end: End) -> Followed {
        Followed {
            branches: branches
                .iter()
                .map(|(from, to)| Branch { from: *from, to: *to })
                .collect(),
            steps: 9,
            cycles,
            end,
            late: 2,
            wanted: Vec::new(),
        }
    }

    #[test]
    fn a_burst_is_a_stack_with_the_weight_of_its_period() {
        let mut streams = BurstStreams {
            event: EventIdx(3),
            counts: Vec::new(),
            short: 0,
        };
        let head = BurstHead {
            tgid: 7,
            exec_id: 1,
            time: 5,
            ..BurstHead::default()
        };
        let turn = (0x1010, 0x1000);
        streams.add(
            &head,
            &followed(&[turn, turn, turn, (0x1010, 0x2000)], 600.0, End::Branches),
        );
        // A loop that is twice as slow has half of the executions in a period.
        streams.add(&head, &followed(&[turn, turn], 400.0, End::SystemCall));
        streams.add(&head, &followed(&[turn], 0.0, End::SystemCall));
        streams.add(&head, &followed(&[], 0.0, End::Trap));
        assert_eq!(streams.short, 2);
        let of = |raw: &Raw| {
            (
                raw.sort,
                raw.start.0,
                raw.end.0,
                raw.hits,
                raw.weight / WEIGHT_ONE,
            )
        };
        let counts: Vec<_> = streams.counts.iter().map(of).collect();
        let expected = [
            (Sort::Stream, 0x1000, 0x1010, 3, PERIOD / 200),
            (Sort::Oldest, 0x1010, 0, 1, PERIOD / 600),
            (Sort::Stream, 0x1000, 0x1010, 1, PERIOD / 400),
            (Sort::Oldest, 0x1010, 0, 1, PERIOD / 400),
        ];
        assert_eq!(counts, expected);
        let raw = &streams.counts[0];
        assert_eq!(
            (raw.task.tgid, raw.task.exec_id, raw.first_time, raw.event),
            (7, 1, 5, EventIdx(3))
        );
    }

    #[test]
    fn emulation_keeps_to_its_part_of_the_time() {
        let mut budget = EmulationBudget {
            began: 1_000,
            n_cpus: 2,
            spent: Duration::ZERO,
        };
        assert!(budget.has_room(1_000), "the first one is followed");
        budget.spent = Duration::from_millis(1_100);
        let second = |n: u64| 1_000 + n * 1_000_000_000;
        assert_eq!([99, 101].map(|n| budget.has_room(second(n))), [false, true]);
    }

    #[test]
    fn ends_are_counted_by_reason() {
        let mut ends = Ends::default();
        for end in [
            End::Branches,
            End::Steps,
            End::TextNotRead(7),
            End::TextNotRead(9),
            End::SystemCall,
        ] {
            ends.add(&followed(&[], 1.0, end));
        }
        let said = ends.to_string();
        assert!(said.starts_with("2 of 5 have their full length"), "{said}");
        assert!(
            said.contains("2 ended early at text") && said.contains("1 ended early at: a system call"),
            "{said}"
        );
        assert_eq!(ends.late, 10);
    }
}
