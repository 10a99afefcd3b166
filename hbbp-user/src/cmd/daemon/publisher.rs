//! Estimates each interval once, and hands the estimates to what publishes them: metrics, and OTLP.
//!
//! Text is decoded anew for each interval: to keep it from one to the next (`DecodedText`) saved no CPU time beside compilers,
//! and took 70 MiB.

use std::sync::Arc;
use std::time::Duration;

use super::counters::Counters;
use super::metrics::Metrics;
use super::otlp::Requests;
use hbbp_analysis::mix::Estimated;
use hbbp_estimate::Rule;
use hbbp_model::snapshot::Snapshot;
use hbbp_output::export::counted::Counted;

/// Publishes intervals.
#[derive(Debug)]
pub(super) struct Publisher {
    rule: Rule,
    metrics: Arc<Metrics>,
    requests: Option<Requests>,
}

impl Publisher {
    pub(super) fn new(interval: Duration, counters: &Arc<Counters>) -> anyhow::Result<Self> {
        Ok(Self {
            rule: crate::cmd::rule::read_for_live("balanced")?,
            metrics: Arc::new(Metrics::new(interval, Arc::clone(counters))),
            requests: None,
        })
    }

    /// The sums over all intervals.
    pub(super) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Sends intervals to a collector from now on.
    pub(super) fn export_to(&mut self, requests: Option<Requests>) {
        self.requests = requests;
    }

    /// Adds an interval to the metrics, and sends it.
    pub(super) fn publish(&mut self, snapshot: &Snapshot) {
        let estimated = Estimated::new(snapshot, &self.rule);
        self.metrics.add(&estimated);
        if let Some(requests) = &mut self.requests {
            requests.send_profile(&Counted::of(estimated));
            requests.send_metrics(&self.metrics);
        }
    }
}
