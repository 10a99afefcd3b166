//! Amounts by cgroup, under a bounded number of labels.
//!
//! Users and container runtimes make cgroups without end. With each estimate those with the largest amounts get the labels that
//! are free; a label whose cgroup was idle for long is given to another one. What has no label counts as `[other]`, and what
//! had one that was given up as ended, so that all together is the mix.

use std::collections::HashMap;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::super::counters::{Counter, Counters};
use super::figures::Amount;
use hbbp_analysis::mix::{Dimension, Mix};
use hbbp_model::names::Workload;
use hbbp_model::printable::harmless;

/// Cgroups that have labels at once.
const MOST: usize = 64;
/// Bytes of a label; one that is longer is `[other]`.
const LONGEST: usize = 256;
/// Estimates without samples after which a label is given up, where others need it.
const IDLE: u64 = 10;
/// What has no label of its own.
const OTHER: &str = "[other]";

/// What the rows of the mix are.
pub(super) const BY: [Dimension; 2] = [Dimension::Ring, Dimension::Cgroup];

#[derive(Debug)]
pub(super) struct Cgroups {
    amounts: Family<Labels, Amount>,
    ended: Family<EndedLabels, Amount>,
    /// The cgroups that have labels, with the last estimate that had samples of each, and the units and rings of these.
    labelled: HashMap<Workload, Labelled>,
    now: u64,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Labelled {
    used: u64,
    labels: Vec<Labels>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Labels {
    unit: &'static str,
    ring: String,
    cgroup: String,
    pod: String,
    container: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct EndedLabels {
    unit: &'static str,
    ring: String,
}

impl Cgroups {
    pub(super) fn new(registry: &mut Registry, counters: Arc<Counters>) -> Self {
        let (amounts, ended) = (Family::default(), Family::default());
        registry.register(
            "cgroup_mix",
            "Estimated amounts by ring and cgroup, with the ids of pods and containers; together with the ended ones the mix",
            Family::clone(&amounts),
        );
        registry.register(
            "cgroup_mix_ended",
            "Estimated amounts of cgroups whose labels were given up, as they were idle and others needed them",
            Family::clone(&ended),
        );
        Self {
            amounts,
            ended,
            labelled: HashMap::new(),
            now: 0,
            counters,
        }
    }

    /// Adds a mix, whose rows are [`BY`].
    pub(super) fn add(&mut self, mix: &Mix) {
        self.now += 1;
        for (workload, rings) in by_workload(mix) {
            let place = self.place(&workload);
            let workload = if place {
                workload
            } else {
                self.counters.add(Counter::CgroupsOther, 1);
                Workload::of(OTHER)
            };
            for (ring, amount) in rings {
                self.add_row(mix.unit.id(), ring, &workload, amount);
            }
        }
    }

    /// Whether a cgroup has a label, or gets one.
    fn place(&mut self, workload: &Workload) -> bool {
        if let Some(known) = self.labelled.get_mut(workload) {
            known.used = self.now;
            return true;
        }
        let len = workload.cgroup.len() + workload.pod.len() + workload.container.len();
        if LONGEST < len || MOST <= self.labelled.len() && !self.give_up_one() {
            return false;
        }
        let used = self.now;
        let labels = Vec::new();
        self.labelled.insert(workload.clone(), Labelled { used, labels });
        true
    }

    /// Gives up the label that was idle for longest, if one was for long.
    fn give_up_one(&mut self) -> bool {
        let idle = self.labelled.iter().min_by_key(|(_, it)| it.used);
        let idle = idle.filter(|(_, it)| it.used + IDLE <= self.now);
        let Some(idle) = idle.map(|(workload, _)| workload.clone()) else {
            return false;
        };
        for labels in self.labelled.remove(&idle).unwrap_or_default().labels {
            let amount = self.amounts.get(&labels).map_or(0.0, |amount| amount.get());
            self.amounts.remove(&labels);
            let Labels { unit, ring, .. } = labels;
            self.ended
                .get_or_create(&EndedLabels { unit, ring })
                .inc_by(amount);
        }
        true
    }

    fn add_row(&mut self, unit: &'static str, ring: String, workload: &Workload, amount: f64) {
        let Workload {
            cgroup,
            pod,
            container,
        } = workload.clone();
        let labels = Labels {
            unit,
            ring,
            cgroup,
            pod,
            container,
        };
        self.amounts.get_or_create(&labels).inc_by(amount);
        if let Some(known) = self
            .labelled
            .get_mut(workload)
            .filter(|it| !it.labels.contains(&labels))
        {
            known.labels.push(labels);
        }
    }
}

/// The amounts of each cgroup by ring, the largest first.
fn by_workload(mix: &Mix) -> Vec<(Workload, Vec<(String, f64)>)> {
    let mut sums: HashMap<Workload, Vec<(String, f64)>> = HashMap::new();
    for row in &mix.rows {
        if let [ring, cgroup] = row.key.as_slice() {
            // Whoever reads metrics in a terminal sees names that others chose.
            let rings = sums.entry(Workload::of(&harmless(cgroup))).or_default();
            match rings.iter_mut().find(|(it, _)| it == ring) {
                Some((_, sum)) => *sum += row.total.amount,
                None => rings.push((ring.clone(), row.total.amount)),
            }
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    let total = |rings: &[(String, f64)]| -> f64 { rings.iter().map(|(_, amount)| amount).sum() };
    sums.sort_by(|(a, in_a), (b, in_b)| total(in_b).total_cmp(&total(in_a)).then_with(|| a.cmp(b)));
    sums
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use hbbp_analysis::mix::{Cell, Query, Row, Unit};

    fn mix(rows: impl IntoIterator<Item = (String, f64)>) -> Mix {
        let row = |(cgroup, amount)| Row {
            key: vec!["user".to_owned(), cgroup],
            cells: Vec::new(),
            total: Cell {
                amount,
                ..Cell::default()
            },
        };
        let by = Query::by(BY);
        Mix {
            time_unit: None,
            rows_by: by.rows,
            columns_by: Vec::new(),
            filters: Vec::new(),
            values: Vec::new(),
            unit: Unit::Executions,
            columns: Vec::new(),
            rows: rows.into_iter().map(row).collect(),
            total: Cell::default(),
            all: Cell::default(),
        }
    }

    /// The samples of both metrics: labels and value.
    fn samples(registry: &Registry) -> Vec<(String, f64)> {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter_map(|line| line.rsplit_once(' '));
        samples
            .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn labels_are_bounded_and_sums_close() {
        let mut registry = Registry::default();
        let counters = Arc::new(Counters::default());
        let mut cgroups = Cgroups::new(&mut registry, Arc::clone(&counters));
        let storm = |first: usize| (first..first + 200).map(|n| (format!("/storm{n}"), 1.0));
        let mut sum = 0.0;
        for round in 0..100 {
            let always = [("/a.service/x".to_owned(), 5.0), ("/a.service".to_owned(), 5.0)];
            cgroups.add(&mix(storm(200 * round).chain(always)));
            sum += 210.0;
        }
        let samples = samples(&registry);
        assert!(samples.len() <= MOST + 2, "{samples:?}");
        assert_eq!(samples.iter().map(|(_, value)| value).sum::<f64>(), sum);
        let of = |what: &str| samples.iter().find(|(name, _)| name.contains(what)).unwrap().1;
        assert_eq!(of("cgroup=\"/a.service\""), 1000.0);
        assert!(0.0 < of("cgroup=\"[other]\"") && 0.0 < of("cgroup_mix_ended"));
        assert!(0 < counters.get(Counter::CgroupsOther));
    }

    #[test]
    fn names_of_others_are_safe_to_print() {
        let mut registry = Registry::default();
        let mut cgroups = Cgroups::new(&mut registry, Arc::default());
        cgroups.add(&mix([
            ("/esc\u{1b}[31m".to_owned(), 1.0),
            ("/bidi\u{202e}x.slice".to_owned(), 1.0),
            ("/line\nhbbp_fake 1".to_owned(), 1.0),
        ]));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(
            text.contains("/esc\u{fffd}[31m") && text.matches('\u{fffd}').count() == 3,
            "{text}"
        );
        assert!(
            !text.contains(['\u{1b}', '\u{202e}']) && !text.contains("\nhbbp_fake"),
            "{text}"
        );
    }

    #[test]
    fn long_names_have_no_label() {
        let mut registry = Registry::default();
        let mut cgroups = Cgroups::new(&mut registry, Arc::default());
        cgroups.add(&mix([(format!("/{}", "x".repeat(LONGEST)), 1.0)]));
        let samples = samples(&registry);
        assert!(
            samples.len() == 1 && samples[0].0.contains("[other]"),
            "{samples:?}"
        );
    }
}
