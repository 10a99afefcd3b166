//! Every doubt about a measurement that its reader must know, as one enum with a sentence for each.

use std::fmt;

use super::accounting::Accounting;
use super::completeness::{self, OnCpu};
use super::number::{grouped, percent, several};
use super::quality::{self, Miss};
use crate::mix::{Analysis, Method, Unit};
use crate::snapshot::{EventIdx, EventUnit, KernelTextSource, Loss, Period, Snapshot};

/// With this many samples the standard error of a share of 10 % is one percentage point.
const ENOUGH_SAMPLES: u64 = 900;

/// A CPU may fall this far behind the others before it is named.
const EVEN_CPU: f64 = 0.9;

/// A doubt about a measurement.
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
    /// The address of a sample may be behind the instruction that caused it.
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
    /// The kernel chose the period, so that nobody knows how many samples were due.
    UnknownPeriod {
        /// Name of the event.
        event: String,
    },
    /// There are kernel samples but no kernel text.
    NoKernelText,
    /// The kernel's text is that of a file.
    StaticKernelText {
        /// The file.
        path: String,
    },
    /// Blocks have their estimates from suspect branch stacks.
    Biased {
        /// Number of blocks.
        n_blocks: u64,
    },
    /// Streams were balanced because branches are in the oldest slot out of proportion.
    Balanced {
        /// Share of the oldest slots that these branches hold beyond what is expected.
        excess: f64,
    },
    /// There are too few samples for small shares.
    FewSamples {
        /// Samples in the mix.
        n: u64,
    },
    /// The accounting does not close.
    Unexplained {
        /// Samples that reached the collector without a trace, or less than zero.
        n: i128,
    },
    /// Something was lost before it was counted.
    Lost {
        /// How much.
        n: u64,
        /// Its stable name.
        id: String,
        /// What happened; `None` for a loss of another version.
        loss: Option<Loss>,
    },
    /// What the collector said about the run.
    Note(String),
}

/// The doubts about a measurement, the gravest first.
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
    for event in &run.events {
        let name = || event.name.clone();
        let share = completeness::time_counted(event);
        if share < 1.0 {
            warnings.push(Warning::Multiplexed { event: name(), share });
        }
        if matches!(event.period, Period::Frequency(_)) {
            warnings.push(Warning::UnknownPeriod { event: name() });
        }
        if let Some(worst) = completeness::worst_cpu(event).filter(|worst| worst.share < EVEN_CPU) {
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
    let serves = |idx: &EventIdx| assignment.ebs.contains(idx) || assignment.lbr.contains(idx);
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
            Self::Imprecise { .. } => "event.imprecise",
            Self::UnevenCpu { .. } => "event.uneven_cpu",
            Self::Multiplexed { .. } => "event.multiplexed",
            Self::UnknownPeriod { .. } => "event.unknown_period",
            Self::NoKernelText => "kernel_text.none",
            Self::StaticKernelText { .. } => "kernel_text.static",
            Self::Biased { .. } => "blocks.biased",
            Self::Balanced { .. } => "streams.balanced",
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
                "the figures are time-weighted samples of {events}: they say at which instructions time passed, \
                 not how often an instruction ran"
            ),
            Self::OtherEvent { events } => write!(
                f,
                "the figures are samples of {events}: they weigh an instruction by this event, \
                 not by how often it ran"
            ),
            Self::Imprecise { event } => {
                write!(
                    f,
                    "{event} is not precise here: a sample may stand a few instructions too late"
                )
            }
            Self::UnevenCpu { event, worst } => write!(
                f,
                "on CPU {} only {} % of the due samples of {event} reached the collector: \
                 what ran there is underrepresented",
                worst.cpu,
                percent(worst.share)
            ),
            Self::Multiplexed { event, share } => write!(
                f,
                "{event} shared its hardware counter with others and counted only {} % of the time",
                percent(*share)
            ),
            Self::UnknownPeriod { event } => {
                write!(
                    f,
                    "the kernel chose the period of {event}: how many samples were skipped is not known"
                )
            }
            Self::NoKernelText => {
                f.write_str("the kernel's text could not be read: its samples have no instructions")
            }
            Self::StaticKernelText { path } => write!(
                f,
                "the kernel's text is that of the file {path}, not the live one: \
                 what the kernel patched since it was built is wrong"
            ),
            Self::Biased { n_blocks } => write!(
                f,
                "the estimates of {} come from branch stacks although the branch that ends them is in \
                 the oldest slot too often",
                several(*n_blocks, "block")
            ),
            Self::Balanced { excess } => write!(
                f,
                "branches are in the oldest slot of the branch stacks too often, in {} % of the stacks: \
                 streams were reweighted so that flow is conserved and agrees with the EBS samples \
                 (`--rule paper` takes them as recorded)",
                percent(*excess)
            ),
            Self::FewSamples { n } => {
                write!(
                    f,
                    "{} samples are few: shares below a few percent are uncertain",
                    grouped(*n)
                )
            }
            Self::Unexplained { n } => write!(
                f,
                "{n} samples that reached the collector are neither counted nor lost: \
                 this is a mistake of hbbp-sys, please report it with the snapshot"
            ),
            Self::Lost {
                n, loss: Some(loss), ..
            } => write!(f, "{} {}", grouped(*n), loss.sentence()),
            Self::Lost { n, id, loss: None } => write!(
                f,
                "{} times `{id}`: another version knows what it is",
                grouped(*n)
            ),
            Self::Note(note) => f.write_str(note),
        }
    }
}
