//! Courses of control in models of machines, whose loads come and go.

use super::*;
use proptest::prelude::*;

/// Two CPUs, and 0.3 % of them.
const SHARE: f64 = 0.003;
const N_CPUS: u32 = 2;
const BUDGET: f64 = SHARE * N_CPUS as f64;

/// Time between two polls.
const TICK: u64 = SECOND / 4;

/// A machine: what samples would cost at the first periods, from a time in s on, and what user space takes, all in budgets.
#[derive(Clone, Debug)]
struct Plant {
    demand: Vec<(u64, f64)>,
    /// Always, as reading records.
    fixed: f64,
    /// In a lump at the begin of the next interval, for its length, and for each of its samples' cost.
    lump: f64,
    per_sample: f64,
    /// The same for each interval of any length, in seconds of the budget.
    per_interval: f64,
    interval: u64,
    noise: Vec<f64>,
}

/// What came of it: own CPU time by tick, in ns, and the scales of the intervals with their lengths.
struct Course {
    spent: Vec<f64>,
    scales: Vec<(f64, u64)>,
}

impl Plant {
    fn run(&self, seconds: u64) -> Course {
        let mut course = Course {
            spent: Vec::new(),
            scales: Vec::new(),
        };
        let (mut user, mut sampling) = (0.0, 0.0);
        #[expect(clippy::cast_sign_loss, reason = "sums of positive numbers")]
        let spent = |user: f64, sampling: f64| Spent {
            user: user as u64,
            sampling: sampling as u64,
        };
        let mut control = Control::new(SHARE, N_CPUS, 0, Spent::default());
        let (mut began, mut of_interval, mut lump) = (0, 0.0, 0.0);
        let unit = BUDGET * TICK as f64;
        for tick in 1..=seconds * SECOND / TICK {
            let now = tick * TICK;
            let demand = self.demand.iter().rev().find(|(from, _)| *from * SECOND < now);
            let noise = self.noise[tick as usize % self.noise.len()];
            let samples = unit * demand.map_or(0.0, |it| it.1) * noise / control.scale();
            // The lump is worked on within a second.
            let work = f64::min(lump, unit * 40.0);
            lump -= work;
            let before = user + sampling;
            sampling += samples;
            of_interval += samples;
            // Two thirds of what user space does always, it does at each look.
            let looks = (1.0 + 2.0 / f64::from(control.pace())) / 3.0;
            user += work + unit * self.fixed * looks * noise;
            course.spent.push(user + sampling - before);
            let urgent = control.is_urgent(now, spent(user, sampling));
            if urgent || self.interval * u64::from(control.lengthening()) * SECOND <= now - began {
                course.scales.push((control.scale(), now - began));
                control.next(now, spent(user, sampling));
                lump += self.lump * BUDGET * (now - began) as f64 + self.per_sample * of_interval;
                lump += self.per_interval * BUDGET * SECOND as f64;
                (began, of_interval) = (now, 0.0);
            }
        }
        course
    }
}

impl Course {
    /// The most that a minute took, in budgets.
    fn worst_minute(&self) -> f64 {
        let ticks = (MINUTE / TICK) as usize;
        let minutes = self.spent.windows(ticks.min(self.spent.len()));
        let most = minutes.map(|it| it.iter().sum::<f64>()).fold(0.0, f64::max);
        most / (BUDGET * MINUTE as f64)
    }
}

fn steady(demand: f64) -> Plant {
    Plant {
        demand: vec![(0, demand)],
        fixed: 0.1,
        lump: 0.1,
        per_sample: 0.5,
        per_interval: 0.0,
        interval: 60,
        noise: vec![1.0],
    }
}

proptest! {
    #[test]
    fn no_minute_takes_a_fifth_more_than_the_budget(
        demand in prop::collection::vec((1_u64..240, 0.0..25.0), 1..8),
        fixed in 0.0..0.25,
        lump in 0.0..0.2,
        per_sample in 0.0..0.3,
        interval in prop::sample::select(vec![10_u64, 30, 60]),
        noise in prop::collection::vec(0.8..1.2, 400),
    ) {
        let mut from = 0;
        let demand = demand.into_iter().map(|(length, demand)| {
            from += length;
            (from, demand)
        });
        let plant = Plant { demand: demand.collect(), fixed, lump, per_sample, per_interval: 0.0, interval, noise };
        let course = plant.run(1_800);
        let worst = course.worst_minute();
        prop_assert!(worst <= 1.2, "{worst}");
    }

    #[test]
    fn steady_load_leads_to_steady_periods_near_the_aim(
        demand in 0.1..60.0,
        per_sample in 0.0..1.0,
    ) {
        let plant = Plant { per_sample, ..steady(demand) };
        let course = plant.run(3_600);
        let last: Vec<f64> = course.scales.iter().rev().take(20).map(|it| it.0).collect();
        prop_assert!(last.iter().all(|scale| *scale == last[0]), "{last:?}");
        let ticks = (600 * SECOND / TICK) as usize;
        let late = course.spent[course.spent.len() - ticks..].iter().sum::<f64>();
        let rate = late / (BUDGET * 600e9);
        prop_assert!(rate <= 1.0, "{rate}");
        // Periods are no longer than they need be.
        prop_assert!(last[0] == 1.0 || 0.45 <= rate, "{rate} at {}", last[0]);
    }
}

#[test]
fn storm_ends_an_interval_early_and_periods_come_back() {
    let plant = Plant {
        demand: vec![(0, 0.05), (100, 20.0), (400, 0.05)],
        ..steady(0.0)
    };
    let course = plant.run(1_800);
    assert!(course.worst_minute() <= 1.2, "{}", course.worst_minute());
    let of = |scale: f64| course.scales.iter().filter(move |it| it.0 == scale);
    let early = course.scales.iter().filter(|it| it.1 < 10 * SECOND).count();
    assert!((1..12).contains(&early), "{:?}", course.scales);
    let most = course.scales.iter().map(|it| it.0).fold(1.0, f64::max);
    assert!((20.0..=MOST).contains(&most), "{:?}", course.scales);
    assert_eq!(course.scales.last().unwrap().0, 1.0, "{:?}", course.scales);
    assert!(2 < of(1.0).count());
}

#[test]
fn looks_come_less_often_where_samples_have_nothing_to_spare() {
    let busy = Plant {
        fixed: 1.2,
        ..steady(1.0)
    };
    let minute = (MINUTE / TICK) as usize;
    let spent = busy.run(1_800).spent;
    let last = spent[spent.len() - 10 * minute..].iter().sum::<f64>() / (BUDGET * 600e9);
    assert!((0.4..=1.0).contains(&last), "{last}");
    let seldom = Plant {
        fixed: 0.3,
        ..steady(0.5)
    };
    let spent = seldom.run(1_800).spent;
    let last = spent[spent.len() - 10 * minute..].iter().sum::<f64>() / (BUDGET * 600e9);
    assert!((0.5..=1.0).contains(&last), "{last}");
}

#[test]
fn what_user_space_takes_leaves_samples_their_part() {
    let plant = Plant {
        fixed: 3.0,
        ..steady(1.0)
    };
    let course = plant.run(3_600);
    // An interval has as many samples as one of the requested length in which they take their part.
    let (scale, length) = *course.scales.last().unwrap();
    let samples = length as f64 / MINUTE as f64 / scale;
    assert!(
        (0.9..1.5).contains(&(samples / (SAMPLES * AIM))),
        "{scale}, {length}"
    );
    // Short intervals would cost user space even more.
    let early = course.scales.iter().filter(|it| it.1 < 60 * SECOND).count();
    assert!(early < 4, "{:?}", course.scales);
    let never = Plant {
        fixed: 0.0,
        lump: 0.0,
        ..steady(0.0)
    };
    assert!(never.run(600).scales.iter().all(|it| it.0 == 1.0));
}

/// Looks begin rare and come more often where intervals take little.
#[test]
fn cheap_intervals_make_looks_more_frequent() {
    let at = |minutes: u64| minutes * MINUTE;
    // A seventh of the target, which is 0.7 of 0.006 ns of each ns.
    let spent = |minutes: u64| Spent {
        user: minutes * MINUTE / 10_000 * 6,
        sampling: 0,
    };
    let mut control = Control::new(SHARE, N_CPUS, 0, Spent::default());
    let mut paces = vec![control.pace()];
    for minutes in 1..=8 {
        control.next(at(minutes), spent(minutes));
        paces.push(control.pace());
    }
    assert_eq!(paces[0], SLOWEST);
    assert!(paces.is_sorted_by(|a, b| a >= b) && paces[8] == 1, "{paces:?}");
}

/// What the last ten minutes took, in budgets.
fn last_minutes(course: &Course) -> f64 {
    let ticks = (10 * MINUTE / TICK) as usize;
    course.spent[course.spent.len() - ticks..].iter().sum::<f64>() / (BUDGET * 600e9)
}

#[test]
fn intervals_become_longer_where_each_one_costs_too_much() {
    for interval in [5, 10, 60] {
        // Two budgets, if intervals were as long as asked for.
        let busy = Plant {
            per_interval: 2.0 * interval as f64,
            interval,
            ..steady(0.5)
        };
        let course = busy.run(3_600);
        let last = last_minutes(&course);
        assert!((0.3..=1.0).contains(&last), "{interval} s: {last}");
        let longest = course.scales.iter().map(|it| it.1).max().unwrap() / SECOND;
        assert!(
            (4 * interval..=8 * interval).contains(&longest),
            "{interval} s: {longest}"
        );
    }
}

/// An interval of the length that control asks for, in which user space takes this part of the target.
fn interval_that_takes(control: &mut Control, at: &mut (u64, Spent), part: f64) {
    let length = 10 * SECOND * u64::from(control.lengthening());
    at.0 += length;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number"
    )]
    let user = (part * AIM * BUDGET * length as f64) as u64;
    at.1.user += user;
    control.next(at.0, at.1);
}

#[test]
fn intervals_have_their_length_again_when_they_cost_little() {
    let mut control = Control::new(SHARE, N_CPUS, 0, Spent::default());
    let mut at = (0, Spent::default());
    let mut take = |part: f64, times: usize| {
        let mut lengthenings = Vec::new();
        for _ in 0..times {
            interval_that_takes(&mut control, &mut at, part);
            lengthenings.push((control.lengthening(), control.pace()));
        }
        lengthenings
    };
    let longer = take(1.5, 10);
    // One interval shows what the one before it costs.
    assert_eq!(
        longer.iter().map(|it| it.0).collect::<Vec<_>>(),
        [1, 2, 2, 4, 4, 8, 8, 16, 16, 16]
    );
    // Between both nothing changes.
    assert!(take(0.7, 4).iter().all(|it| it.0 == LONGEST));
    let shorter = take(0.1, 12);
    assert!(shorter.is_sorted_by(|a, b| b.0 <= a.0), "{shorter:?}");
    assert_eq!(shorter.last().unwrap().0, 1, "{shorter:?}");
    // Looks become more frequent when intervals are short again, not before.
    assert!(
        shorter
            .iter()
            .all(|(lengthening, pace)| *lengthening == 1 || *pace == SLOWEST),
        "{shorter:?}"
    );
}

#[test]
fn short_lump_does_not_make_intervals_longer() {
    let mut control = Control::new(SHARE, N_CPUS, 0, Spent::default());
    let mut at = (0, Spent::default());
    // The minute remembers the first interval, which alone was above the budget.
    for part in [3.0, 0.8, 0.8, 0.8] {
        interval_that_takes(&mut control, &mut at, part);
    }
    assert_eq!(control.lengthening(), 1);
}

#[test]
fn intervals_become_longer_where_periods_are_longest() {
    // The least part of samples would need periods twice as long as the longest.
    let busy = Plant {
        per_interval: 10.0,
        interval: 5,
        ..steady(2.0 * MOST * SAMPLES * AIM)
    };
    let course = busy.run(1_800);
    assert_eq!(course.scales.last().unwrap().0.to_bits(), MOST.to_bits());
    let longest = course.scales.iter().map(|it| it.1).max().unwrap() / SECOND;
    assert!(10 <= longest, "{longest}");
}

/// Names and text of samples cost more than taking them: longer intervals alone would not help.
#[test]
fn longer_intervals_have_as_many_samples_as_before() {
    for interval in [5, 10, 60] {
        let busy = Plant {
            fixed: 0.3,
            per_sample: 5.0,
            interval,
            ..steady(2.0)
        };
        let course = busy.run(14_400);
        let last = last_minutes(&course);
        assert!((0.3..=1.0).contains(&last), "{interval} s: {last}");
        // Samples of an interval, as the time in which the same number comes at the first period.
        let n_samples = |(scale, length): &(f64, u64)| *length as f64 / scale;
        let least = SAMPLES * AIM / 2.0 * (interval * SECOND) as f64;
        let whole = course.scales.iter().filter(|it| interval * SECOND <= it.1);
        let fewest = whole.map(n_samples).fold(f64::INFINITY, f64::min);
        assert!(0.4 * least <= fewest, "{interval} s: {fewest} of {least}");
    }
}
