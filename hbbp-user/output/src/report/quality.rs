//! The quality limits of a measurement, which `--strict` enforces.
//!
//! | limit                                               | value  |
//! |-----------------------------------------------------|--------|
//! | expected samples that are received, each event      | 95 %   |
//! | received samples that are counted                   | 99 %   |
//! | counted kernel samples on a known instruction       | 99.5 % |
//! | counted user samples on a known instruction         | 98 %   |
//! | residual with branch stacks, beyond two std. errors | 1 %    |
//!
//! A limit without samples to compare with, such as kernel samples of a user program, is met.

use super::accounting::Accounting;
use super::completeness;
use super::header::unit_in_words;
use super::number::{grouped, percent};
use super::residual::{Residual, residuals};
use hbbp_analysis::mix::Analysis;
use hbbp_model::addr::Ring;
use hbbp_model::advice::{Advice, Wording, followed};
use hbbp_model::snapshot::{EventUnit, Loss, Snapshot};

/// Where samples are missing is unknown. The kernel skips a perf program while another BPF program runs, always in the same
/// code: with a twentieth missing, a small row of the mix may be entirely wrong.
const COMPLETENESS: f64 = 0.95;

/// A full map drops samples of rarely executed code, which is also a bias.
const COUNTED: f64 = 0.99;

/// Kernel text is read live and followed through all patches, so nearly every sample must resolve.
const RESOLVED_KERNEL: f64 = 0.995;

/// Less than [`RESOLVED_KERNEL`]: processes may exit before their text can be read.
const RESOLVED_USER: f64 = 0.98;

/// A hundredth of the executions, more than chance explains: the mean error of a mix on the emulated machine is half of it.
const RESIDUAL: f64 = 0.01;

/// A limit that a measurement missed.
#[derive(Clone, Debug, PartialEq)]
pub enum Miss {
    /// The estimates are not what the sampling events counted.
    Residual {
        /// Retired instructions or taken branches.
        unit: EventUnit,
        /// Estimated over counted, less 1; of taken branches, before streams were scaled to them.
        relative: f64,
        /// Its standard error.
        std_error: f64,
    },
    /// Too few expected samples of an event were received.
    Completeness {
        /// Name of the event.
        event: String,
        /// Share of the expected samples that were received.
        share: f64,
        /// Whether it followed tasks, of which short ones have no samples.
        of_tasks: bool,
    },
    /// Too many samples were refused by the maps.
    Counted {
        /// Share of the samples that were counted.
        share: f64,
    },
    /// Too many samples of a ring have no instruction.
    Resolved {
        /// The ring.
        ring: Ring,
        /// Share of its samples that have one.
        share: f64,
    },
    /// Not one sample is in the mix.
    NoSamples {
        /// Executed files that were not found.
        files_missing: u64,
    },
}

/// The limits that a measurement missed, most severe kind first; empty if it met all.
pub fn quality(analysis: &Analysis, snapshot: &Snapshot) -> Vec<Miss> {
    misses(analysis, snapshot, &Accounting::new(snapshot, analysis))
}

/// As [`quality`], for samples that are accounted for already.
pub(super) fn misses(analysis: &Analysis, snapshot: &Snapshot, accounting: &Accounting) -> Vec<Miss> {
    let below = |limit: f64| move |share: &f64| *share < limit;
    let mut misses = residual_misses(analysis, snapshot);
    if analysis.mix.all.blocks == 0 {
        misses.push(Miss::NoSamples {
            files_missing: snapshot.losses.get(Loss::FileMissing),
        });
    }
    for (event, missing) in snapshot.run.events.iter().zip(&accounting.missing) {
        if let Some(share) = completeness::while_busy(event, *missing).filter(below(COMPLETENESS)) {
            misses.push(Miss::Completeness {
                event: event.name.clone(),
                share,
                of_tasks: completeness::follows_tasks(event),
            });
        }
    }
    let refused = accounting
        .refused
        .iter()
        .fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
    let counted = completeness::share(accounting.reached.saturating_sub(refused), accounting.reached);
    if let Some(share) = counted.filter(below(COUNTED)) {
        misses.push(Miss::Counted { share });
    }
    let (resolved, asked) = (accounting.resolved(), accounting.asked());
    let kernel = completeness::share(resolved.kernel, asked.kernel).filter(below(RESOLVED_KERNEL));
    let user = completeness::share(resolved.user, asked.user).filter(below(RESOLVED_USER));
    misses.extend(kernel.map(|share| Miss::Resolved {
        ring: Ring::Kernel,
        share,
    }));
    misses.extend(user.map(|share| Miss::Resolved {
        ring: Ring::User,
        share,
    }));
    misses
}

/// The residuals of a run with branch stacks that miss the limit.
fn residual_misses(analysis: &Analysis, snapshot: &Snapshot) -> Vec<Miss> {
    if analysis.counts.assignment.lbr.is_empty() {
        return Vec::new();
    }
    let miss = |residual: Residual| Miss::Residual {
        unit: residual.unit,
        relative: residual.missing(),
        std_error: residual.std_error / residual.counted,
    };
    let residuals = residuals(snapshot, analysis).into_iter();
    residuals
        .filter(|residual| RESIDUAL < residual.beyond_error())
        .map(miss)
        .collect()
}

impl Miss {
    /// Stable name, used in JSON.
    pub const fn id(&self) -> &'static str {
        match self {
            Self::Residual { .. } => "quality.residual",
            Self::Completeness { .. } => "quality.completeness",
            Self::Counted { .. } => "quality.counted",
            Self::Resolved {
                ring: Ring::Kernel, ..
            } => "quality.resolved_kernel",
            Self::Resolved { ring: Ring::User, .. } => "quality.resolved_user",
            Self::NoSamples { .. } => "quality.no_samples",
        }
    }
}

impl Miss {
    /// The sentence, with advice in these words.
    pub fn in_words(&self, wording: Wording) -> String {
        match self {
            Self::Residual {
                unit,
                relative,
                std_error,
            } => format!(
                "the estimates differ by {} % (standard error {} %) from the {} that the events counted (limit {} % beyond \
                 two standard errors): executions are missing or counted twice",
                percent(*relative),
                percent(*std_error),
                unit_in_words(*unit),
                percent(RESIDUAL)
            ),
            Self::Completeness {
                event,
                share,
                of_tasks,
            } => {
                let why = if *of_tasks {
                    followed(
                        "threads that run for less than one period get no samples",
                        Some(Advice::ShorterPeriodOrWholeSystem),
                        wording,
                    )
                } else {
                    "the code that they are missing from is unknown, and underrepresented".to_owned()
                };
                format!(
                    "only {} % of the expected samples of {event} were received (limit {} %): {why}",
                    percent(*share),
                    percent(COMPLETENESS)
                )
            }
            Self::Counted { share } => format!(
                "only {} % of the received samples were counted (limit {} %): rarely executed code is \
                 underrepresented",
                percent(*share),
                percent(COUNTED)
            ),
            Self::Resolved { ring, share } => {
                let limit = match ring {
                    Ring::Kernel => RESOLVED_KERNEL,
                    Ring::User => RESOLVED_USER,
                };
                let (share, limit) = (percent(*share), percent(limit));
                format!("only {share} % of the {ring} samples map to a known instruction (limit {limit} %)")
            }
            Self::NoSamples { files_missing: 0 } => {
                "no sample is in code that is known, so there is nothing to report".to_owned()
            }
            Self::NoSamples { files_missing } => {
                let files = match files_missing {
                    1 => "the file that ran was".to_owned(),
                    n => format!("{} files that ran were", grouped(*n)),
                };
                let sentence = format!("no sample is in code that is known, as {files} not found");
                followed(&sentence, Some(Advice::NameFiles), wording)
            }
        }
    }
}
