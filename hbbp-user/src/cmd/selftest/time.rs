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
        // The sum of nothing is a negative zero.
        rows.map(|row: &Row| row.total.amount).sum::<f64>() + 0.0
    };
    let of_load = |name: &str| {
        samples(&|key| matches!(key, [_, module, function] if *module == process.module && function == name))
    };
    let loads = || program.loads.iter().zip(ran);
    let calling = || loads().filter(|(load, _)| load.kernel.is_some());
    let user = loads().filter(|(load, _)| load.kernel.is_none());
    let user = user.map(|(load, ran)| LoadTime {
        name: load.name,
        cpu: ran.cpu as f64,
        sampled: of_load(load.name),
        std_error: 0.0,
    });
    let in_kernel = samples(&|key| key.first().is_some_and(|ring| ring == "kernel"));
    let calls = LoadTime {
        name: SYSTEM_CALLS,
        cpu: calling().map(|(_, ran)| ran.cpu as f64).sum(),
        sampled: in_kernel + calling().map(|(load, _)| of_load(load.name)).sum::<f64>(),
        std_error: 0.0,
    };
    let mut times: Vec<LoadTime> = user.chain([calls]).collect();
    let cpu: f64 = times.iter().map(|time| time.cpu).sum();
    let samples = times.iter().map(|time| time.sampled).sum::<f64>().max(1.0);
    for time in &mut times {
        time.cpu /= cpu;
        time.sampled /= samples;
        time.std_error = (time.sampled * (1.0 - time.sampled) / samples).sqrt();
    }
    times
}
