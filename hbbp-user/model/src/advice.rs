//! What the user may do about a loss, a refusal or a limit, in terms of the measurement.
//!
//! The libraries know no command line. They hand over an [`Advice`], and the program puts it into words that name its
//! options and commands ([`Wording`]).

use std::fmt;

macro_rules! advice {
    ($($variant:ident, $what:literal;)*) => {
        /// What the user may do.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Advice {
            $(#[doc = $what] $variant,)*
        }

        impl Advice {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
        }
    };
}

advice! {
    LargerMaps, "Make the maps in the kernel larger.";
    LargerMapsOrRarerSamples, "Make the maps in the kernel larger, or sample more rarely.";
    LongerPeriod, "Lengthen the period of the event.";
    LongerBranchPeriodOrPriority, "Lengthen the period of branch stacks, or run the tool at higher priority.";
    LongerTimePeriod, "Lengthen the period of the samples of time.";
    ShorterRunOrLongerPeriod, "Record for a shorter time, or lengthen the period of the event.";
    ShorterRunOrLongerBranchPeriod, "Record for a shorter time, or lengthen the period of branch stacks.";
    RarerSamples, "Sample more rarely.";
    ShorterPeriodOrWholeSystem, "Shorten the period, or measure the whole system.";
    LongerIntervals, "Lengthen the intervals of basic block vectors.";
    LeaveOutTime, "Sample only executions, not time.";
    LeaveOutRingsApart, "Sample both rings with one event.";
    FewerEvents, "Leave out what is sampled in addition to the mix.";
    SampleTheClock, "Sample a clock.";
    RecordTime, "Sample time in addition to executions.";
    RecordExecutions, "Sample an event that counts executions.";
    CheckMachine, "Look up what this machine lacks.";
    CountExecutions, "Look up how this machine can count executions.";
    CheckMachineOrSmallerMaps, "Look up what this machine lacks, or make the maps in the kernel smaller.";
    ListPmus, "Look up the PMUs of this machine.";
    CheckPermissions, "Look up what the kernel allows.";
    CheckPermissionsAndFrequency, "Look up what the kernel allows, and mind the limit of samples a second.";
    OtherDirectory, "Choose another directory for the segments.";
    OtherDirectoryElse, "Choose another directory, where the first one cannot be given away.";
    NameProgram, "Name the file of the program that was recorded.";
    NameFiles, "Name the files that ran, or a folder that holds them.";
    NameRightFileOrForce, "Name the file that ran, or accept another one.";
    NameDebugFile, "Build the file with debug information, or name the file that holds it.";
    NameDebugFileForLines, "Name files with debug information, which source lines need.";
    NameKernelImage, "Make the live kernel text readable, or name an image of the kernel.";
    PerSecond, "Compare amounts per second.";
    PerInstructions, "Compare amounts per thousand instructions.";
    UseRecordedStreams, "Choose the rule that uses streams as they were recorded.";
    TraceBack, "Report on a recording, whose samples are traced back.";
    LookCloser, "Ask for other tables, for code, or for the whole report.";
    ListModules, "List the modules that ran.";
}

/// Puts advice into words: a clause that may follow a semicolon.
pub type Wording = fn(Advice) -> &'static str;

/// A sentence, and what the user may do about it.
///
/// It is a note of a run, or an error; [`Advice`] is found in a chain of errors by [`in_error`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Advised {
    /// The sentence without the advice.
    pub text: String,
    /// What the user may do.
    pub advice: Option<Advice>,
}

impl Advised {
    /// A sentence with advice.
    pub fn new(text: impl Into<String>, advice: impl Into<Option<Advice>>) -> Self {
        Self {
            text: text.into(),
            advice: advice.into(),
        }
    }

    /// An error with its causes.
    pub fn of_error(error: &anyhow::Error) -> Self {
        Self {
            text: format!("{error:#}"),
            advice: in_error(error),
        }
    }

    /// The sentence and the advice in words.
    pub fn in_words(&self, wording: Wording) -> String {
        followed(&self.text, self.advice, wording)
    }
}

impl From<String> for Advised {
    fn from(text: String) -> Self {
        Self { text, advice: None }
    }
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Advised {}

/// A sentence followed by advice in words, where there is some.
pub fn followed(text: &str, advice: Option<Advice>, wording: Wording) -> String {
    match advice {
        Some(advice) => format!("{text}; {}", wording(advice)),
        None => text.to_owned(),
    }
}

/// The advice of the outermost error that has some.
pub(crate) fn in_error(error: &anyhow::Error) -> Option<Advice> {
    error.downcast_ref::<Advised>().and_then(|error| error.advice)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn advice_is_found_after_and_before_other_errors() {
        let error = anyhow::Error::from(Advised::new("no room", Advice::LargerMaps));
        let error = error.context("failed to measure");
        assert_eq!(in_error(&error), Some(Advice::LargerMaps));
        let failed: Result<(), _> = Err(std::io::Error::other("refused"));
        let error = failed.context(Advised::new("failed to load", Advice::CheckMachine));
        let error = error.context("failed to measure").unwrap_err();
        assert_eq!(in_error(&error), Some(Advice::CheckMachine));
        assert_eq!(format!("{error:#}"), "failed to measure: failed to load: refused");
        assert_eq!(in_error(&anyhow::anyhow!("refused")), None);
    }

    #[test]
    fn advice_follows_its_sentence() {
        let note = Advised::new("no room", Advice::LargerMaps);
        assert_eq!(note.in_words(|_| "make some"), "no room; make some");
        assert_eq!(
            Advised::from("no room".to_owned()).in_words(|_| "make some"),
            "no room"
        );
    }
}
