//! The weight of a warning: the share of the figures that it may bias.
//!
//! A share of samples that is known counts; facts that bias no figure have no weight and are details. Of warnings about
//! one fact, the cause is reported, not its consequences.

use super::Warning;
use crate::report::completeness::share;
use crate::report::measured::Measured;
use crate::report::quality::Miss;
use hbbp_analysis::mix::Method;
use hbbp_code::locate::{PerRing, Unresolved};
use hbbp_model::addr::Ring;
use hbbp_model::advice::Wording;
use hbbp_model::snapshot::loss::LossUnit;

/// Warnings that may bend less are details.
const WORTH_TELLING: f64 = 0.01;

/// A warning with its weight.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct Claim<'a> {
    /// The warning.
    pub(in crate::report) warning: &'a Warning,
    /// The share of the figures that it may bend, 0 to 1.
    pub(in crate::report) weight: f64,
    about: Fact,
}

/// What a warning is about, a cause before what follows from it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Fact {
    /// What the figures are.
    Unit,
    /// Samples that were received but not counted.
    Refused,
    /// Samples that were counted and have no instruction.
    Unresolved,
    /// Samples that were expected and not received.
    Missing,
    /// Samples that were taken after what triggered them.
    Skid,
    /// Too few of them.
    Few,
    /// Executions that branch stacks show too often or too rarely.
    Streams,
    /// Kernel text that differs from the executed text.
    KernelText,
    /// Anything else.
    Other,
}

/// The warnings of all runs from 1 % on, the heaviest first, one for each fact, but for the first line of every output.
pub(in crate::report) fn heaviest<'a>(runs: &'a [Measured<'_>]) -> Vec<Claim<'a>> {
    let n_runs = runs.len().max(1) as f64;
    let claims = runs.iter().flat_map(|run| {
        run.warnings.iter().map(move |warning| Claim {
            warning,
            weight: weight(warning, run) / n_runs,
            about: about(warning),
        })
    });
    let mut claims: Vec<Claim<'_>> = claims.filter(|claim| WORTH_TELLING <= claim.weight).collect();
    claims.sort_by(|a, b| {
        let by_weight = b.weight.total_cmp(&a.weight);
        by_weight
            .then_with(|| a.follows().cmp(&b.follows()))
            .then_with(|| a.about.cmp(&b.about))
    });
    let mut told: Vec<Claim<'_>> = Vec::new();
    for claim in &claims {
        // The cause of a heavier warning is reported instead of it.
        let of_fact = claims.iter().filter(|other| other.about == claim.about);
        let first = of_fact.min_by_key(|other| other.follows()).unwrap_or(claim);
        if told
            .iter()
            .all(|other| other.about != claim.about || claim.about == Fact::Other)
        {
            told.push(if claim.about == Fact::Other {
                *claim
            } else {
                *first
            });
        }
    }
    told.retain(|claim| !claim.warning.is_first_line());
    told
}

impl Claim<'_> {
    /// The sentence.
    pub(in crate::report) fn in_words(&self, wording: Wording) -> String {
        self.warning.in_words(wording)
    }

    /// Whether another warning about the same fact says why: the limits of quality are consequences.
    const fn follows(&self) -> bool {
        matches!(self.warning, Warning::Missed(_))
    }
}

/// What a warning is about.
const fn about(warning: &Warning) -> Fact {
    match warning {
        Warning::NoExecutions(_) | Warning::Bursts | Warning::Relative { .. } => Fact::Unit,
        Warning::Missed(Miss::Counted { .. }) => Fact::Refused,
        Warning::Lost { loss: Some(loss), .. } => match loss.unit() {
            LossUnit::Sample => Fact::Refused,
            LossUnit::Region | LossUnit::Record | LossUnit::Second => Fact::Unresolved,
            LossUnit::Stream => Fact::Streams,
            _ => Fact::Other,
        },
        Warning::Missed(Miss::Resolved { .. }) => Fact::Unresolved,
        Warning::Missed(Miss::Completeness { .. }) | Warning::UnevenCpu { .. } => Fact::Missing,
        Warning::Multiplexed { .. } => Fact::Missing,
        Warning::Imprecise { .. }
        | Warning::AsLanded
        | Warning::Traced { .. }
        | Warning::InterruptsOff { .. }
        | Warning::Unsearched { .. } => Fact::Skid,
        Warning::FewSamples { .. } | Warning::Missed(Miss::NoSamples { .. }) => Fact::Few,
        Warning::Missed(Miss::Residual { .. })
        | Warning::Balanced { .. }
        | Warning::Biased { .. }
        | Warning::Lengths { .. }
        | Warning::Late { .. } => Fact::Streams,
        Warning::NoKernelText | Warning::StaticKernelText { .. } => Fact::KernelText,
        Warning::CountedTogether { .. }
        | Warning::UnknownPeriod { .. }
        | Warning::Unexplained { .. }
        | Warning::Lost { loss: None, .. }
        | Warning::RefusedIn { .. }
        | Warning::Note(_) => Fact::Other,
    }
}

/// The share of the figures of its run that a warning may bend, 0 to 1.
fn weight(warning: &Warning, run: &Measured<'_>) -> f64 {
    let all = &run.accounting;
    let of_samples = |n: u64| share(n, all.reached.saturating_add(n)).unwrap_or(0.0);
    let asked = all.asked();
    let of_asked = |n: u64| share(n, asked.total()).unwrap_or(0.0);
    let weight = match warning {
        Warning::NoExecutions(_)
        | Warning::Bursts
        | Warning::Relative { .. }
        | Warning::Imprecise { .. }
        | Warning::AsLanded
        | Warning::Missed(Miss::NoSamples { .. }) => 1.0,
        Warning::Missed(Miss::Residual { relative, .. }) => relative.abs(),
        Warning::Missed(Miss::Completeness { share, .. } | Miss::Counted { share }) => 1.0 - share,
        Warning::Missed(Miss::Resolved { ring, share }) => {
            let of_ring = match ring {
                Ring::Kernel => asked.kernel,
                Ring::User => asked.user,
            };
            (1.0 - share) * of_asked(of_ring)
        }
        Warning::UnevenCpu { worst, .. } => {
            (1.0 - worst.share) / f64::from(run.snapshot.run.host.n_cpus.max(1))
        }
        Warning::Multiplexed { share, .. } => 1.0 - share,
        // The whole kernel may be patched; of what is not resolved there are no figures.
        Warning::NoKernelText | Warning::StaticKernelText { .. } => of_asked(asked.kernel),
        Warning::Biased { .. } => biased(run),
        Warning::Balanced { excess } => *excess,
        Warning::Lengths { by } => by.abs(),
        Warning::Traced { landed, .. } => *landed,
        Warning::InterruptsOff { share } | Warning::Unsearched { share } => *share,
        // The standard error of a half.
        Warning::FewSamples { n } => 0.5 / (*n as f64).sqrt(),
        Warning::Unexplained { n } => {
            let n = u64::try_from(n.unsigned_abs()).unwrap_or(u64::MAX);
            of_samples(n)
        }
        Warning::Lost {
            n, loss: Some(loss), ..
        } => match loss.unit() {
            LossUnit::Sample | LossUnit::Ambiguous => of_samples(*n),
            LossUnit::Stream => share(*n, run.streams.counted.saturating_add(*n)).unwrap_or(0.0),
            LossUnit::Region | LossUnit::Record | LossUnit::Second => of_asked(without_text(run).total()),
            LossUnit::Entry | LossUnit::Chain | LossUnit::Text | LossUnit::Name => 0.0,
        },
        Warning::Late { .. }
        | Warning::UnknownPeriod { .. }
        | Warning::CountedTogether { .. }
        | Warning::Lost { loss: None, .. }
        | Warning::RefusedIn { .. } => 0.0,
        Warning::Note(note) => run.snapshot.run.share_unmeasured(note),
    };
    weight.clamp(0.0, 1.0)
}

/// Samples whose text is missing, whatever the cause.
fn without_text(run: &Measured<'_>) -> PerRing {
    let reasons = run.accounting.unresolved.iter();
    let missing = reasons.filter(|(reason, _)| *reason != Unresolved::Halted);
    missing.fold(PerRing::default(), |sum, (_, n)| PerRing {
        kernel: sum.kernel.saturating_add(n.kernel),
        user: sum.user.saturating_add(n.user),
    })
}

/// The share of the executions in blocks that count by biased branches.
fn biased(run: &Measured<'_>) -> f64 {
    let blocks = &run.analysis.counts.blocks;
    let instructions = |is_part: &dyn Fn(bool) -> bool| -> f64 {
        let of_part = blocks
            .iter()
            .filter(|block| is_part(block.biased && block.method == Method::Lbr));
        of_part
            .map(|block| block.chosen().count * f64::from(block.instructions))
            .sum()
    };
    let all = instructions(&|_| true);
    if 0.0 < all {
        instructions(&|biased| biased) / all
    } else {
        0.0
    }
}
