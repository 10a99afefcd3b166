//! What was sampled of the loads on a clock, compared with the CPU time that they had.

use hbbp_analysis::mix::{Dimension, Estimated, Query, Row};
use hbbp_estimate::Rule;
use hbbp_model::snapshot::{Snapshot, SourceLocations};

use super::executions::LoadProcess;
use super::program::Program;
use super::run_loads::Ran;

/// The row of the loads that call the kernel: which of them its time belongs to is not known.
pub(super) const SYSTEM_CALLS: &str = "system calls";

/// A load, and its part in the time of all.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoadTime {
    pub(super) name: &'static str,
    /// Its share of the CPU time that the kernel counted, as a fraction.
    pub(super) cpu: f64,
    /// Its share of the samples, as a fraction.
    pub(super) sampled: f64,
    /// Standard error of `sampled`.
    pub(super) std_error: f64,
}

/// The times of all loads, those that call the kernel last.
pub(super) fn times(
    snapshot: &Snapshot,
    process: &LoadProcess,
    program: &Program,
    ran: &[Ran],
    rule: &Rule,
) -> Vec<LoadTime> {
    let by = [
        Dimension::Pid,
        Dimension::Ring,
        Dimension::Module,
        Dimension::Function,
    ];
    let mix = Estimated::new(snapshot, rule).mix(&Query::by(by), &SourceLocations::new());
    let pid = process.tgid.to_string();
    let samples = |wanted: &dyn Fn(&[String]) -> bool| -> f64 {
        let own = mix.rows.iter().filter(|row| row.key.first() == Some(&pid));
        let rows = own.filter(|row| row.key.get(1..).is_some_and(wanted));
        rows.map(|row: &Row| row.total.amount).sum()
    };
    let of_load = |name: &str| {
        samples(&|key| matches!(key, [_, module, function] if *module == process.module && function == name))
    };
    let mut counted: Vec<(&'static str, f64, f64)> = Vec::new();
    let mut calls = (
        SYSTEM_CALLS,
        0.0,
        samples(&|key| key.first().is_some_and(|ring| ring == "kernel")),
    );
    for (load, ran) in program.loads.iter().zip(ran) {
        let (cpu, sampled) = (ran.cpu as f64, of_load(load.name));
        match load.kernel {
            None => counted.push((load.name, cpu, sampled)),
            Some(_) => {
                calls.1 += cpu;
                calls.2 += sampled;
            }
        }
    }
    counted.push(calls);
    let all_cpu: f64 = counted.iter().map(|(_, cpu, _)| cpu).sum();
    let all: f64 = counted.iter().map(|(.., sampled)| sampled).sum();
    let times = counted.into_iter().map(|(name, cpu, sampled)| {
        let sampled = if 0.0 < all { sampled / all } else { 0.0 };
        LoadTime {
            name,
            cpu: cpu / all_cpu,
            sampled,
            std_error: (sampled * (1.0 - sampled) / all.max(1.0)).sqrt(),
        }
    });
    times.collect()
}
