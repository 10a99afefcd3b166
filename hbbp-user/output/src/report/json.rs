//! The report as JSON, format `hbbp-sys.mix/2`.
//!
//! The format is specified in `mix.schema.json` next to this file (JSON Schema), which tests check against the golden
//! files. Fields come in the order of the structures below.
//! A field may be added within version 2; nothing is renamed, removed or given another meaning without a new version.
//! Times are in ns, shares from 0 to 1, `null` means "not known" or "there is none".
//! Sums close: the `rows` and `more` of a mix in samples add up to `accounting.in_mix` less `of_user_code`, and each line of
//! `accounting` is what its documentation says.

mod accounting;
mod tables;
mod unit;

use std::io::{self, Write};

use serde::Serialize;

use super::classes::ClassJson;
use super::completeness::{self, Missing};
use super::header::of_guests;
use super::loops::{LoopsJson, RunLoops};
use super::measured::{Measured, Report};
use super::over_time::OverTimeJson;
use super::residual::Residual;
use super::warning::Warning;
use accounting::{AccountingJson, StreamsJson};
use hbbp_analysis::mix::MethodShare;
use hbbp_model::addr::Ring;
use hbbp_model::advice::Wording;
use hbbp_model::printable::write_json;
use hbbp_model::snapshot::loss::LossUnit;
use hbbp_model::snapshot::run::RunTime;
use hbbp_model::snapshot::{Event, KernelTextSource, Losses, Period, Run, hex};
use tables::{MixJson, RequirementJson};
pub(super) use unit::unit_id;

/// Writes the report and a newline.
pub(super) fn write(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let document = Document::new(report);
    write_json(&document, out)
}

/// The whole document.
#[derive(Serialize)]
struct Document<'a> {
    /// Name and version of this format.
    format: &'static str,
    /// The run, of a merged profile the first.
    #[serde(flatten)]
    first: Option<MeasuredJson<'a>>,
    /// The table, or the first one of a view.
    mix: Option<MixJson<'a>>,
    /// Further tables of a view.
    tables: Vec<MixJson<'a>>,
    /// Name of the view; null without one.
    view: Option<&'a str>,
    /// The rows by period, if they were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    over_time: Option<OverTimeJson<'a>>,
    /// The loops of each run, with the view of that name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    loops: Vec<LoopsJson<'a>>,
    requirements: Vec<RequirementJson<'a>>,
    /// The further runs of a merged profile; the tables are those of all runs.
    others: Vec<MeasuredJson<'a>>,
}

/// What is to be said of one run.
#[derive(Serialize)]
struct MeasuredJson<'a> {
    run: RunJson<'a>,
    events: Vec<EventJson<'a>>,
    /// Warnings about the measurement, most severe first.
    warnings: Vec<WarningJson>,
    /// What was lost, if not zero.
    losses: Vec<LossJson<'a>>,
    /// The contribution of each method to the mix.
    sources: Vec<SourceJson>,
    accounting: AccountingJson,
    /// Accounting of the streams of branch stacks; null without streams.
    streams: Option<StreamsJson>,
    /// Estimates and counter values of the sampling events; empty if figures are not executions.
    residuals: Vec<ResidualJson>,
    /// Classes of instructions that were counted along with the samples; absent where none was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<ClassJson>,
}

/// Facts of the run.
#[derive(Serialize)]
struct RunJson<'a> {
    tool_version: &'a str,
    scope: &'a str,
    host: &'a str,
    kernel_release: &'a str,
    /// Hexadecimal, empty where it is not known.
    kernel_build_id: String,
    cpu_model: &'a str,
    n_cpus: u32,
    /// ns since 1970.
    started: u64,
    duration: u64,
    kernel_text: KernelTextJson<'a>,
    own_cpu: u64,
    /// Bytes.
    own_memory: u64,
    /// ns that guests of this host took; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    guests: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<BudgetJson>,
}

/// Source of the kernel's text: `none`, `kcore`, `probe` or `vmlinux`; only the last has a path.
#[derive(Serialize)]
struct KernelTextJson<'a> {
    source: &'static str,
    path: Option<&'a str>,
}

/// The budget of the run.
#[derive(Serialize)]
struct BudgetJson {
    share: f64,
    sampling: u64,
    programs_measured: bool,
}

/// An event of the run.
#[derive(Serialize)]
struct EventJson<'a> {
    name: &'a str,
    /// `ns`, `cycles`, `instructions`, `taken_branches`, `micro_ops` or `other`.
    unit: &'static str,
    precise: u8,
    /// `kernel` or `user`, where it counts that ring alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    ring: Option<&'static str>,
    branch_stack: bool,
    /// Units from sample to sample; null if the kernel chose it.
    period: Option<u64>,
    /// Whether it changed a little during the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_period: Option<u64>,
    period_varied: bool,
    /// The requested sampling frequency in Hz; null if the period is fixed.
    frequency: Option<u64>,
    /// Expected samples; null if the kernel chose the period.
    due: Option<u64>,
    /// Samples received.
    runs: u64,
    /// Expected samples that are missing on idle CPUs.
    idle: u64,
    /// Expected samples that are missing on CPUs that the hypervisor took for as many periods (steal time).
    stolen: u64,
    /// `runs / (due - idle)`.
    completeness: Option<f64>,
    /// `runs / due`.
    completeness_with_idle: Option<f64>,
    /// The CPU with the lowest completeness, if known.
    worst_cpu: Option<WorstCpuJson>,
    /// Share of the time in which the event really counted.
    time_counted: f64,
}

#[derive(Serialize)]
struct WorstCpuJson {
    cpu: u32,
    completeness: f64,
}

#[derive(Serialize)]
struct WarningJson {
    /// Stable name.
    id: &'static str,
    text: String,
}

#[derive(Serialize)]
struct LossJson<'a> {
    /// Stable name.
    id: &'a str,
    count: u64,
    /// What one count is: `sample`, `entry`, `stream`, `record`, `region`, `ambiguous` or `name`;
    /// null for a loss of a newer version.
    unit: Option<&'static str>,
    text: Option<String>,
}

/// A method of estimation: `EBS` or `LBR`.
#[derive(Serialize)]
struct SourceJson {
    source: &'static str,
    /// Whether it counts streams that were balanced.
    balanced: bool,
    blocks: u64,
    /// Instructions by ring, in the unit of the mix.
    kernel: f64,
    user: f64,
    /// Its share of the instructions of both rings, 0 to 1.
    share: f64,
}

/// A unit that was counted without sampling, and estimated.
#[derive(Serialize)]
struct ResidualJson {
    /// `instructions`: the whole mix; `taken_branches`: the accepted streams.
    unit: &'static str,
    counted: f64,
    estimated: f64,
    /// `estimated / counted - 1`.
    relative: f64,
    /// Standard error of `estimated`.
    std_error: f64,
    /// The relative residual before streams were scaled to the counts; missing where they were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    untied: Option<f64>,
}

impl<'a> Document<'a> {
    fn new(report: &'a Report<'a>) -> Self {
        let mut bodies = report.bodies.iter();
        let mut runs = report
            .runs
            .iter()
            .map(|run| MeasuredJson::new(run, report.wording));
        Self {
            format: "hbbp-sys.mix/2",
            first: runs.next(),
            mix: bodies.next().map(MixJson::new),
            tables: bodies.map(MixJson::new).collect(),
            view: report.view.map(|view| view.name.as_str()),
            over_time: report.over_time.map(|(_, rows)| rows.json()),
            loops: report.loops.iter().map(RunLoops::json).collect(),
            requirements: report.verdicts.iter().map(RequirementJson::new).collect(),
            others: runs.collect(),
        }
    }
}

impl<'a> MeasuredJson<'a> {
    fn new(measured: &'a Measured<'a>, wording: Wording) -> Self {
        let run = &measured.snapshot.run;
        let warning = |warning: &Warning| WarningJson {
            id: warning.id(),
            text: warning.in_words(wording),
        };
        let methods = measured.methods.iter();
        let events = run.events.iter().zip(&measured.accounting.missing);
        Self {
            run: RunJson::new(run),
            events: events
                .map(|(event, missing)| EventJson::new(event, *missing))
                .collect(),
            warnings: measured.warnings.iter().map(warning).collect(),
            losses: losses(&measured.snapshot.losses, wording),
            sources: methods
                .map(|method| SourceJson::new(method, measured.methods))
                .collect(),
            accounting: AccountingJson::new(&measured.accounting, &measured.refused_in),
            streams: Some(&measured.streams)
                .filter(|streams| 0 < streams.counted)
                .map(StreamsJson::new),
            residuals: measured.residuals.iter().map(ResidualJson::new).collect(),
            classes: measured
                .analysis
                .counts
                .classes
                .estimates
                .iter()
                .map(ClassJson::new)
                .collect(),
        }
    }
}

impl<'a> RunJson<'a> {
    fn new(run: &'a Run) -> Self {
        let (source, path) = match &run.kernel_text {
            KernelTextSource::None => ("none", None),
            KernelTextSource::Kcore => ("kcore", None),
            KernelTextSource::Probe => ("probe", None),
            KernelTextSource::Vmlinux(path) => ("vmlinux", Some(path.as_str())),
        };
        Self {
            tool_version: &run.tool_version,
            scope: &run.scope,
            host: &run.host.name,
            kernel_release: &run.host.kernel_release,
            kernel_build_id: hex(&run.host.kernel_build_id),
            cpu_model: &run.host.cpu_model,
            n_cpus: run.host.n_cpus,
            started: run.started,
            duration: run.duration,
            kernel_text: KernelTextJson { source, path },
            own_cpu: run.overhead.cpu,
            guests: Some(of_guests(run)).filter(|guests| 0 < *guests),
            own_memory: run.overhead.memory,
            budget: run.overhead.budget.map(|budget| BudgetJson {
                share: f64::from(budget.share) / 1e6,
                sampling: run.overhead.sampling,
                programs_measured: budget.programs == RunTime::Measured,
            }),
        }
    }
}

impl<'a> EventJson<'a> {
    fn new(event: &'a Event, missing: Missing) -> Self {
        let (period, frequency, longest_period) = match event.period {
            Period::Fixed(period) => (Some(period), None, None),
            Period::Frequency(frequency) => (None, Some(frequency), None),
            Period::Between(shortest, longest) => (Some(shortest), None, Some(longest)),
        };
        let worst_cpu = completeness::worst_cpu(event, missing);
        Self {
            name: &event.name,
            unit: unit_id(event.unit),
            precise: event.precise,
            ring: event.ring.map(Ring::name),
            branch_stack: event.branch_stack,
            period,
            longest_period,
            period_varied: event.varied(),
            frequency,
            due: event.due(),
            runs: event.runs,
            idle: missing.idle,
            stolen: missing.stolen,
            completeness: completeness::while_busy(event, missing),
            completeness_with_idle: completeness::with_idle(event),
            worst_cpu: worst_cpu.map(|worst| WorstCpuJson {
                cpu: worst.cpu,
                completeness: worst.share,
            }),
            time_counted: completeness::time_counted(event),
        }
    }
}

fn losses(losses: &Losses, wording: Wording) -> Vec<LossJson<'_>> {
    let unit = |unit| match unit {
        LossUnit::Sample => "sample",
        LossUnit::Entry => "entry",
        LossUnit::Stream => "stream",
        LossUnit::Chain => "chain",
        LossUnit::Record => "record",
        LossUnit::Second => "second",
        LossUnit::Region => "region",
        LossUnit::Ambiguous => "ambiguous",
        LossUnit::Text => "text",
        LossUnit::Name => "name",
    };
    let losses = losses.iter().map(|(id, count, known)| LossJson {
        id,
        count,
        unit: known.map(|loss| unit(loss.unit())),
        text: known.map(|loss| loss.in_words(wording)),
    });
    losses.collect()
}

impl ResidualJson {
    fn new(residual: &Residual) -> Self {
        Self {
            unit: unit_id(residual.unit),
            counted: residual.counted,
            estimated: residual.estimated,
            relative: residual.relative(),
            std_error: residual.std_error,
            untied: residual.untied,
        }
    }
}

impl SourceJson {
    fn new(share: &MethodShare, all: &[MethodShare]) -> Self {
        let total: f64 = all.iter().map(MethodShare::instructions).sum();
        Self {
            source: share.method.name(),
            balanced: share.balanced,
            blocks: share.blocks,
            kernel: share.kernel,
            user: share.user,
            share: if 0.0 < total {
                share.instructions() / total
            } else {
                0.0
            },
        }
    }
}
