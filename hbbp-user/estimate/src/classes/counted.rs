//! What counters say of each class and ring for the whole run, from the part of it that they counted.
//!
//! A part of the run is extrapolated by the instructions that the ring retired in it and in all of the run. These count beside every
//! set of classes, and between sets, when nothing of them counts, the sampling event of instructions still does, for
//! both rings together.
//! The error is that of sampling turns (Cochran, Sampling Techniques, 1977, sections 6.3 and 8.11: ratio estimates,
//! systematic samples), with the variance of a turn from the differences of neighbours. A burst that falls between the turns of a
//! class leaves no trace in these; the instructions of its ring, which count beside all sets, show that there was one.

use crate::{EventAssignment, Figure};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{ClassCount, Event, EventIdx, EventUnit, InstructionClass, Run, Turns};

/// What even a class that counts all the time is uncertain by, as a fraction: counters begin and end some microseconds apart from
/// the samples, and processors count interrupted or microcoded instructions as they like.
const FLOOR: f64 = 0.001;

/// A class that counted this share of the run needs no extrapolation to speak of.
const WHOLE: f64 = 0.99;

/// A class in a ring, as counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) class: InstructionClass,
    pub(super) ring: Ring,
    /// Of the whole run.
    pub(super) amount: Figure,
    /// The share of the run in which it counted.
    pub(super) share: f64,
    /// Whether the error of `amount` is known.
    pub(super) is_certain: bool,
}

/// The classes of a run by (class, ring), those of several PMUs together.
pub(super) fn counted(run: &Run, assignment: &EventAssignment) -> Vec<Counted> {
    let instructions = Instructions::new(run, assignment);
    let mut all: Vec<Counted> = Vec::new();
    for count in &run.classes {
        let one = extrapolated(count, &instructions);
        match all
            .iter_mut()
            .find(|it| (it.class, it.ring) == (one.class, one.ring))
        {
            Some(sum) => {
                sum.amount = sum.amount.plus(one.amount);
                sum.share = sum.share.min(one.share);
                sum.is_certain &= one.is_certain;
            }
            None => all.push(one),
        }
    }
    all.sort_by_key(|it| (it.class, it.ring));
    all
}

/// The instructions of each ring in the whole run, by counters.
struct Instructions {
    /// Kernel and user; `None` if classes are extrapolated by time.
    of_rings: Option<[f64; 2]>,
    /// Standard error of both.
    std_error: f64,
    /// Kernel and user: how they differed from turn to turn, over the turns of all sets.
    turns: [Turns; 2],
}

impl Instructions {
    /// What was retired while no set counted is known for both rings together. It is this program's own change of sets, in system calls
    /// but for a few instructions: on the emulated machine, of 0.3 million between sets, all to within a tenth. Where CPUs came
    /// that have no counters of classes it is more, and of either ring.
    fn new(run: &Run, assignment: &EventAssignment) -> Self {
        /// The part of it that may be user code after all.
        const OF_USER: f64 = 0.2;
        /// A greater share of the run is more than changes of sets.
        const CHANGES: f64 = 0.02;

        let of = |ring| {
            let mut counts = run
                .classes
                .iter()
                .filter(|it| it.class == InstructionClass::Instructions && it.ring == ring);
            // Those of several PMUs do not say which part of a class each had.
            counts.next().filter(|_| counts.next().is_none())
        };
        let (Some(kernel), Some(user)) = (of(Ring::Kernel), of(Ring::User)) else {
            return Self {
                of_rings: None,
                std_error: 0.0,
                turns: [Turns::default(); 2],
            };
        };
        let counts = [kernel, user].map(|it| it.count as f64);
        let both = counts[0] + counts[1];
        let sampled = units(&run.events, &assignment.ebs, EventUnit::Instructions);
        let share = kernel.share().min(user.share());
        let all = match sampled {
            sampled if both <= sampled => sampled,
            _ if 0.0 < share => both / share,
            _ => both,
        };
        let between = all - both;
        let (of_rings, std_error) = if between <= CHANGES * all {
            ([counts[0] + between, counts[1]], OF_USER * between)
        } else {
            (counts.map(|count| count * all / both), between / 2.0)
        };
        Self {
            of_rings: (0.0 < both).then_some(of_rings),
            std_error,
            turns: [kernel.turns, user.turns],
        }
    }
}

/// Of a pair of kernel and user, that of this ring.
fn of_ring<T>([kernel, user]: [T; 2], ring: Ring) -> T {
    match ring {
        Ring::Kernel => kernel,
        Ring::User => user,
    }
}

/// What the counter of a class says of the whole run.
fn extrapolated(count: &ClassCount, instructions: &Instructions) -> Counted {
    let all_of_ring = instructions.of_rings.map(|both| of_ring(both, count.ring));
    let counted = count.count as f64;
    // The part of the run, by instructions or by time, and the relative error of the whole.
    let (part, off) = match all_of_ring {
        Some(all) if 0 < count.instructions && 0.0 < all => {
            (count.instructions as f64 / all, instructions.std_error / all)
        }
        _ => (count.share(), 0.0),
    };
    let value = if 0.0 < part { counted / part } else { 0.0 };
    let of_whole = (off * value).powi(2) + (FLOOR * value).powi(2);
    let (of_part, is_certain) = if count.class == InstructionClass::Instructions {
        (0.0, 0.5 < part)
    } else if WHOLE <= part {
        (((1.0 - part.min(1.0)) * value).powi(2), true)
    } else {
        let rate = counted / (count.measure() as f64).max(1.0);
        let of_turn = count.turns.variance(rate);
        let n = count.turns.n as f64;
        let unseen = unseen_bursts(count, of_ring(instructions.turns, count.ring));
        let of_others =
            of_turn.map(|of_turn| n * of_turn * (1.0 / part) * (1.0 / part - 1.0) + rate * rate * unseen);
        (of_others.unwrap_or(value * value), of_others.is_some())
    };
    Counted {
        class: count.class,
        ring: count.ring,
        amount: Figure::new(value, of_part + of_whole),
        share: count.share(),
        is_certain: is_certain && 0.0 < part,
    }
}

/// The sum of the squares of the instructions in bursts of a ring that a class did not see. Each may hold twice as much
/// of the class as what it saw, or nothing. With a burst that differs by a third only, loads were up to 6.6 standard
/// errors off. They were those of runs of system calls around a sort (the emulated machine, 6.1 and 6.12).
fn unseen_bursts(count: &ClassCount, of_all: Turns) -> f64 {
    if count.instructions == 0 {
        return 0.0;
    }
    // A burst is in two differences, that to the turn before and that to the turn after.
    (of_all.measure - count.turns.measure).max(0.0) / 2.0
}

/// What the events of a unit counted; for the time that one shared its counter, what it would have counted.
pub fn units(events: &[Event], served: &[EventIdx], unit: EventUnit) -> f64 {
    let events = served.iter().filter_map(|event| events.get(event.0 as usize));
    events
        .filter(|event| event.unit == unit)
        .flat_map(|event| &event.counters)
        .map(|counter| {
            let part = if counter.is_multiplexed() {
                counter.running as f64 / counter.enabled as f64
            } else {
                1.0
            };
            counter.count as f64 / part
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;
    use hbbp_model::snapshot::run::Counter;

    fn count(class: InstructionClass, ring: Ring, count: u64, instructions: u64) -> ClassCount {
        ClassCount {
            class,
            ring,
            event: String::new(),
            count,
            enabled: 100,
            running: if class == InstructionClass::Instructions {
                100
            } else {
                25
            },
            instructions,
            turns: Turns {
                n: 9,
                count: 800.0,
                ..Turns::default()
            },
        }
    }

    fn run(classes: Vec<ClassCount>, sampled: u64) -> Run {
        let counter = Counter {
            count: sampled,
            ..Counter::default()
        };
        Run {
            events: vec![Event {
                unit: EventUnit::Instructions,
                counters: vec![counter],
                ..Event::default()
            }],
            classes,
            ..Run::default()
        }
    }

    fn of(run: &Run) -> Vec<Counted> {
        let assignment = EventAssignment {
            ebs: vec![EventIdx(0)],
            lbr: Vec::new(),
            unit: Unit::Executions,
        };
        counted(run, &assignment)
    }

    #[test]
    fn a_part_of_the_run_is_extrapolated_by_instructions() {
        let classes = vec![
            count(InstructionClass::Instructions, Ring::Kernel, 1_000, 1_000),
            count(InstructionClass::Instructions, Ring::User, 3_000, 3_000),
            // A fifth of the instructions in a fourth of the time.
            count(InstructionClass::Loads, Ring::User, 150, 600),
        ];
        // Forty were retired between sets, in the kernel.
        let found = of(&run(classes.clone(), 4_040));
        let values: Vec<f64> = found.iter().map(|it| it.amount.value).collect();
        assert_eq!(values, [1_040.0, 3_000.0, 750.0]);
        let part: f64 = 600.0 / 3_000.0;
        let variance = 9.0 * 800.0 / 16.0 * (1.0 / part) * (1.0 / part - 1.0);
        let of_whole = (FLOOR * 750.0f64).powi(2) + (8.0 / 3_000.0 * 750.0f64).powi(2);
        let expected = (variance + of_whole).sqrt();
        assert!((found[2].amount.std_error - expected).abs() < 1e-9);
        assert_eq!((found[2].share, found[2].is_certain), (0.25, true));
        assert!((found[0].amount.std_error - 8.0).abs() < 0.1);
        // A tenth of the run is more than changes of sets, and may be of either ring.
        let found = of(&run(classes, 4_400));
        assert_eq!((found[0].amount.value, found[1].amount.value), (1_100.0, 3_300.0));
        assert!((found[0].amount.std_error - 200.0).abs() < 1.0);
    }

    #[test]
    fn bursts_between_the_turns_of_a_class_leave_it_uncertain() {
        let mut user = count(InstructionClass::Instructions, Ring::User, 3_000, 3_000);
        // A burst of 1,000 instructions, up and down again, beside turns that differ by little.
        user.turns.measure = 2.0 * 1_000.0 * 1_000.0 + 400.0;
        let mut loads = count(InstructionClass::Loads, Ring::User, 150, 600);
        loads.turns.measure = 100.0;
        let kernel = count(InstructionClass::Instructions, Ring::Kernel, 1_000, 1_000);
        let error = |user: &ClassCount, loads: &ClassCount| {
            let classes = vec![kernel.clone(), user.clone(), loads.clone()];
            of(&run(classes, 4_040))[2].amount.std_error
        };
        // A fourth of its instructions are loads elsewhere.
        let missed = error(&user, &loads);
        assert!((250.0..280.0).contains(&missed), "{missed}");
        // The error shows in the turns in which loads were counted, and these tell how large it can be.
        let both_ways = user.turns.measure;
        loads.turns = Turns {
            count: 800.0 + both_ways / 16.0,
            product: both_ways / 4.0,
            measure: both_ways,
            ..loads.turns
        };
        let seen = error(&user, &loads);
        assert!(seen < 120.0, "{seen}");
        // As many that were in the turns of others are uncertain again.
        user.turns.measure *= 2.0;
        let others = error(&user, &loads);
        assert!(
            (245.0 * 245.0..255.0 * 255.0).contains(&(others * others - seen * seen)),
            "{others} {seen}"
        );
    }

    /// Without instructions the measure is time, and few turns leave the error unknown.
    #[test]
    fn time_without_instructions_and_error_of_few_turns() {
        let mut loads = count(InstructionClass::Loads, Ring::User, 150, 0);
        loads.turns.n = 3;
        let found = of(&run(vec![loads], 4_400));
        assert_eq!((found[0].amount.value, found[0].is_certain), (600.0, false));
    }

    #[test]
    fn multiplexed_counts_are_scaled_to_the_enabled_time() {
        let counter = |count, enabled, running| Counter {
            count,
            enabled,
            running,
            ..Counter::default()
        };
        let event = |unit, counters| Event {
            unit,
            counters,
            ..Event::default()
        };
        let events = [
            event(
                EventUnit::Instructions,
                vec![counter(100, 10, 10), counter(50, 10, 5)],
            ),
            event(EventUnit::TakenBranches, vec![counter(7, 10, 10)]),
        ];
        let both = [EventIdx(0), EventIdx(1)];
        assert_eq!(units(&events, &both, EventUnit::Instructions), 200.0);
        assert_eq!(units(&events, &both[..1], EventUnit::TakenBranches), 0.0);
    }
}
