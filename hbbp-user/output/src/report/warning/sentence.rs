//! The sentence of each warning.

use std::fmt::{self, Write as _};

use super::Warning;
use crate::report::number::{grouped, percent, several};
use hbbp_model::advice::{Advice, Wording};

impl Warning {
    /// The sentence, with advice in these words.
    pub(crate) fn in_words(&self, wording: Wording) -> String {
        let mut sentence = String::new();
        // Writing to a text does not fail.
        let _ = self.write(wording, &mut sentence);
        sentence
    }

    #[expect(clippy::too_many_lines, reason = "a table")]
    fn write(&self, wording: Wording, f: &mut String) -> fmt::Result {
        match self {
            Self::Missed(miss) => f.write_str(&miss.in_words(wording)),
            Self::NoExecutions(found) => f.write_str(&found.in_words(wording)),
            Self::Bursts => f.write_str(
                "executions are those of user code alone, and without a scale: its branches were emulated, and a model of a core \
                 says how often each ran, to about a fifth of its share; kernel code has time, and both have no sum",
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
                 streams were reweighted to conserve flow and to agree with EBS, and errors hold what that \
                 may have left ({})",
                percent(*excess),
                wording(Advice::UseRecordedStreams)
            ),
            Self::Lengths { by } => write!(
                f,
                "recorded streams have {} % {} instructions for each taken branch than the events counted: branch stacks are read late, \
                 stick to some branches, or miss code; streams were balanced until both agree",
                percent(by.abs()),
                if *by < 0.0 { "fewer" } else { "more" }
            ),
            Self::Late {
                cycles: (least, longest),
            } => write!(
                f,
                "branch stacks were read some {least:.0} to {longest:.0} cycles late, by the branches in their newest slots: \
                 streams were weighted for it"
            ),
            Self::Traced {
                cycles: (least, longest),
                landed,
            } => {
                f.write_str("without branch stacks, samples were traced back to the instructions that triggered them, ")?;
                match *longest < 0.5 {
                    true => f.write_str("without a skid by their fit")?,
                    false => write!(
                        f,
                        "by a skid of {:.0} to {longest:.0} cycles that was fitted to them",
                        least.max(0.0)
                    )?,
                }
                f.write_str(": paths through code with few samples are guesses")?;
                if 0.0 < *landed {
                    write!(
                        f,
                        "; {:.2} % of the samples, in the coldest code, are counted at their own address, as all of it would take too much memory",
                        100.0 * landed
                    )?;
                }
                Ok(())
            }
            Self::AsLanded => write!(
                f,
                "without branch stacks, samples are counted at their own address, which may be some instructions after \
                 those that triggered them: {}, where the hottest code is not too large",
                wording(Advice::TraceBack)
            ),
            Self::CountedTogether { n } => write!(
                f,
                "{} counted together as [other processes]: each stream of theirs runs through thousands of blocks, and rows of \
                 their own would take too much memory",
                several(*n, "process image")
            ),
            Self::InterruptsOff { share } => write!(
                f,
                "{:.2} % of the time is at kernel code that turns interrupts on: it passed before that, with interrupts off, where \
                 the clock cannot see",
                100.0 * share
            ),
            Self::Unsearched { share } => write!(
                f,
                "{:.2} % of the samples came after the bound of the search for what was executed before them: time at the start of \
                 a block is not charged to what it waited for",
                100.0 * share
            ),
            Self::FewSamples { n: 1 } => f.write_str("only 1 sample: nothing can be concluded"),
            Self::FewSamples { n } => {
                write!(
                    f,
                    "only {} samples of code: shares below a few percent are uncertain",
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
            } => f.write_str(&loss.counted(*n, &grouped(*n), wording)),
            Self::Lost { n, id, loss: None } => write!(
                f,
                "{} losses of kind `{id}`, unknown to this version of hbbp-sys",
                grouped(*n)
            ),
            Self::RefusedIn { hottest, others } => {
                f.write_str("branch-stack ring buffers overflowed in ")?;
                for (n, (place, share)) in hottest.iter().enumerate() {
                    let comma = if n == 0 { "" } else { ", " };
                    write!(f, "{comma}{place} {} %", percent(*share))?;
                }
                match others {
                    0 => Ok(()),
                    n => write!(f, ", and {}", several(*n as u64, "other function")),
                }
            }
            Self::Note(note) => f.write_str(note),
        }
    }
}
