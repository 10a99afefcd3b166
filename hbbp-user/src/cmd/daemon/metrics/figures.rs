//! The figures of all intervals: the mix, samples, losses, and what the daemon itself takes.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter as Sum;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit as Quantity};

use hbbp_analysis::mix::{Dimension, Mix};
use hbbp_estimate::Unit;
use hbbp_model::snapshot::{Event, EventUnit, Loss, Snapshot};

/// Nanoseconds of a second.
const S: f64 = 1e9;

/// A sum of fractions.
pub(super) type Amount = Sum<f64, AtomicU64>;
/// A figure that goes up and down.
pub(super) type Level = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    mix: Family<MixLabels, Amount>,
    received: Family<EventLabels, Sum>,
    due: Family<EventLabels, Sum>,
    completeness: Family<EventLabels, Level>,
    losses: Family<LossLabels, Sum>,
    time: Family<TimeLabels, Amount>,
    period: Family<EventLabels, Level>,
    measured: Amount,
    /// The part of it that the mix leaves out.
    left_out: Amount,
    build: Family<BuildLabels, Level>,
    own: Own,
    interval: Interval,
}

/// The intervals of the daemon.
#[derive(Clone, Debug, Default)]
struct Interval {
    wanted: Level,
    last_length: Level,
    last_start: Level,
    /// End of the last one that the mix holds.
    last_estimated: Level,
}

/// What the daemon itself takes, and may take.
#[derive(Clone, Debug, Default)]
struct Own {
    cpu: Amount,
    sampling: Amount,
    memory: Level,
    budget: Level,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct MixLabels {
    unit: &'static str,
    ring: String,
    category: String,
    extension: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct TimeLabels {
    ring: String,
    category: String,
    extension: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct EventLabels {
    event: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct BuildLabels {
    version: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct LossLabels {
    loss: &'static str,
}

/// The dimensions of the mix; their values are names of fixed tables.
pub(super) const MIX: [Dimension; 3] = [Dimension::Ring, Dimension::Category, Dimension::Extension];

/// The unit of a share, in the singular as Prometheus has it (best practices, "Metric and label naming").
fn ratio() -> Quantity {
    Quantity::Other("ratio".to_owned())
}

impl Figures {
    /// The figures of a daemon that has measured nothing yet: the counters of losses exist from the start.
    pub(super) fn new(registry: &mut Registry, interval: Duration) -> Self {
        let figures = Self::default();
        figures.interval.wanted.set(interval.as_secs_f64());
        let version = env!("CARGO_PKG_VERSION");
        figures.build.get_or_create(&BuildLabels { version }).set(1.0);
        for loss in Loss::ALL {
            let _ = figures.losses.get_or_create(&LossLabels { loss: loss.id() });
        }
        figures.register(registry);
        figures
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "build_info",
            "The version of hbbp-sys that measures; always 1",
            self.build.clone(),
        );
        registry.register(
            "mix",
            "Estimated amounts by ring, category and extension; the unit says whether these are executions",
            self.mix.clone(),
        );
        registry.register_with_unit(
            "mix_time",
            "Estimated CPU time by ring, category and extension, where a clock is sampled: whatever its periods were",
            Quantity::Seconds,
            self.time.clone(),
        );
        registry.register(
            "period",
            "Sampling period of the last interval, in units of the event",
            self.period.clone(),
        );
        registry.register("samples", "Samples that were received", self.received.clone());
        registry.register(
            "samples_due",
            "Samples that were expected: counter values divided by the period",
            self.due.clone(),
        );
        registry.register_with_unit(
            "completeness",
            "Received over expected samples in the last interval",
            ratio(),
            self.completeness.clone(),
        );
        registry.register(
            "losses",
            "What was lost or refused before it could be counted, by cause",
            self.losses.clone(),
        );
        self.register_own(registry);
    }

    /// What is said of the daemon itself, and of its intervals.
    fn register_own(&self, registry: &mut Registry) {
        let seconds = |registry: &mut Registry, name: &str, help: &str, amount: &Amount| {
            registry.register_with_unit(name, help, Quantity::Seconds, amount.clone());
        };
        seconds(registry, "measured", "Time that was measured", &self.measured);
        seconds(
            registry,
            "mix_left_out",
            "Measured time that mix, mix_time and cgroup_mix leave out, as estimating it would take more than a tenth of the CPU budget",
            &self.left_out,
        );
        seconds(
            registry,
            "own_cpu",
            "CPU time of the daemon and its workers",
            &self.own.cpu,
        );
        seconds(
            registry,
            "own_sampling",
            "CPU time of the samples, programs in the kernel and interrupts, where there is a budget",
            &self.own.sampling,
        );
        registry.register_with_unit(
            "cpu_budget",
            "Share of the time of all CPUs that own_cpu and own_sampling may take; 0 where there is no budget",
            ratio(),
            self.own.budget.clone(),
        );
        registry.register_with_unit(
            "own_memory",
            "Peak resident memory of the daemon",
            Quantity::Bytes,
            self.own.memory.clone(),
        );
        registry.register_with_unit(
            "interval",
            "Length of an interval that was asked for",
            Quantity::Seconds,
            self.interval.wanted.clone(),
        );
        registry.register_with_unit(
            "last_interval",
            "Length of the last interval: longer than asked for where the CPU budget needs it",
            Quantity::Seconds,
            self.interval.last_length.clone(),
        );
        registry.register_with_unit(
            "last_interval_start_time",
            "Start of the last interval since 1970",
            Quantity::Seconds,
            self.interval.last_start.clone(),
        );
        registry.register_with_unit(
            "mix_end_time",
            "End of the last interval that mix, mix_time and cgroup_mix hold, since 1970: they are estimated once a minute at most",
            Quantity::Seconds,
            self.interval.last_estimated.clone(),
        );
    }

    /// Adds the mix of a profile by [`MIX`].
    pub(super) fn add_mix(&self, snapshot: &Snapshot, mix: &Mix) {
        let unit = mix.unit.id();
        let clock_period = clock_period(&snapshot.run.events, mix.unit);
        for row in &mix.rows {
            if let [ring, category, extension] = row.key.as_slice() {
                let labels = MixLabels {
                    unit,
                    ring: ring.clone(),
                    category: category.clone(),
                    extension: extension.clone(),
                };
                self.mix.get_or_create(&labels).inc_by(row.total.amount);
                if let Some(period) = clock_period {
                    let labels = TimeLabels {
                        ring: ring.clone(),
                        category: category.clone(),
                        extension: extension.clone(),
                    };
                    let time = row.total.amount * period as f64 / S;
                    self.time.get_or_create(&labels).inc_by(time);
                }
            }
        }
        let ends = (snapshot.intervals.first(), snapshot.intervals.last());
        if let (Some(first), Some(last)) = ends {
            let lasted = last.end.saturating_sub(first.start);
            let end = snapshot.run.started.saturating_add(lasted);
            self.interval.last_estimated.set(end as f64 / S);
        }
    }

    /// Adds measured time that the mix leaves out.
    pub(super) fn leave_out(&self, measured: Duration) {
        self.left_out.inc_by(measured.as_secs_f64());
    }

    /// Adds what was counted in an interval.
    pub(super) fn count(&self, snapshot: &Snapshot) {
        snapshot.run.events.iter().for_each(|event| self.add_event(event));
        for loss in Loss::ALL {
            let lost = self.losses.get_or_create(&LossLabels { loss: loss.id() });
            lost.inc_by(snapshot.losses.get(*loss));
        }
        let run = &snapshot.run;
        self.measured.inc_by(run.duration as f64 / S);
        self.own.cpu.inc_by(run.overhead.cpu as f64 / S);
        self.own.sampling.inc_by(run.overhead.sampling as f64 / S);
        self.own.budget.set(
            run.overhead
                .budget
                .map_or(0.0, |budget| f64::from(budget.share) / 1e6),
        );
        self.own.memory.set(run.overhead.memory as f64);
        self.interval.last_length.set(run.duration as f64 / S);
        self.interval.last_start.set(run.started as f64 / S);
    }

    fn add_event(&self, event: &Event) {
        let labels = EventLabels {
            event: event.name.clone(),
        };
        self.received.get_or_create(&labels).inc_by(event.runs);
        if let Some(period) = event.mean_period() {
            self.period.get_or_create(&labels).set(period as f64);
        }
        if let Some(due) = event.due() {
            self.due.get_or_create(&labels).inc_by(due);
            let share = if due == 0 {
                1.0
            } else {
                event.runs as f64 / due as f64
            };
            self.completeness.get_or_create(&labels).set(share);
        }
    }
}

/// The period of the clock whose samples are the amounts, if there is one.
fn clock_period(events: &[Event], unit: Unit) -> Option<u64> {
    match events {
        [event] if unit == Unit::TimeWeightedSamples && event.unit == EventUnit::Nanoseconds => {
            event.mean_period()
        }
        _ => None,
    }
}
