//! Warnings about a measurement, as one enum with a message for each.

use std::fmt;

use super::accounting::Accounting;
use super::completeness::{self, OnCpu};
use super::number::{grouped, percent, several};
use super::quality::{self, Miss};
use crate::mix::{Analysis, Method, Unit};
use crate::snapshot::{EventIdx, EventUnit, KernelTextSource, Loss, Period, Snapshot};

/// With this many samples the standard error of a share of 10 % is one percentage point.
const ENOUGH_SAMPLES: u64 = 900;

/// A CPU below this share of its expected samples is named.
const EVEN_CPU: f64 = 0.9;

/// A warning about a measurement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Warning {
    /// A stated limit of quality was missed.
    Missed(Miss),
    /// The samples come from a clock or from cycles.
    TimeOnly {
        /// Names of the events.
        events: String,
    },
    /// The samples come from an event that counts neither executions nor time.
    OtherEvent {
        /// Names of the events.
        events: String,
    },
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
    /// Some process images have no rows of their own.
    CountedTogether {
        /// How many.
        n: u64,
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
    /// A note of the collector.
    Note(String),
}

/// The warnings about a measurement, most severe first.
pub(super) fn warnings(analysis: &Analysis, snapshot: &Snapshot, accounting: &Accounting) -> Vec<Warning> {
    let run = &snapshot.run;
    let (residuals, misses): (Vec<Miss>, Vec<Miss>) = quality::misses(analysis, snapshot, accounting)
        .into_iter()
        .partition(|miss| matches!(miss, Miss::Residual { .. }));
    let mut warnings: Vec<Warning> = residuals.into_iter().map(Warning::Missed).collect();
    if accounting.unexplained != 0 {
        warnings.push(Warning::Unexplained {
            n: accounting.unexplained,
        });
    }
    let events = served(analysis, snapshot);
    match analysis.mix.unit {
        Unit::Executions => {}
        Unit::TimeWeightedSamples => warnings.push(Warning::TimeOnly { events }),
        Unit::EventWeightedSamples => warnings.push(Warning::OtherEvent { events }),
        Unit::RelativeExecutions => warnings.push(Warning::Relative { events }),
    }
    warnings.extend(misses.into_iter().map(Warning::Missed));
    if 0 < accounting.counted.kernel {
        match &run.kernel_text {
            KernelTextSource::None => warnings.push(Warning::NoKernelText),
            KernelTextSource::Vmlinux(path) => {
                warnings.push(Warning::StaticKernelText { path: path.clone() });
            }
            KernelTextSource::Kcore | KernelTextSource::Probe => {}
        }
    }
    for (event, missing) in run.events.iter().zip(&accounting.missing) {
        let name = || event.name.clone();
        let share = completeness::time_counted(event);
        if share < 1.0 {
            warnings.push(Warning::Multiplexed { event: name(), share });
        }
        if matches!(event.period, Period::Frequency(_)) {
            warnings.push(Warning::UnknownPeriod { event: name() });
        }
        if let Some(worst) = completeness::worst_cpu(event, *missing).filter(|worst| worst.share < EVEN_CPU) {
            warnings.push(Warning::UnevenCpu { event: name(), worst });
        }
        if event.unit == EventUnit::Instructions && event.precise == 0 {
            warnings.push(Warning::Imprecise { event: name() });
        }
    }
    let blocks = analysis.counts.blocks.iter();
    let n_blocks = blocks
        .filter(|block| block.biased && block.method == Method::Lbr)
        .count() as u64;
    if let Some(excess) = analysis.counts.bias {
        warnings.push(Warning::Balanced { excess });
    } else if 0 < n_blocks {
        warnings.push(Warning::Biased { n_blocks });
    }
    let n = analysis.counts.n_together;
    if 0 < n {
        warnings.push(Warning::CountedTogether { n });
    }
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
    warnings.extend(run.notes.iter().cloned().map(Warning::Note));
    warnings
}

/// Names of the events that the mix is made of; all where it is made of none.
fn served(analysis: &Analysis, snapshot: &Snapshot) -> String {
    let assignment = &analysis.counts.assignment;
    let serves = |idx: &EventIdx| assignment.uses_ips_of(*idx) || assignment.uses_stacks_of(*idx);
    let none = assignment.ebs.is_empty() && assignment.lbr.is_empty();
    let events = snapshot.run.events.iter().zip((0_u32..).map(EventIdx));
    let names = events
        .filter(|(_, idx)| none || serves(idx))
        .map(|(event, _)| event.name.as_str());
    names.collect::<Vec<_>>().join(", ")
}

impl Warning {
    /// Stable name, used in JSON.
    pub(super) const fn id(&self) -> &'static str {
        match self {
            Self::Missed(miss) => miss.id(),
            Self::TimeOnly { .. } => "unit.time_only",
            Self::OtherEvent { .. } => "unit.other_event",
            Self::Relative { .. } => "unit.relative",
            Self::Imprecise { .. } => "event.imprecise",
            Self::UnevenCpu { .. } => "event.uneven_cpu",
            Self::Multiplexed { .. } => "event.multiplexed",
            Self::UnknownPeriod { .. } => "event.unknown_period",
            Self::NoKernelText => "kernel_text.none",
            Self::StaticKernelText { .. } => "kernel_text.static",
            Self::Biased { .. } => "blocks.biased",
            Self::Balanced { .. } => "streams.balanced",
            Self::CountedTogether { .. } => "processes.together",
            Self::FewSamples { .. } => "few_samples",
            Self::Unexplained { .. } => "unexplained",
            Self::Lost { .. } => "lost",
            Self::Note(_) => "note",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missed(miss) => miss.fmt(f),
            Self::TimeOnly { events } => write!(
                f,
                "figures are time-weighted samples of {events}: they show where time was spent, not how \
                 often instructions ran"
            ),
            Self::OtherEvent { events } => write!(
                f,
                "figures are samples of {events}: instructions are weighted by this event, not by how often \
                 they ran"
            ),
            Self::Relative { events } => write!(
                f,
                "branch stacks were triggered by {events}, not by taken branches: shares are estimates of executions, \
                 amounts have no scale"
            ),
            Self::Imprecise { event } => {
                write!(
                    f,
                    "{event} is not precise on this machine: samples may be attributed a few instructions \
                     late"
                )
            }
            Self::UnevenCpu { event, worst } => write!(
                f,
                "CPU {}: only {} % of the expected samples of {event} were received, so its code is \
                 underrepresented",
                worst.cpu,
                percent(worst.share)
            ),
            Self::Multiplexed { event, share } => write!(
                f,
                "{event} was multiplexed with other events and counted only {} % of the time",
                percent(*share)
            ),
            Self::UnknownPeriod { event } => {
                write!(
                    f,
                    "{event} was sampled by frequency: the number of skipped samples is unknown"
                )
            }
            Self::NoKernelText => f.write_str(
                "kernel text could not be read: kernel samples cannot be resolved to \
                             instructions",
            ),
            Self::StaticKernelText { path } => write!(
                f,
                "kernel text is from {path}, not from the running kernel: samples in patched code are \
                 misattributed"
            ),
            Self::Biased { n_blocks } => write!(
                f,
                "{} with biased counts: LBR is used although the branch is in the oldest slot too often",
                several(*n_blocks, "block")
            ),
            Self::Balanced { excess } => write!(
                f,
                "branches are in the oldest slot too often, in {} % of the branch stacks (LBR bias): \
                 streams were reweighted to conserve flow and to agree with EBS (`--rule paper` uses them \
                 as recorded)",
                percent(*excess)
            ),
            Self::CountedTogether { n } => write!(
                f,
                "{} counted together as [other processes]: each stream of theirs runs through thousands of blocks, and rows of \
                 their own would take too much memory",
                several(*n, "process image")
            ),
            Self::FewSamples { n } => {
                write!(
                    f,
                    "only {} samples: shares below a few percent are uncertain",
                    grouped(*n)
                )
            }
            Self::Unexplained { n } => write!(
                f,
                "{n} received samples are neither counted nor lost: this is a bug in hbbp-sys, please \
                 report it with the profile"
            ),
            Self::Lost {
                n, loss: Some(loss), ..
            } => f.write_str(&loss.counted(*n, &grouped(*n))),
            Self::Lost { n, id, loss: None } => write!(
                f,
                "{} losses of kind `{id}`, unknown to this version of hbbp-sys",
                grouped(*n)
            ),
            Self::Note(note) => f.write_str(note),
        }
    }
}
