//! hbbp-sys: parse, run, print the error, set the exit code.

use std::io::{self, Write as _};
use std::mem;
use std::process::ExitCode;

use hbbp_model::printable::harmless;
use hbbp_resolve::debuginfod::given_up;
use hbbp_user::advice::error_in_words;
use hbbp_user::cli::Cli;
use hbbp_user::cmd::report::{Strict, WrongUse};
use hbbp_user::cmd::{self, Done};

/// What was said makes no sense; the parser of the command line ends with the same code.
const USAGE: u8 = 2;

/// A condition of a comparison is met, a measurement contradicts a requirement, or it misses a limit of quality under `--strict`.
const QUALITY_MISSED: u8 = 3;

fn main() -> ExitCode {
    keep_freed_memory();
    let cli = Cli::of_process();
    if cli.is_verbose() {
        show_log();
    }
    let strict = cli.strict();
    let job = match cli.into_job() {
        Ok(job) => job,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    let done = cmd::run(&job, &mut std::io::stdout());
    if let Some(why) = given_up() {
        say(&harmless(&format!(
            "no more files are asked for at DEBUGINFOD_URLS: {why}"
        )));
    }
    match done {
        Ok(done) => {
            if let Some(saved) = &done.saved {
                say(&harmless(saved));
            }
            warn(&done.warnings);
            warn(&done.quality.warnings);
            complain_of_requirements(&done);
            let code = exit_code(&done, strict);
            // The end of the process frees the snapshot all at once rather than piece by piece.
            mem::forget(done);
            code
        }
        Err(error) => {
            complain(&error);
            if error.is::<WrongUse>() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Has memory that was freed used again, rather than handed back to the kernel and taken anew: the kernel fills each
/// page with zeros, which was a tenth of the CPU time of a report. Called once, before much memory is used.
#[cfg(target_env = "gnu")]
fn keep_freed_memory() {
    /// Larger pieces are mapped and unmapped; the GNU C library takes no more than this (mallopt(3)).
    const LARGEST_KEPT: libc::c_int = 32 << 20;
    /// Above the peak of any run.
    const KEPT: libc::c_int = 1 << 30;

    // SAFETY: takes numbers only, and changes those of the allocator under its own lock.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_KEPT) };
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT) };
}

/// Other C libraries have no such choice.
#[cfg(not(target_env = "gnu"))]
const fn keep_freed_memory() {}

/// Shows the log on standard error, one line a message; the environment has no say in it.
fn show_log() {
    let level = log::LevelFilter::Info;
    env_logger::Builder::new().filter_level(level).init();
}

/// The exit code of the command that was measured goes first.
fn exit_code(done: &Done, strict: Strict) -> ExitCode {
    match done.command {
        Some(code) if code != 0 => ExitCode::from(code),
        _ if done.is_off => ExitCode::FAILURE,
        _ if done.quality.unmet(strict).next().is_some() => ExitCode::from(QUALITY_MISSED),
        _ if done.gates.iter().any(|gate| gate.failed) => ExitCode::from(QUALITY_MISSED),
        _ if strict == Strict::Yes && !done.quality.misses.is_empty() => ExitCode::from(QUALITY_MISSED),
        _ => ExitCode::SUCCESS,
    }
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        say(&format!("warning: {}", harmless(warning)));
    }
}

/// Says which requirements are not shown to hold; the text of the report has the others.
fn complain_of_requirements(done: &Done) {
    for verdict in done.quality.unmet(Strict::Yes) {
        say(&format!("requirement {}", harmless(&verdict.to_string())));
    }
    for gate in done.gates.iter().filter(|gate| gate.failed) {
        say(&format!("condition {}", harmless(&gate.to_string())));
    }
}

fn complain(error: &anyhow::Error) {
    say(&error_in_words(error));
}

/// Says a sentence, if anybody can hear it: the terminal may be gone.
fn say(sentence: &str) {
    let _ = writeln!(io::stderr(), "hbbp-sys: {sentence}");
}
