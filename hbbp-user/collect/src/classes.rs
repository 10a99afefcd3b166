//! Counts of classes of instructions along with the sampling events, by ring: loads, stores, kinds of branches, and so
//! on.
//!
//! There are more of them than counters. They are divided into sets that fit next to the sampling events, and the sets
//! count in turn. This program rotates them, not the kernel. The kernel's own multiplexing would work too, since
//! sampling events are pinned and it rotates only others; but it interrupts every CPU each few ms, idle ones included,
//! and does not report what a ring retired meanwhile. Here each set holds the retired instructions of both rings as
//! well. So a part of the run is extrapolated by instructions rather than by time, and the variance between turns is
//! known.
//!
//! Sampling events never lose a counter to a class: they are pinned, so that the kernel gives them counters first; a set is a
//! group that is not, and counts only with all its events at once. How large a set may be is tried out before the start on
//! the counters that sampling leaves. Where another program takes some of those later, the set counts nothing, and the share of the
//! run in which it did counts, which the snapshot holds, is less.

use std::io;
use std::time::{Duration, Instant};

use super::class_pmu::OfPmu;
use super::class_turns::{Measured, RingEvent, Tally};
use super::cpu_group::CpuGroup;
use super::perf::{Counting, Group};
use hbbp_model::addr::Ring;
use hbbp_model::advice::Advised;
use hbbp_model::snapshot::ClassCount;

/// Whether classes of instructions are counted along with the samples.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClassCounting {
    /// Where there are counters for them.
    On,
    /// Nowhere.
    #[default]
    Off,
}

/// No turn is shorter than this, the step of the timers here; the first ones are, so that short runs have many of each set.
const SHORTEST_TURN: Duration = Duration::from_millis(1);

/// A turn is no longer than this: a run of minutes then has enough of them.
const LONGEST_TURN: Duration = Duration::from_secs(1);

/// A turn is as long as this part of the time since the start, so that each set has some tens of them in runs of any length.
const TURN_PART: u32 = 200;

/// Taking turns takes at most this part of the time of one CPU; that of the others is as much, as each is interrupted meanwhile.
const COST_PART: u32 = 100;

/// What counts on the CPUs of one PMU.
pub(super) struct ClassCounters {
    /// `perf_event_attr.type` of the PMU.
    kind: u32,
    events: Vec<Tally>,
    sets: Vec<Set>,
    /// Index of the set that counts, or will be the first to.
    turn: usize,
    /// When classes were counted first.
    started: Option<Instant>,
    /// The CPU time that the last change of turns took.
    cost: Duration,
    is_counting: bool,
}

/// Events that count at the same time.
struct Set {
    /// Their indices.
    events: Vec<usize>,
    /// One for each CPU.
    groups: Vec<CpuGroup>,
}

impl ClassCounters {
    /// Opens the events of a PMU, disabled. `None` where none can count along with the samples. What is left out has a
    /// sentence.
    pub(super) fn open(pmu: &OfPmu, notes: &mut Vec<String>) -> io::Result<Option<Self>> {
        let Some(&cpu) = pmu.cpus.first() else {
            return Ok(None);
        };
        let events = pmu.countable(cpu, notes);
        let capacity = pmu.capacity(cpu, &events)?;
        let sets = sets(&events, capacity);
        if sets.is_empty() {
            notes.push(format!(
                "no class of instructions was counted on {}: the sampling events leave no counter free",
                pmu.name
            ));
            return Ok(None);
        }
        let open = |events_of: Vec<usize>| -> io::Result<Set> {
            let counting: Vec<&Counting> = events_of
                .iter()
                .filter_map(|event| Some(&events.get(*event)?.counting))
                .collect();
            let groups = pmu.cpus.iter().map(|cpu| CpuGroup::open(&counting, *cpu));
            Ok(Set {
                groups: groups.collect::<io::Result<_>>()?,
                events: events_of,
            })
        };
        Ok(Some(Self {
            kind: pmu.kind,
            sets: sets.into_iter().map(open).collect::<io::Result<_>>()?,
            events: events.into_iter().map(Tally::new).collect(),
            turn: 0,
            started: None,
            cost: Duration::ZERO,
            is_counting: false,
        }))
    }

    /// `perf_event_attr.type` of the PMU.
    pub(super) const fn kind(&self) -> u32 {
        self.kind
    }

    /// Starts counting.
    pub(super) fn enable(&mut self) {
        self.started.get_or_insert_with(Instant::now);
        self.is_counting = true;
        if let Some(set) = self.sets.get_mut(self.turn) {
            set.groups.iter_mut().for_each(CpuGroup::enable);
        }
    }

    /// Stops counting.
    pub(super) fn stop(&mut self) {
        if std::mem::take(&mut self.is_counting) {
            if let Some(set) = self.sets.get_mut(self.turn) {
                set.groups.iter_mut().for_each(CpuGroup::disable);
            }
            self.read(self.turn);
        }
    }

    /// How long the turn that begins now should be; `None` where all count all the time.
    pub(super) fn turn_length(&self) -> Option<Duration> {
        if self.sets.len() < 2 || !self.is_counting {
            return None;
        }
        let since = self.started.map_or(Duration::ZERO, |started| started.elapsed());
        let turn = (since / TURN_PART).clamp(SHORTEST_TURN, LONGEST_TURN);
        Some(turn.max(self.cost * COST_PART))
    }

    /// Lets the next set count.
    pub(super) fn take_turns(&mut self) {
        let before = self.turn;
        let next = (before + 1) % self.sets.len().max(1);
        let Ok([old, new]) = self.sets.get_disjoint_mut([before, next]) else {
            return;
        };
        if !self.is_counting {
            return;
        }
        let start = own_time();
        // CPU by CPU, so that none is without for long.
        for (old, new) in old.groups.iter_mut().zip(&mut new.groups) {
            old.disable();
            new.enable();
        }
        self.turn = next;
        self.read(before);
        self.cost = own_time().saturating_sub(start);
    }

    /// What was counted since the last call, of `enabled` ns in which samples were taken. To be called while it is stopped.
    pub(super) fn take_counts(&mut self, enabled: u64, notes: &mut Vec<Advised>) -> Vec<ClassCount> {
        let counts: Vec<ClassCount> = self.events.iter_mut().map(|event| event.take(enabled)).collect();
        let missing: Vec<&str> = counts
            .iter()
            .filter(|count| count.running == 0)
            .map(|count| count.event.as_str())
            .collect();
        if !missing.is_empty() && 0 < enabled {
            let missing = missing.join(", ");
            let note = format!(
                "classes of instructions that had no counter at any time, as another program uses them or the run was too short \
                 for a turn of each: {missing}"
            );
            notes.push(note.into());
        }
        counts.into_iter().filter(|count| 0 < count.running).collect()
    }

    /// Adds what a set counted in its turn, which has ended.
    fn read(&mut self, set: usize) {
        let Some(set) = self.sets.get_mut(set) else {
            return;
        };
        let mut turn = Group {
            counts: vec![0; set.events.len()],
            ..Group::default()
        };
        for group in &mut set.groups {
            let Some(now) = group.read() else { continue };
            turn.running += now.running.saturating_sub(group.before.running);
            for ((sum, now), before) in turn.counts.iter_mut().zip(&now.counts).zip(&group.before.counts) {
                *sum += now.saturating_sub(*before);
            }
            group.before = now;
        }
        let of_ring = |ring| {
            let mut counted = set.events.iter().zip(&turn.counts);
            let instructions = |event: usize| {
                let event = self.events.get(event).map(|tally| &tally.event);
                event.is_some_and(|event| event.is_instructions() && event.counting.ring == ring)
            };
            counted
                .find(|(event, _)| instructions(**event))
                .map_or(0, |(_, n)| *n)
        };
        let instructions = [of_ring(Ring::Kernel), of_ring(Ring::User)];
        for (event, count) in set.events.iter().zip(&turn.counts) {
            if let Some(tally) = self.events.get_mut(*event) {
                let [kernel, user] = instructions;
                tally.add(Measured {
                    count: *count,
                    running: turn.running,
                    instructions: match tally.event.counting.ring {
                        Ring::Kernel => kernel,
                        Ring::User => user,
                    },
                });
            }
        }
    }
}

/// CPU time of this thread: that it waited for others says nothing of what a turn costs.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Divides the events into sets of at most `capacity`, by their indices. The instructions of both rings are in each
/// set, if that leaves counters for others.
fn sets(events: &[RingEvent], capacity: usize) -> Vec<Vec<usize>> {
    let is_instructions = |event: &usize| events.get(*event).is_some_and(RingEvent::is_instructions);
    let (always, others): (Vec<usize>, Vec<usize>) = (0..events.len()).partition(is_instructions);
    if capacity == 0 || events.is_empty() {
        return Vec::new();
    }
    if capacity < always.len() + 2 || others.is_empty() {
        let all: Vec<usize> = (0..events.len()).collect();
        return all.chunks(capacity).map(<[usize]>::to_vec).collect();
    }
    let beside = others.chunks(capacity - always.len());
    beside
        .map(|others| [always.as_slice(), others].concat())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::InstructionClass as Class;

    fn events(classes: &[Class]) -> Vec<RingEvent> {
        let of_rings = |class: &Class| {
            [Ring::Kernel, Ring::User].map(|ring| RingEvent {
                class: *class,
                name: String::new(),
                counting: Counting {
                    kind: 4,
                    config: 0,
                    ring,
                },
            })
        };
        classes.iter().flat_map(of_rings).collect()
    }

    #[test]
    fn instructions_count_with_every_set() {
        let events = events(&[Class::Instructions, Class::Loads, Class::Stores, Class::Calls]);
        assert_eq!(sets(&events, 8), [[0, 1, 2, 3, 4, 5, 6, 7]]);
        assert_eq!(sets(&events, 5), [[0, 1, 2, 3, 4], [0, 1, 5, 6, 7]]);
        assert_eq!(sets(&events, 4), [[0, 1, 2, 3], [0, 1, 4, 5], [0, 1, 6, 7]]);
    }

    #[test]
    fn few_counters_are_shared_by_all() {
        let events = events(&[Class::Instructions, Class::Returns]);
        assert_eq!(sets(&events, 3), [vec![0, 1, 2], vec![3]]);
        assert_eq!(sets(&events, 1).len(), 4);
        assert_eq!(sets(&events, 0), Vec::<Vec<usize>>::new());
    }
}
