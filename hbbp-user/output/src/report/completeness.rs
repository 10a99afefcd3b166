//! Completeness: the share of the expected samples that were received, by event and by CPU.
//!
//! The kernel silently skips a perf program while another one runs on that CPU, and the timer of a clock fires late.
//! Only the counter shows this: its value divided by the period is the number of expected samples.
//! Of most missing samples the cause is unknown. Of the timers of clock events two causes can be measured: time that the
//! hypervisor took from a CPU (steal time), and idle time of CPUs that shows in no sample. Both are upper limits: a timer
//! that fires late by less than a period loses nothing.

use hbbp_model::snapshot::run::Counter;
use hbbp_model::snapshot::{Event, EventUnit};

/// With fewer expected samples the rate of a CPU is too coarse: one missing sample is a tenth of a percent or more.
const FEWEST_DUE: u64 = 1_000;

/// A CPU and the share of its expected samples that were received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OnCpu {
    pub(super) cpu: u32,
    pub(super) share: f64,
}

/// Expected samples of an event that were not received, by cause: their sum is what was expected less what was received.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Missing {
    /// Limited by the time that the hypervisor took from their CPU.
    pub(super) stolen: u64,
    /// Limited by the idle time of their CPU, where idle CPUs had fewer samples than periods.
    pub(super) idle: u64,
    /// Those without a known cause.
    pub(super) unknown: u64,
    /// Whether some of these may belong to tasks that ended before their period was over.
    pub(super) of_tasks: bool,
}

/// What is missing on the CPU of one counter, and as many periods of it as could have a known cause.
#[derive(Clone, Copy, Debug, Default)]
struct OnCounter {
    stolen: u64,
    idle: u64,
}

impl Missing {
    /// The samples of `event` that are missing. `of_idle` are samples that idle CPUs may have had: those in halted code, and
    /// kernel samples without an instruction.
    pub(super) fn new(event: &Event, of_idle: u64) -> Self {
        let missing = event.due().map_or(0, |due| due.saturating_sub(event.runs));
        let on_counters = || event.counters.iter().map(|counter| on_counter(event, counter));
        let sum = |of: fn(OnCounter) -> u64| on_counters().map(of).fold(0, u64::saturating_add);
        let periods = clock_period(event).map_or(0, |period| {
            let idle = event.counters.iter().filter_map(|counter| counter.idle);
            idle.fold(0, |sum: u64, idle| sum.saturating_add(idle / period))
        });
        let stolen = sum(|on| on.stolen).min(missing);
        let idle = sum(|on| on.idle)
            .min(periods.saturating_sub(of_idle))
            .min(missing - stolen);
        Self {
            stolen,
            idle,
            unknown: missing - stolen - idle,
            of_tasks: follows_tasks(event),
        }
    }
}

/// The period of a clock, in ns. Other events do not count while a CPU is idle or the hypervisor has it.
fn clock_period(event: &Event) -> Option<u64> {
    event
        .mean_period()
        .filter(|_| event.unit == EventUnit::Nanoseconds)
}

fn on_counter(event: &Event, counter: &Counter) -> OnCounter {
    let Some((period, runs)) = clock_period(event).zip(counter.runs) else {
        return OnCounter::default();
    };
    let missing = counter.due_at(period).saturating_sub(runs);
    let periods = |time: Option<u64>| time.map_or(0, |time| time / period);
    let stolen = periods(counter.steal).min(missing);
    OnCounter {
        stolen,
        idle: periods(counter.idle).min(missing - stolen),
    }
}

/// Share of the expected samples of an event that were received while CPUs were busy; `None` if none were expected or the
/// kernel chose the period.
/// It can exceed 1 by a few samples, because counters and samples are not read at the same instant.
pub(super) fn while_busy(event: &Event, missing: Missing) -> Option<f64> {
    share(event.runs, event.due()?.saturating_sub(missing.idle))
}

/// As [`while_busy`], of all expected samples, those of idle CPUs included.
pub(super) fn with_idle(event: &Event) -> Option<f64> {
    share(event.runs, event.due()?)
}

/// The CPU whose samples of the event are the least complete while it was busy; CPUs with too few samples are left out.
pub(super) fn worst_cpu(event: &Event, missing: Missing) -> Option<OnCpu> {
    let period = event.mean_period()?;
    let could_be_idle = event
        .counters
        .iter()
        .map(|counter| on_counter(event, counter).idle);
    let could_be_idle = could_be_idle.fold(0, u64::saturating_add);
    let on_cpu = |counter: &Counter| {
        // Which CPU was idle without samples is not known: each has its part of them.
        let idle = u128::from(on_counter(event, counter).idle) * u128::from(missing.idle);
        let idle = u64::try_from(idle / u128::from(could_be_idle.max(1))).unwrap_or(0);
        let due = counter.due_at(period).saturating_sub(idle);
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
    use hbbp_model::snapshot::Period;

    fn counter(cpu: u32, count: u64, runs: u64) -> Counter {
        Counter {
            cpu: Some(cpu),
            count,
            runs: Some(runs),
            enabled: 10,
            running: 5,
            ..Counter::default()
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
        let none = Missing::default();
        assert_eq!(worst_cpu(&event, none), Some(OnCpu { cpu: 1, share: 0.951 }));
        assert_eq!(while_busy(&event, none), Some(1_950.0 / 2_009.0));
        assert!((time_counted(&event) - 0.5).abs() < 1e-12);
        let event = Event {
            period: Period::Frequency(99),
            ..event
        };
        assert_eq!((while_busy(&event, none), worst_cpu(&event, none)), (None, None));
        assert_eq!(while_busy(&Event::default(), none), None);
    }

    /// Two CPUs at a period of 10: one was idle for 800 periods, the other one for 1500 of 2000.
    fn half_idle() -> Event {
        let asleep = Counter {
            idle: Some(8_000),
            ..counter(0, 20_000, 1_200)
        };
        let awake = Counter {
            idle: Some(15_000),
            ..counter(1, 20_000, 1_990)
        };
        event(vec![asleep, awake])
    }

    #[test]
    fn idle_cpus_without_samples_are_not_missing() {
        let mut event = half_idle();
        // 1490 samples of halted code in 2300 periods of idle time.
        let missing = Missing::new(&event, 1_490);
        let expected = Missing {
            idle: 810,
            ..Missing::default()
        };
        assert_eq!(missing, expected);
        assert_eq!(while_busy(&event, missing), Some(1.0));
        assert_eq!(with_idle(&event), Some(3_190.0 / 4_000.0));
        event.unit = EventUnit::Cycles;
        let missing = Missing::new(&event, 1_490);
        assert_eq!((missing.idle, missing.unknown), (0, 810));
    }

    #[test]
    fn idle_cpus_that_were_sampled_explain_nothing() {
        // As many samples of halted code as periods of idle time: what is missing was busy.
        let event = half_idle();
        let missing = Missing::new(&event, 2_300);
        assert_eq!((missing.idle, missing.unknown), (0, 810));
        assert_eq!(while_busy(&event, missing), Some(3_190.0 / 4_000.0));
        let worst = worst_cpu(&event, missing).unwrap();
        assert_eq!((worst.cpu, worst.share), (0, 0.6));
        // A part of them: 210 periods without a sample.
        let missing = Missing::new(&event, 2_090);
        assert_eq!((missing.idle, missing.unknown), (210, 600));
    }

    #[test]
    fn what_was_stolen_was_not_idle_as_well() {
        let mut event = half_idle();
        event.counters[0].steal = Some(3_000);
        event.counters[1].idle = None;
        // 800 are missing on CPU 0, where either time alone explains more than is left of the other.
        let expected = Missing {
            stolen: 300,
            idle: 500,
            unknown: 10,
            of_tasks: false,
        };
        assert_eq!(Missing::new(&event, 0), expected);
    }

    #[test]
    fn stolen_time_explains_what_fits_into_it_on_its_cpu() {
        let mut event = half_idle();
        event.counters[0].steal = Some(3_000);
        event.counters[1].steal = Some(9_000);
        let missing = Missing::new(&event, 2_300);
        // 300 periods of CPU 0, and the 10 that are missing on CPU 1.
        let expected = Missing {
            stolen: 310,
            idle: 0,
            unknown: 500,
            of_tasks: false,
        };
        assert_eq!(missing, expected);
        assert_eq!(while_busy(&event, missing), Some(3_190.0 / 4_000.0));
    }
}
