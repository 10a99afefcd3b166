//! A span of its own for each command in the guest: `guest-span COMMAND...` marks it, and has its reference written.
//!
//! It appends the number of records that the PMU delivered during the command to `/out/spans`, one line for each span:
//! the `n`th line belongs to the `n`th reference.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use kernel_tests::{cost, mark};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (program, arguments) = words.split_first().context("usage: guest-span COMMAND...")?;
    let before = delivered()?;
    let mut command = Command::new(program);
    // What a workload prints is of no interest, and the console would be part of the span.
    command.args(arguments).stdout(File::create("/dev/null")?);
    mark::start();
    let status = command.status();
    mark::stop();
    let status = status.with_context(|| format!("failed to start {program}"))?;
    let records = delivered()? - before;
    mark::write();
    let mut spans = OpenOptions::new().create(true).append(true).open(cost::SPANS)?;
    writeln!(spans, "{records}")?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}

/// Records that the driver gave to the perf core since it was loaded.
fn delivered() -> Result<u64> {
    let text = fs::read_to_string("/sys/bus/event_source/devices/cpu/hbbp_emu/delivered")?;
    Ok(text.trim().parse()?)
}
