//! The metrics of a daemon: sums over all intervals since it was started, as text of OpenMetrics or of Prometheus.
//!
//! Samples, losses and costs are those of all intervals. The mix is that of the intervals up to its last estimate ([`super::feed`]).
//!
//! Labels come from fixed tables (rings, categories, extensions, losses) and from the events of the run, so that their number
//! is bounded, and none is chosen by another user. Those of cgroups are bounded by number and length (`cgroups`).

mod cgroups;
mod figures;
mod text;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, text::encode};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use super::counters::{Counter, Counters};
use cgroups::Cgroups;
use figures::Figures;
use hbbp_analysis::mix::{Dimension, Estimated, Query};
use hbbp_estimate::Rule;
use hbbp_model::snapshot::{Snapshot, SourceLocations};

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
    interval: Duration,
    rule: Rule,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    registry: Registry,
    figures: Figures,
    cgroups: Cgroups,
    updated: Instant,
    /// The length of the last interval, or the requested one if that is longer: a budget makes the next one at most twice as
    /// long.
    length: Duration,
}

impl Metrics {
    pub(super) fn new(interval: Duration, counters: Arc<Counters>) -> anyhow::Result<Self> {
        let mut registry = Registry::with_prefix("hbbp");
        let figures = Figures::new(&mut registry, interval);
        let cgroups = Cgroups::new(&mut registry, Arc::clone(&counters));
        registry.register_collector(Box::new(Happened(counters)));
        Ok(Self {
            interval,
            rule: crate::cmd::rule::read_for_live("balanced")?,
            state: Mutex::new(State {
                registry,
                figures,
                cgroups,
                updated: Instant::now(),
                length: interval,
            }),
        })
    }

    /// Adds samples, losses and costs of an interval.
    pub(super) fn count(&self, snapshot: &Snapshot) {
        let mut state = self.state();
        state.figures.count(snapshot);
        state.updated = Instant::now();
        state.length = self.interval.max(Duration::from_nanos(snapshot.run.duration));
    }

    /// Estimates the mix of a run and adds it; a scrape sees all of it or nothing.
    ///
    /// Its text is decoded anew: to keep what was decoded from one estimate to the next saved no CPU time with compilers running, and took
    /// 70 MiB.
    pub(super) fn estimate(&self, snapshot: &Snapshot) {
        let estimated = Estimated::new(snapshot, &self.rule);
        let mix = |by: &[Dimension]| {
            let query = Query {
                columns: Vec::new(),
                ..Query::by(by.iter().copied())
            };
            estimated.mix(&query, &SourceLocations::new())
        };
        let (mix, by_cgroup) = (mix(&figures::MIX), mix(&cgroups::BY));
        let mut state = self.state();
        state.figures.add_mix(snapshot, &mix);
        state.cgroups.add(&by_cgroup);
    }

    /// Notes measured time that the mix leaves out.
    pub(super) fn leave_out(&self, measured: Duration) {
        self.state().figures.leave_out(measured);
    }

    /// The text of all metrics.
    pub(super) fn text(&self, form: Form) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.state().registry)?;
        Ok(match form {
            Form::OpenMetrics => text,
            Form::Prometheus => text::prometheus_text(&text),
        })
    }

    /// What is wrong, if something is.
    pub(super) fn complaint(&self) -> Option<String> {
        let state = self.state();
        let since = state.updated.elapsed();
        (LATE * state.length < since).then(|| format!("no interval for {} s", since.as_secs()))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::Loss;
    use hbbp_testing::program;

    fn metrics() -> Metrics {
        let counters = Arc::new(Counters::default());
        counters.add(Counter::Restarts, 3);
        Metrics::new(Duration::from_secs(60), counters).unwrap()
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
        let build = format!(
            "hbbp_build_info{{version=\"{}\"}} 1.0\n",
            env!("CARGO_PKG_VERSION")
        );
        assert!(text.contains(&build), "{text}");
        assert!(text.contains("# UNIT hbbp_cpu_budget_ratio ratio\n"), "{text}");
        assert!(!text.contains("_ratios"), "{text}");
    }

    #[test]
    fn prometheus_text_names_counters_as_their_samples() {
        let text = metrics().text(Form::Prometheus).unwrap();
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
        assert!(text.contains("# TYPE hbbp_losses_total counter\n"), "{text}");
        assert!(
            text.contains("# HELP hbbp_own_cpu_seconds_total CPU time of the daemon and its workers"),
            "{text}"
        );
        assert!(text.contains("# TYPE hbbp_interval_seconds gauge\n"), "{text}");
    }

    #[test]
    fn every_amount_names_its_unit_and_two_units_are_separate() {
        let metrics = metrics();
        metrics.estimate(&program::clocked());
        metrics.estimate(&program::retired());
        for form in [Form::OpenMetrics, Form::Prometheus] {
            let text = metrics.text(form).unwrap();
            let amounts = text
                .lines()
                .filter(|line| line.starts_with("hbbp_mix_total{") || line.starts_with("hbbp_cgroup_mix"));
            let mut of_units = [0; 2];
            for line in amounts {
                let units = ["unit=\"time_weighted_samples\"", "unit=\"executions\""];
                let is_named = units.map(|unit| line.contains(unit));
                assert!(is_named[0] != is_named[1], "{line}");
                of_units[usize::from(is_named[1])] += 1;
            }
            assert!(of_units.iter().all(|n| 0 < *n), "{of_units:?} in {text}");
            assert!(text.contains("hbbp_mix_time_seconds"), "{text}");
        }
    }

    #[test]
    fn daemon_without_intervals_complains() {
        let counters = Arc::new(Counters::default());
        let late = Metrics::new(Duration::ZERO, counters).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(late.complaint().unwrap(), "no interval for 0 s");
        // The next one may be as long as this one.
        let mut longer = Snapshot::default();
        longer.run.duration = 3_600_000_000_000;
        late.count(&longer);
        assert_eq!(late.complaint(), None);
        assert_eq!(metrics().complaint(), None);
    }
}
