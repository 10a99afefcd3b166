//! Completeness: the share of the expected samples that were received, by event and by CPU.
//!
//! The kernel silently skips a perf program while another one runs on that CPU. Only the counter shows this: its value
//! divided by the period is the number of expected samples.
//!
//! The timer of a clock event stops while its CPU sleeps. Such samples are expected by the counter value, but do not
//! affect completeness, so they are counted separately.

use crate::snapshot::run::Counter;
use crate::snapshot::{Event, EventUnit, Period};

/// With fewer expected samples the rate of a CPU is too coarse: one missing sample is a tenth of a percent or more.
const FEWEST_DUE: u64 = 1_000;

/// A CPU and the share of its expected samples that were received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OnCpu {
    pub(super) cpu: u32,
    pub(super) share: f64,
}

/// Share of the expected samples of an event that were received, without those of idle CPUs; `None` if none were
/// expected or the kernel chose the period.
/// It can exceed 1 by a few samples, because counters and samples are not read at the same instant.
pub(super) fn overall(event: &Event) -> Option<f64> {
    share(event.runs, event.due()?.saturating_sub(idle(event)))
}

/// Expected samples of an event that were not taken because their CPU was idle.
pub(super) fn idle(event: &Event) -> u64 {
    let missing = event.due().map_or(0, |due| due.saturating_sub(event.runs));
    let on_cpus = event.counters.iter().map(|counter| idle_on(event, counter));
    on_cpus.fold(0, u64::saturating_add).min(missing)
}

/// As [`idle`], on the CPU of one counter: as many samples as fit into its idle time, and no more than are missing.
fn idle_on(event: &Event, counter: &Counter) -> u64 {
    match (event.unit, event.period, counter.idle) {
        (EventUnit::Nanoseconds, Period::Fixed(period), Some(idle)) => {
            let period = period.max(1);
            let missing = counter.due_at(period).saturating_sub(counter.runs.unwrap_or(0));
            missing.min(idle / period)
        }
        _ => 0,
    }
}

/// The CPU of an event with the lowest share, among those with enough samples.
pub(super) fn worst_cpu(event: &Event) -> Option<OnCpu> {
    let Period::Fixed(period) = event.period else {
        return None;
    };
    let on_cpu = |counter: &Counter| {
        let due = counter.due_at(period).saturating_sub(idle_on(event, counter));
        let share = share(counter.runs?, due).filter(|_| FEWEST_DUE <= due)?;
        Some(OnCpu {
            cpu: counter.cpu?,
            share,
        })
    };
    event
        .counters
        .iter()
        .filter_map(on_cpu)
        .min_by(|a, b| a.share.total_cmp(&b.share))
}

/// Share of the enabled time in which the event counted; below 1 it was multiplexed.
pub(super) fn time_counted(event: &Event) -> f64 {
    let sum = |time: fn(&Counter) -> u64| event.counters.iter().map(|c| u128::from(time(c))).sum::<u128>();
    let (running, enabled) = (sum(|c| c.running), sum(|c| c.enabled));
    if enabled == 0 {
        1.0
    } else {
        running as f64 / enabled as f64
    }
}

/// Whether its counters follow tasks. Each task then begins its own period, and its unfinished last period adds to the
/// counter value without a sample.
pub(super) fn follows_tasks(event: &Event) -> bool {
    event.counters.iter().any(|counter| counter.cpu.is_none())
}

/// `part / whole`, or `None` if the whole is 0.
pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    if whole == 0 {
        None
    } else {
        Some(part as f64 / whole as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(cpu: u32, count: u64, runs: u64) -> Counter {
        Counter {
            cpu: Some(cpu),
            count,
            runs: Some(runs),
            enabled: 10,
            running: 5,
            idle: None,
            due: None,
        }
    }

    fn event(counters: Vec<Counter>) -> Event {
        let runs = counters.iter().filter_map(|c| c.runs).sum();
        Event {
            period: Period::Fixed(10),
            runs,
            counters,
            ..Event::default()
        }
    }

    #[test]
    fn worst_cpu_needs_enough_samples() {
        let event = event(vec![
            counter(0, 10_000, 999),
            counter(1, 10_009, 951),
            counter(2, 90, 0),
        ]);
        assert_eq!(worst_cpu(&event), Some(OnCpu { cpu: 1, share: 0.951 }));
        assert_eq!(overall(&event), Some(1_950.0 / 2_009.0));
        assert!((time_counted(&event) - 0.5).abs() < 1e-12);
        let event = Event {
            period: Period::Frequency(99),
            ..event
        };
        assert_eq!((overall(&event), worst_cpu(&event)), (None, None));
        assert_eq!(overall(&Event::default()), None);
    }

    #[test]
    fn idle_time_is_not_missing() {
        let asleep = Counter {
            idle: Some(8_000),
            ..counter(0, 20_000, 1_200)
        };
        // More idle time than samples are missing: the timer of this CPU went on.
        let awake = Counter {
            idle: Some(15_000),
            ..counter(1, 20_000, 1_990)
        };
        let mut event = event(vec![asleep, awake]);
        assert_eq!((idle(&event), overall(&event)), (810, Some(1.0)));
        event.unit = EventUnit::Cycles;
        assert_eq!((idle(&event), overall(&event)), (0, Some(3_190.0 / 4_000.0)));
    }
}
