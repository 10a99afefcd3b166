//! The metrics of a daemon: sums over all intervals since it was started, as text of OpenMetrics or of Prometheus.
//!
//! Labels come from fixed tables (rings, categories, extensions, losses) and from the events of the run, so that their number
//! is bounded, and none is chosen by another user.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter as Sum};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit as Quantity};

use super::counters::{Counter, Counters};
use crate::estimate::{Rule, Unit};
use crate::mix::{Dimension, Estimated, Mix, Query};
use crate::snapshot::{Event, EventUnit, Loss, Snapshot, SourceLocations};

/// A sum of fractions.
type Amount = Sum<f64, AtomicU64>;
/// A figure that goes up and down.
type Level = Gauge<f64, AtomicU64>;

/// Intervals without a new one after which a daemon is not well.
const LATE: u32 = 3;

/// The form of the text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus 0.0.4, where a counter has the name of its samples.
    Prometheus,
}

/// The metrics, and when they were last updated.
#[derive(Debug)]
pub(super) struct Metrics {
    rule: Rule,
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    registry: Registry,
    figures: Figures,
    updated: Instant,
}

#[derive(Clone, Debug, Default)]
struct Figures {
    mix: Family<MixLabels, Amount>,
    received: Family<EventLabels, Sum>,
    due: Family<EventLabels, Sum>,
    completeness: Family<EventLabels, Level>,
    losses: Family<LossLabels, Sum>,
    time: Family<TimeLabels, Amount>,
    period: Family<EventLabels, Level>,
    measured: Amount,
    own_cpu: Amount,
    own_sampling: Amount,
    own_memory: Level,
    budget: Level,
    interval: Level,
    last_start: Level,
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
struct LossLabels {
    loss: &'static str,
}

/// The dimensions of the mix; their values are names of fixed tables.
const MIX: [Dimension; 3] = [Dimension::Ring, Dimension::Category, Dimension::Extension];

impl Metrics {
    pub(super) fn new(rule: Rule, interval: Duration, counters: Arc<Counters>) -> Self {
        let figures = Figures::default();
        figures.interval.set(interval.as_secs_f64());
        for loss in Loss::ALL {
            let _ = figures.losses.get_or_create(&LossLabels { loss: loss.id() });
        }
        let mut registry = Registry::with_prefix("hbbp");
        figures.register(&mut registry);
        registry.register_collector(Box::new(Happened(counters)));
        Self {
            rule,
            interval,
            state: Mutex::new(State {
                registry,
                figures,
                updated: Instant::now(),
            }),
        }
    }

    /// Adds an interval; a scrape sees all of it or nothing.
    pub(super) fn add(&self, snapshot: &Snapshot) {
        let query = Query {
            columns: Vec::new(),
            ..Query::by(MIX)
        };
        let mix = Estimated::new(snapshot, &self.rule).mix(&query, &SourceLocations::new());
        let mut state = self.state();
        state.figures.add(snapshot, &mix);
        state.updated = Instant::now();
    }

    /// The text of all metrics.
    pub(super) fn text(&self, form: Form) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.state().registry)?;
        Ok(match form {
            Form::OpenMetrics => text,
            Form::Prometheus => prometheus_text(&text),
        })
    }

    /// What is wrong, if something is.
    pub(super) fn complaint(&self) -> Option<String> {
        let since = self.state().updated.elapsed();
        (LATE * self.interval < since).then(|| format!("no interval for {} s", since.as_secs()))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Figures {
    fn register(&self, registry: &mut Registry) {
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
            Quantity::Ratios,
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
        seconds(registry, "own_cpu", "CPU time of the daemon", &self.own_cpu);
        seconds(
            registry,
            "own_sampling",
            "CPU time of the samples, programs in the kernel and interrupts, where there is a budget",
            &self.own_sampling,
        );
        registry.register_with_unit(
            "cpu_budget",
            "Share of the time of all CPUs that own_cpu and own_sampling may take; 0 where there is no budget",
            Quantity::Ratios,
            self.budget.clone(),
        );
        registry.register_with_unit(
            "own_memory",
            "Peak resident memory of the daemon",
            Quantity::Bytes,
            self.own_memory.clone(),
        );
        registry.register_with_unit(
            "interval",
            "Length of an interval",
            Quantity::Seconds,
            self.interval.clone(),
        );
        registry.register_with_unit(
            "last_interval_start_time",
            "Start of the last interval since 1970",
            Quantity::Seconds,
            self.last_start.clone(),
        );
    }

    fn add(&self, snapshot: &Snapshot, mix: &Mix) {
        const S: f64 = 1e9;
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
        snapshot.run.events.iter().for_each(|event| self.add_event(event));
        for loss in Loss::ALL {
            let lost = self.losses.get_or_create(&LossLabels { loss: loss.id() });
            lost.inc_by(snapshot.losses.get(*loss));
        }
        let run = &snapshot.run;
        self.measured.inc_by(run.duration as f64 / S);
        self.own_cpu.inc_by(run.own_cpu as f64 / S);
        self.own_sampling.inc_by(run.own_sampling as f64 / S);
        self.budget
            .set(run.budget.map_or(0.0, |budget| f64::from(budget.share) / 1e6));
        self.own_memory.set(run.own_memory as f64);
        self.last_start.set(run.started as f64 / S);
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

/// The counters of the daemon.
#[derive(Debug)]
struct Happened(Arc<Counters>);

impl Collector for Happened {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for counter in Counter::ALL {
            let count = ConstCounter::new(self.0.get(*counter));
            let name = format!("daemon_{}", counter.id());
            let descriptor = encoder.encode_descriptor(&name, counter.help(), None, count.metric_type())?;
            count.encode(descriptor)?;
        }
        Ok(())
    }
}

/// The text of OpenMetrics as Prometheus had it before: the lines on a counter name its samples (`.._total`), and there are
/// no units and no end.
fn prometheus_text(text: &str) -> String {
    let is_counter = |name: &str| {
        let kind = format!("# TYPE {name} counter");
        text.lines().any(|line| line == kind)
    };
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let line = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("UNIT" | "EOF"), ..) => continue,
            (Some("#"), Some(what), Some(name), Some(said)) if is_counter(name) => {
                format!("# {what} {name}_total {said}\n")
            }
            _ => format!("{line}\n"),
        };
        lines.push_str(&line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        let counters = Arc::new(Counters::default());
        counters.add(Counter::Restarts, 3);
        let rule = crate::cmd::rule::read("balanced").unwrap();
        Metrics::new(rule, Duration::from_secs(60), counters)
    }

    #[test]
    fn every_loss_and_counter_is_there_from_the_start() {
        let text = metrics().text(Form::OpenMetrics).unwrap();
        for loss in Loss::ALL {
            let line = format!("hbbp_losses_total{{loss=\"{}\"}} 0", loss.id());
            assert!(text.lines().any(|it| it == line), "no {line} in {text}");
        }
        for counter in Counter::ALL {
            let n = if *counter == Counter::Restarts { 3 } else { 0 };
            let line = format!("hbbp_daemon_{}_total {n}", counter.id());
            assert!(text.lines().any(|it| it == line), "no {line} in {text}");
        }
        assert!(
            text.contains("hbbp_interval_seconds 60.0") && text.ends_with("# EOF\n"),
            "{text}"
        );
    }

    #[test]
    fn prometheus_text_names_counters_as_their_samples() {
        let text = metrics().text(Form::Prometheus).unwrap();
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
        assert!(text.contains("# TYPE hbbp_losses_total counter\n"), "{text}");
        assert!(
            text.contains("# HELP hbbp_own_cpu_seconds_total CPU time of the daemon"),
            "{text}"
        );
        assert!(text.contains("# TYPE hbbp_interval_seconds gauge\n"), "{text}");
    }

    #[test]
    fn daemon_without_intervals_complains() {
        let counters = Arc::new(Counters::default());
        let rule = crate::cmd::rule::read("balanced").unwrap();
        let late = Metrics::new(rule, Duration::ZERO, counters);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(late.complaint().unwrap(), "no interval for 0 s");
        assert_eq!(metrics().complaint(), None);
    }
}
