//! hbbp-sys: parse, run, print the error, set the exit code.

use std::process::ExitCode;

use clap::Parser as _;
use hbbp_user::cli::Cli;
use hbbp_user::cmd::{self, Done};

/// What was said makes no sense; the parser of the command line ends with the same code.
const USAGE: u8 = 2;

/// The measurement was done but misses a stated limit of quality, and `--strict` asks to say so.
const QUALITY_MISSED: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let strict = cli.is_strict();
    let job = match cli.into_job() {
        Ok(job) => job,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    match cmd::run(&job, &mut std::io::stdout()) {
        Ok(done) => {
            warn(&done.warnings);
            exit_code(&done, strict)
        }
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// The exit code of the command that was measured goes first.
fn exit_code(done: &Done, strict: bool) -> ExitCode {
    match done.command {
        Some(code) if code != 0 => ExitCode::from(code),
        _ if strict && !done.quality.misses.is_empty() => ExitCode::from(QUALITY_MISSED),
        _ => ExitCode::SUCCESS,
    }
}

#[expect(clippy::print_stderr, reason = "the one place that prints warnings")]
fn warn(warnings: &[String]) {
    for warning in warnings {
        eprintln!("hbbp-sys: warning: {warning}");
    }
}

#[expect(clippy::print_stderr, reason = "the one place that prints errors")]
fn complain(error: &anyhow::Error) {
    eprintln!("hbbp-sys: {error:#}");
}
