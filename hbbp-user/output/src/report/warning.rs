//! Warnings about a measurement: which there are, and when each is due.

mod sentence;
mod weight;

use super::accounting::Accounting;
use super::completeness::{self, Missing, OnCpu};
use super::no_executions::{NoExecutions, serving};
use super::quality::{self, Miss};
use super::refused::RefusedIn;
use hbbp_analysis::mix::{Analysis, Method, Unit};
use hbbp_model::snapshot::{Event, EventUnit, KernelTextSource, Loss, Period, Snapshot};
pub(super) use weight::{Claim, heaviest};

/// A CPU below this share of its expected samples is named.
const EVEN_CPU: f64 = 0.9;

/// Length errors below this are not reported: they are smaller than most sampling errors.
const LENGTHS: f64 = 0.01;

/// With this many samples the standard error of a share of 10 % is one percentage point.
const ENOUGH_SAMPLES: u64 = 900;

/// A warning about a measurement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Warning {
    /// A stated limit of quality was missed.
    Missed(Miss),
    /// The samples come from a clock, from cycles, or from another event that does not count executions.
    NoExecutions(NoExecutions),
    /// Figures are of user code alone, of bursts.
    Bursts,
    /// Another event than taken branches triggered the branch stacks.
    Relative {
        /// Names of the events.
        events: String,
    },
    /// The sampled address may be after the instruction that caused the sample.
    Imprecise {
        /// Name of the event.
        event: String,
    },
    /// One CPU is much less complete than it should be.
    UnevenCpu {
        /// Name of the event.
        event: String,
        /// The worst CPU.
        worst: OnCpu,
    },
    /// The event shared its hardware counter with others.
    Multiplexed {
        /// Name of the event.
        event: String,
        /// Share of the time in which it counted.
        share: f64,
    },
    /// The kernel chose the period, so the number of expected samples is unknown.
    UnknownPeriod {
        /// Name of the event.
        event: String,
    },
    /// There are kernel samples but no kernel text.
    NoKernelText,
    /// Kernel text is from a static image.
    StaticKernelText {
        /// The file.
        path: String,
    },
    /// Blocks have LBR counts although their branches are biased.
    Biased {
        /// Number of blocks.
        n_blocks: u64,
    },
    /// Streams were reweighted because branches are in the oldest slot too often.
    Balanced {
        /// Excess share of the oldest slots that these branches hold.
        excess: f64,
    },
    /// Streams were longer or shorter than was counted, and balanced until they agreed.
    Lengths {
        /// Instructions for each taken branch over those that were counted, less 1.
        by: f64,
    },
    /// Streams were weighted because branch stacks were read late.
    Late {
        /// Least and longest delay after the trigger, in cycles.
        cycles: (f64, f64),
    },
    /// Without branch stacks, samples that skid were traced back to what triggered them.
    Traced {
        /// Least and longest skid in cycles.
        cycles: (f64, f64),
        /// The share of samples that are counted at their own address.
        landed: f64,
    },
    /// Without branch stacks, samples of retired instructions are counted at their own address.
    AsLanded,
    /// Some process images have no rows of their own.
    CountedTogether {
        /// How many.
        n: u64,
    },
    /// Time with interrupts off is at what turned them on.
    InterruptsOff {
        /// Its share of all samples.
        share: f64,
    },
    /// Samples stay where they lie, as the search for what was executed before them was ended.
    Unsearched {
        /// Their share of all samples.
        share: f64,
    },
    /// There are too few samples for small shares.
    FewSamples {
        /// Samples in the mix.
        n: u64,
    },
    /// The accounting does not close.
    Unexplained {
        /// Received samples that are neither counted nor lost; may be negative.
        n: i128,
    },
    /// Something was lost before it was counted.
    Lost {
        /// How much.
        n: u64,
        /// Its stable name.
        id: String,
        /// The loss; `None` if written by another version.
        loss: Option<Loss>,
    },
    /// Where branch stacks were refused.
    RefusedIn {
        /// The functions with the most, and their shares, as fractions.
        hottest: Vec<(String, f64)>,
        /// Functions next to them.
        others: usize,
    },
    /// A note of the collector.
    Note(String),
}

/// The warnings about a measurement, most severe first.
pub(super) fn warnings(
    analysis: &Analysis,
    snapshot: &Snapshot,
    accounting: &Accounting,
    refused_in: &[RefusedIn],
) -> Vec<Warning> {
    let run = &snapshot.run;
    let (residuals, misses): (Vec<Miss>, Vec<Miss>) = quality::misses(analysis, snapshot, accounting)
        .into_iter()
        .partition(|miss| matches!(miss, Miss::Residual { .. }));
    let mut warnings: Vec<Warning> = residuals.into_iter().map(Warning::Missed).collect();
    if accounting.unexplained() != 0 {
        warnings.push(Warning::Unexplained {
            n: accounting.unexplained(),
        });
    }
    let assignment = &analysis.counts.assignment;
    warnings.extend(NoExecutions::of(run, assignment).map(Warning::NoExecutions));
    if assignment.unit == Unit::RelativeExecutions {
        let events = serving(run, assignment);
        warnings.push(match assignment.is_of_bursts(&run.events) {
            true => Warning::Bursts,
            false => Warning::Relative { events },
        });
    }
    warnings.extend(misses.into_iter().map(Warning::Missed));
    warnings.extend(interrupts_off(analysis));
    warnings.extend(unsearched(analysis));
    if 0 < accounting.counted.kernel {
        warnings.extend(of_kernel_text(&run.kernel_text));
    }
    for (event, missing) in run.events.iter().zip(&accounting.missing) {
        warnings.extend(of_event(event, *missing));
    }
    warnings.extend(of_estimate(analysis));
    let n = accounting.in_mix.total();
    if 0 < n && n < ENOUGH_SAMPLES {
        warnings.push(Warning::FewSamples { n });
    }
    let losses = snapshot.losses.iter();
    warnings.extend(losses.map(|(id, n, loss)| Warning::Lost {
        n,
        id: id.to_owned(),
        loss,
    }));
    warnings.extend(hottest(refused_in));
    warnings.extend(run.notes.iter().cloned().map(Warning::Note));
    warnings
}

/// Share of the time from which on it matters where time with interrupts off is charged.
const MUCH_TIME: f64 = 0.01;

/// Time with interrupts off whose code is not known.
fn interrupts_off(analysis: &Analysis) -> Option<Warning> {
    let share = analysis.counts.waited.as_ref()?.held_back;
    (MUCH_TIME < share).then_some(Warning::InterruptsOff { share })
}

/// Samples that the search for what was executed before them did not come to.
fn unsearched(analysis: &Analysis) -> Option<Warning> {
    let share = analysis.counts.waited.as_ref()?.unsearched;
    (0.0 < share).then_some(Warning::Unsearched { share })
}

/// Functions that a sentence names.
const NAMED: usize = 5;

/// The functions where most stacks were refused.
fn hottest(refused_in: &[RefusedIn]) -> Option<Warning> {
    let all = refused_in.iter().map(|row| row.samples).sum::<u64>() as f64;
    let hottest: Vec<(String, f64)> = refused_in
        .iter()
        .take(NAMED)
        .map(|row| (row.place(), row.samples as f64 / all))
        .collect();
    (!hottest.is_empty()).then_some(Warning::RefusedIn {
        others: refused_in.len().saturating_sub(hottest.len()),
        hottest,
    })
}

fn of_kernel_text(source: &KernelTextSource) -> Option<Warning> {
    match source {
        KernelTextSource::None => Some(Warning::NoKernelText),
        KernelTextSource::Vmlinux(path) => Some(Warning::StaticKernelText { path: path.clone() }),
        KernelTextSource::Kcore | KernelTextSource::Probe => None,
    }
}

/// Warnings about one event; `missing` of its samples were expected and not received.
fn of_event(event: &Event, missing: Missing) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let name = || event.name.clone();
    let share = completeness::time_counted(event);
    if share < 1.0 {
        warnings.push(Warning::Multiplexed { event: name(), share });
    }
    if matches!(event.period, Period::Frequency(_)) {
        warnings.push(Warning::UnknownPeriod { event: name() });
    }
    if let Some(worst) = completeness::worst_cpu(event, missing).filter(|worst| worst.share < EVEN_CPU) {
        warnings.push(Warning::UnevenCpu { event: name(), worst });
    }
    if event.unit == EventUnit::Instructions && event.precise == 0 {
        warnings.push(Warning::Imprecise { event: name() });
    }
    warnings
}

/// Warnings about LBR bias, skid, and processes without rows.
fn of_estimate(analysis: &Analysis) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let blocks = analysis.counts.blocks.iter();
    let n_blocks = blocks
        .filter(|block| block.biased && block.method == Method::Lbr)
        .count() as u64;
    match &analysis.counts.biases.flow {
        Some(bias) if bias.is_told => warnings.push(Warning::Balanced { excess: bias.excess }),
        None if 0 < n_blocks => warnings.push(Warning::Biased { n_blocks }),
        Some(_) | None => {}
    }
    let balanced = analysis
        .counts
        .biases
        .untied
        .filter(|_| analysis.counts.biases.flow.is_some());
    let lengths = balanced.map(|it| (it.per_branch, it.per_branch.abs() - 2.0 * it.error));
    if let Some((by, _)) = lengths.filter(|(by, certain)| 0.0 < *certain && LENGTHS < by.abs()) {
        warnings.push(Warning::Lengths { by });
    }
    if let Some(late) = &analysis.counts.biases.late {
        warnings.push(Warning::Late { cycles: late.cycles });
    }
    if let Some(skid) = &analysis.counts.biases.skid {
        warnings.push(Warning::Traced {
            cycles: skid.cycles,
            landed: skid.landed,
        });
    } else if analysis.mix.unit == Unit::Executions
        && analysis.counts.assignment.lbr.is_empty()
        && !analysis.counts.blocks.is_empty()
    {
        warnings.push(Warning::AsLanded);
    }
    let n = analysis.counts.n_together;
    if 0 < n {
        warnings.push(Warning::CountedTogether { n });
    }
    warnings
}

impl Warning {
    /// Whether it is said before anything else.
    pub(super) const fn is_first_line(&self) -> bool {
        matches!(self, Self::NoExecutions(_))
    }

    /// Stable name, used in JSON.
    pub(super) const fn id(&self) -> &'static str {
        match self {
            Self::Missed(miss) => miss.id(),
            Self::NoExecutions(found) => found.id(),
            Self::Bursts => "unit.bursts",
            Self::Relative { .. } => "unit.relative",
            Self::Imprecise { .. } => "event.imprecise",
            Self::UnevenCpu { .. } => "event.uneven_cpu",
            Self::Multiplexed { .. } => "event.multiplexed",
            Self::UnknownPeriod { .. } => "event.unknown_period",
            Self::NoKernelText => "kernel_text.none",
            Self::StaticKernelText { .. } => "kernel_text.static",
            Self::Biased { .. } => "blocks.biased",
            Self::Balanced { .. } => "streams.balanced",
            Self::Lengths { .. } => "streams.length",
            Self::Late { .. } => "streams.late",
            Self::Traced { .. } => "samples.traced",
            Self::AsLanded => "samples.as_landed",
            Self::CountedTogether { .. } => "processes.together",
            Self::InterruptsOff { .. } => "time.interrupts_off",
            Self::Unsearched { .. } => "time.unsearched",
            Self::FewSamples { .. } => "few_samples",
            Self::Unexplained { .. } => "unexplained",
            Self::Lost { .. } => "lost",
            Self::RefusedIn { .. } => "lost.where",
            Self::Note(_) => "note",
        }
    }
}
