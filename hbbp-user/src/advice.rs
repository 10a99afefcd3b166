//! The words of each advice: the only module where what the libraries say names options and commands.
//!
//! A test of [`crate::cli`] holds these words against the definition of the command line.

use hbbp_model::advice::{Advice, Advised};

/// The advice as a clause that may follow a semicolon.
pub const fn words(advice: Advice) -> &'static str {
    match advice {
        Advice::LargerMaps => "raise --map-entries",
        Advice::LargerMapsOrRarerSamples => "raise --map-entries or lower the sampling rate",
        Advice::LongerPeriod => "raise --period",
        Advice::LongerBranchPeriodOrPriority => "raise --branch-period, or run at higher priority (nice)",
        Advice::LongerTimePeriod => "lengthen the period of --time, or --period",
        Advice::ShorterRunOrLongerPeriod => "record for a shorter time, or raise --period",
        Advice::ShorterRunOrLongerBranchPeriod => "record for a shorter time, or raise --branch-period",
        Advice::RarerSamples => "sample more rarely with --period",
        Advice::ShorterPeriodOrWholeSystem => {
            "use a shorter --period, or measure the whole system (with a command: --all)"
        }
        Advice::LongerIntervals => "lengthen the intervals (--interval-size)",
        Advice::LeaveOutTime => "leave out --time to count executions alone",
        Advice::LeaveOutRingsApart => "leave out --rings-apart, or see `hbbp-sys check`",
        Advice::FewerEvents => "leave out --time, --callers or --rings-apart",
        Advice::SampleTheClock => "try `--event cpu-clock`",
        Advice::RecordTime => "record --time",
        Advice::RecordExecutions => "record with --event instructions or branches",
        Advice::CheckMachine => "run `hbbp-sys check` for advice",
        Advice::CountExecutions => "`hbbp-sys check` explains how to get executions",
        Advice::CheckMachineOrSmallerMaps => {
            "run `hbbp-sys check` for what is missing, or lower --map-entries to use less memory"
        }
        Advice::ListPmus => "run `hbbp-sys check` for a list",
        Advice::CheckPermissions => "run `hbbp-sys check` for what is allowed",
        Advice::CheckPermissionsAndFrequency => {
            "run `hbbp-sys check` for what is allowed, and kernel.perf_event_max_sample_rate limits --frequency"
        }
        Advice::OtherDirectory => "choose another --dir",
        Advice::OtherDirectoryElse => "or choose another --dir",
        Advice::NameProgram => "name the program with --binary FILE",
        Advice::NameFiles => {
            "name each with --binary FILE, or with --symfs DIR a folder that holds them at their paths"
        }
        Advice::NameRightFileOrForce => "pass the right file, or use --force",
        Advice::NameDebugFile => "build it with -g, or name the file that has it with --binary FILE",
        Advice::NameDebugFileForLines => "lines need debug information: see --binary",
        Advice::NameKernelImage => {
            "run as root without lockdown=confidentiality, pass --vmlinux FILE, or install the debug package of this \
             kernel"
        }
        Advice::PerSecond => "use --per second",
        Advice::PerInstructions => "use --per instructions",
        Advice::UseRecordedStreams => "`--rule paper` uses them as recorded",
        Advice::TraceBack => "`hbbp-sys report` of a recording traces them back with its default rule",
        Advice::LookCloser => {
            "--by process, module, function or mnemonic; --view isa; --details for all; `hbbp-sys annotate` for code"
        }
        Advice::ListModules => "`hbbp-sys report --by module` lists what ran",
    }
}

/// An error with its causes, and what the user may do.
pub fn error_in_words(error: &anyhow::Error) -> String {
    Advised::of_error(error).in_words(words)
}

/// Notes with what the user may do.
pub(crate) fn notes_in_words(notes: impl IntoIterator<Item = Advised>) -> impl Iterator<Item = String> {
    notes.into_iter().map(|note| note.in_words(words))
}
