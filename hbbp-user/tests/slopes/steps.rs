//! The steps from a profile to what is printed of it, and what each costs.
//!
//! A test and a benchmark include this file.

use std::io;

use hbbp_analysis::mix::{Dimension, Query, View};
use hbbp_estimate::rule::{PAPER, Rule};
use hbbp_model::snapshot::Snapshot;
use hbbp_model::snapshot::file::{encode, parse};
use hbbp_output::export::StreamFilter;
use hbbp_output::export::branches::write_branches;
use hbbp_output::export::counts::{CountSource, write_counts};
use hbbp_output::export::streams::write_streams;
use hbbp_user::cmd::report::{ReportOptions, print};
use rustix::time::{ClockId, clock_gettime};

/// What is done with a snapshot.
type Step = fn(&Snapshot);

/// The steps that are measured: from the bytes of a profile to all reports and exports of it.
pub(crate) const STEPS: [(&str, Step); 6] = [
    ("read", |snapshot| {
        parse(&encode(snapshot).unwrap()).unwrap();
    }),
    ("report", |snapshot| report(snapshot, &[Dimension::Mnemonic])),
    ("by process", |snapshot| {
        report(snapshot, &[Dimension::Process, Dimension::Function]);
    }),
    ("loops", |snapshot| view(snapshot, "loops")),
    ("counts", |snapshot| {
        let rule: Rule = PAPER.parse().unwrap();
        write_counts(snapshot, CountSource::Lbr, &rule, &mut io::sink()).unwrap();
    }),
    ("export", |snapshot| {
        write_streams(snapshot, StreamFilter::Checked, &mut io::sink()).unwrap();
        write_streams(snapshot, StreamFilter::Raw, &mut io::sink()).unwrap();
        write_branches(snapshot, &mut io::sink()).unwrap();
    }),
];

fn report(snapshot: &Snapshot, by: &[Dimension]) {
    let options = ReportOptions {
        query: Query::by(by.iter().copied()),
        ..ReportOptions::default()
    };
    print(snapshot, &options, &mut io::sink()).unwrap();
}

fn view(snapshot: &Snapshot, name: &str) {
    let options = ReportOptions {
        view: Some(View::named(name, &[]).unwrap()),
        top: Some(20),
        ..ReportOptions::default()
    };
    print(snapshot, &options, &mut io::sink()).unwrap();
}

/// CPU time in seconds that a step takes, of the cheapest of some runs.
pub(crate) fn cost(step: fn(&Snapshot), snapshot: &Snapshot, n_runs: u32) -> f64 {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
    };
    let run = |_| {
        let begin = now();
        step(snapshot);
        now() - begin
    };
    (0..n_runs).map(run).fold(f64::INFINITY, f64::min)
}
