//! The facts of successive profiles: whether they belong to one measurement, and their sums.

use crate::snapshot::run::{Counter, CpuBudget, Event, Period, Run, RunTime};
use crate::snapshot::{ClassCount, Interval, Snapshot};

/// How far the wall clock may have been adjusted between two profiles: more than NTP corrects in an hour (500 ppm), less
/// than a reboot takes.
const MOST_ADJUSTED: u64 = 4_000_000_000;

pub(super) fn are_of_one_measurement(earlier: &Snapshot, later: &Snapshot) -> bool {
    let (Some(last), Some(first)) = (earlier.intervals.last(), later.intervals.first()) else {
        return false;
    };
    let (a, b) = (&earlier.run, &later.run);
    last.end <= first.start
        && same_machine(a) == same_machine(b)
        && (&a.scope, &a.kernel_text) == (&b.scope, &b.kernel_text)
        && a.events.len() == b.events.len()
        && a.events.iter().map(uncounted).eq(b.events.iter().map(uncounted))
        && booted(earlier).abs_diff(booted(later)) <= MOST_ADJUSTED
}

/// Whether a profile is of the time of another one, on the same machine between one boot and the next.
pub(super) fn is_of_the_time_of(part: &Snapshot, whole: &Snapshot) -> bool {
    let (Some(first), Some(last)) = (part.intervals.first(), part.intervals.last()) else {
        return false;
    };
    let (Some(begin), Some(end)) = (whole.intervals.first(), whole.intervals.last()) else {
        return false;
    };
    begin.start <= first.start
        && last.end <= end.end
        && same_machine(&part.run) == same_machine(&whole.run)
        && booted(part).abs_diff(booted(whole)) <= MOST_ADJUSTED
}

fn same_machine(run: &Run) -> [&[u8]; 5] {
    [
        run.tool_version.as_bytes(),
        run.host.name.as_bytes(),
        run.host.cpu_model.as_bytes(),
        run.host.kernel_release.as_bytes(),
        &run.host.kernel_build_id,
    ]
}

/// An event without what it counted, and without its period: a budget adapts that.
fn uncounted(event: &Event) -> Event {
    Event {
        runs: 0,
        counters: Vec::new(),
        period: match event.period {
            Period::Fixed(_) | Period::Between(..) => Period::default(),
            Period::Frequency(hertz) => Period::Frequency(hertz),
        },
        ..event.clone()
    }
}

/// When the machine was booted, in ns since 1970.
pub(super) fn booted(snapshot: &Snapshot) -> u64 {
    let monotonic = snapshot
        .intervals
        .first()
        .map_or(0, |first: &Interval| first.start);
    snapshot.run.started.saturating_sub(monotonic)
}

/// Adds the facts of the next profile: times and counts are sums; of CPUs and memory the most.
pub(super) fn add(run: &mut Run, next: Run) {
    run.duration = run.duration.saturating_add(next.duration);
    run.host.n_cpus = run.host.n_cpus.max(next.host.n_cpus);
    run.overhead.cpu = run.overhead.cpu.saturating_add(next.overhead.cpu);
    run.overhead.memory = run.overhead.memory.max(next.overhead.memory);
    run.overhead.sampling = run.overhead.sampling.saturating_add(next.overhead.sampling);
    run.overhead.budget = run
        .overhead
        .budget
        .zip(next.overhead.budget)
        .map(|(budget, next)| larger_budget(budget, next));
    for note in next.notes {
        if !run.notes.contains(&note) {
            run.notes.push(note);
        }
    }
    for (note, time) in next.unmeasured {
        let sum = run.unmeasured.entry(note).or_default();
        *sum = sum.saturating_add(time);
    }
    for next in next.classes {
        let same =
            |it: &&mut ClassCount| (it.class, it.ring, &it.event) == (next.class, next.ring, &next.event);
        match run.classes.iter_mut().find(same) {
            Some(sum) => sum.append(&next),
            None => run.classes.push(next),
        }
    }
    for (event, mut next) in run.events.iter_mut().zip(next.events) {
        event.runs = event.runs.saturating_add(next.runs);
        let period = both_periods(event.period, next.period);
        if period != event.period || period != next.period {
            count_due(event);
            count_due(&mut next);
        }
        event.period = period;
        for counter in next.counters {
            let same = |it: &&mut Counter| it.cpu.is_some() && it.cpu == counter.cpu;
            match event.counters.iter_mut().find(same) {
                Some(sum) => *sum = both(sum, &counter, period),
                None => event.counters.push(counter),
            }
        }
    }
}

fn larger_budget(a: CpuBudget, b: CpuBudget) -> CpuBudget {
    CpuBudget {
        share: a.share.max(b.share),
        programs: if a.programs == b.programs {
            a.programs
        } else {
            RunTime::Estimated
        },
    }
}

/// The period of both: one that is the same, or the range of all.
fn both_periods(a: Period, b: Period) -> Period {
    let range = |period| match period {
        Period::Fixed(period) => Some((period, period)),
        Period::Between(shortest, longest) => Some((shortest, longest)),
        Period::Frequency(_) => None,
    };
    match (range(a), range(b)) {
        (Some(a), Some(b)) => {
            let (shortest, longest) = (a.0.min(b.0), a.1.max(b.1));
            if shortest == longest {
                Period::Fixed(shortest)
            } else {
                Period::Between(shortest, longest)
            }
        }
        _ => a,
    }
}

/// Settles the samples that were due while the period is known.
fn count_due(event: &mut Event) {
    if let Period::Fixed(period) = event.period {
        for counter in &mut event.counters {
            counter.due = Some(counter.due_at(period));
        }
    }
}

/// What a counter counted in two profiles. The samples that were due are rounded down for each profile, as there.
fn both(a: &Counter, b: &Counter, period: Period) -> Counter {
    let known = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
    Counter {
        cpu: a.cpu,
        count: a.count.saturating_add(b.count),
        enabled: a.enabled.saturating_add(b.enabled),
        running: a.running.saturating_add(b.running),
        runs: known(a.runs, b.runs),
        idle: known(a.idle, b.idle),
        steal: known(a.steal, b.steal),
        guest: known(a.guest, b.guest),
        due: match period {
            Period::Fixed(period) => Some(a.due_at(period).saturating_add(b.due_at(period))),
            Period::Frequency(_) | Period::Between(..) => known(a.due, b.due),
        },
    }
}
