//! `hbbp-sys selftest`: how true a measurement is on this machine, by loads whose executions are known from their construction.
//!
//! ```text
//! loads -- program, counts by instruction --> run_loads (a process of its own; image maps the text)
//!            |                                   | calls and CPU time of each load
//!            |            record, as by default  |
//!            +--> executions, or time on a clock <
//!                    |
//!                 verdict -> text
//! ```

mod executions;
#[cfg(test)]
mod executions_tests;
mod image;
mod loads;
mod program;
#[cfg(test)]
mod program_tests;
mod run_loads;
mod text;
mod time;
mod verdict;

use std::fs::File;
use std::io::{Read as _, Seek as _, Write};
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::fs::{MemfdFlags, memfd_create};

use super::closed_pipe::up_to_a_closed_pipe;
use super::profile_output::open_output;
use super::record::{self, Command, RecordOptions, Recorded, Target};
use executions::{Executions, LoadProcess};
use hbbp_analysis::mix::{Query, analyse};
use hbbp_collect::choice::Choice;
use hbbp_model::snapshot::Snapshot;
use hbbp_model::snapshot::file::Compression;
use hbbp_model::snapshot::run::Period;
use hbbp_output::report::quality;
use image::ADDRESS;
use program::Program;
pub(crate) use run_loads::run as run_loads;
use run_loads::{ROUNDS, Ran};
use verdict::{Found, Tested};

/// What to test, and what to keep.
#[derive(Clone, Debug)]
pub struct SelfTestOptions {
    /// How long the loads run.
    pub time: Duration,
    /// Where the profile goes.
    pub output: Option<PathBuf>,
    /// Period of addresses; `None` for the default.
    pub period: Option<u64>,
    /// Period of branch stacks; `None` for the default.
    pub branch_period: Option<u64>,
}

/// Runs the loads, measures them and prints what is off: whether there is anything.
pub(crate) fn selftest(options: &SelfTestOptions, out: &mut dyn Write) -> anyhow::Result<bool> {
    let output = options.output.as_deref().map(open_output).transpose()?;
    let program = loads::program(ADDRESS, ROUNDS).context("failed to assemble the loads")?;
    let (snapshot, ran) = measured(options)?;
    anyhow::ensure!(
        ran.len() == program.loads.len(),
        "the loads that ran are not those of this program: it was replaced meanwhile"
    );
    let found = found(&snapshot, &program, &ran)?;
    up_to_a_closed_pipe(text::write(&snapshot.run, &found, out))?;
    if let Some(output) = output {
        output.save(std::slice::from_ref(&snapshot), Compression::Fast, out)?;
    }
    Ok(found.is_off())
}

/// Records the whole system while the loads run; what each of them did comes with it.
fn measured(options: &SelfTestOptions) -> anyhow::Result<(Snapshot, Vec<Ran>)> {
    // Inherited by the loads; nothing of it is left when both have ended.
    let counts = memfd_create("hbbp-selftest-counts", MemfdFlags::empty());
    let mut counts = File::from(counts.context("failed to make a file in memory")?);
    let Recorded {
        snapshot, command, ..
    } = record::record(&record_options(options, counts.as_raw_fd())?)?;
    match command {
        Some(Command::Ended(0)) => {}
        Some(Command::Ended(code)) => bail!("the loads ended with exit code {code}"),
        Some(Command::Running(mut child)) => {
            child.kill().context("failed to end the loads")?;
            child.wait().context("failed to wait for the loads")?;
            bail!("interrupted");
        }
        None => bail!("the loads did not start"),
    }
    let mut text = String::new();
    counts.rewind()?;
    counts.read_to_string(&mut text)?;
    let ran = run_loads::parse(&text).context("failed to parse what the loads did")?;
    Ok((snapshot, ran))
}

/// As by default, but for what was asked for.
fn record_options(options: &SelfTestOptions, counts: RawFd) -> anyhow::Result<RecordOptions> {
    let program = std::env::current_exe().context("failed to find this program")?;
    let words = [
        "selftest-loads".to_owned(),
        std::process::id().to_string(),
        counts.to_string(),
        format!("{}ms", options.time.as_millis()),
    ];
    let command = std::iter::once(program.into()).chain(words.map(Into::into));
    Ok(RecordOptions {
        target: Target::SystemDuring(command.collect()),
        choice: Choice {
            period: options.period.map(Period::Fixed),
            branch_period: options.branch_period,
            duration: Some(options.time),
            ..Choice::default()
        },
        ..RecordOptions::default()
    })
}

/// Compares what was measured with what was executed.
fn found(snapshot: &Snapshot, program: &Program, ran: &[Ran]) -> anyhow::Result<Found> {
    let rule = super::rule::read("balanced")?;
    let misses = quality(&analyse(snapshot, &Query::whole(), &rule), snapshot);
    let Some(process) = LoadProcess::find(snapshot) else {
        return Ok(Found::new(Tested::Nothing, &misses));
    };
    let tested = match Executions::of(snapshot, &process, program, ran, &rule) {
        Ok(executions) => Tested::Executions(executions),
        Err(_) => Tested::Time(time::times(snapshot, &process, program, ran, &rule)),
    };
    Ok(Found::new(tested, &misses))
}
