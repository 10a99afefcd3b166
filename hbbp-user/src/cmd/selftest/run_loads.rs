//! The process that runs the loads: each in turn, again and again, until the time is over.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use rustix::time::{ClockId, clock_gettime};

use super::image::{ADDRESS, Mapped};
use super::loads::{MEMORY, program};

/// Rounds of the loops of each call: some 0.1 ms, so that the clock is seldom read.
pub(super) const ROUNDS: u32 = 400;

/// How long a load runs at least until it is the turn of the next one: short, so that all of them have the same neighbours.
const TURN: Duration = Duration::from_millis(2);

/// Successive loads run for one to this many turns, so that time which is at another load shows.
const LENGTHS: u32 = 4;

/// What a load did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ran {
    /// Calls of it.
    pub(super) calls: u64,
    /// Its CPU time, kernel code included, in ns.
    pub(super) cpu: u64,
}

/// Runs the loads for a time, and writes a line `CALLS CPU_NS` for each to an inherited descriptor. `parent` is the process that
/// asks, with whose end this one ends.
pub(crate) fn run(parent: u32, counts: RawFd, time: Duration) -> anyhow::Result<()> {
    end_with(parent)?;
    let mapped = program(ADDRESS, ROUNDS).context("failed to assemble the loads")?;
    let mapped = Mapped::new(mapped).context("failed to map the loads")?;
    let mut memory = vec![0u8; MEMORY as usize];
    let zero = File::open("/dev/zero").context("failed to open /dev/zero")?;
    let mut ran = vec![Ran::default(); mapped.loads().count()];
    let start = Instant::now();
    while start.elapsed() < time {
        let lengths = (1..=LENGTHS).cycle();
        for (((_, entry), ran), length) in mapped.loads().zip(&mut ran).zip(lengths) {
            let (turn, before) = (Instant::now(), cpu());
            while turn.elapsed() < TURN * length {
                entry(memory.as_mut_ptr(), zero.as_raw_fd());
                ran.calls += 1;
            }
            ran.cpu += cpu().saturating_sub(before);
        }
    }
    let path = PathBuf::from(format!("/proc/self/fd/{counts}"));
    let mut out = File::options()
        .write(true)
        .open(path)
        .context("failed to report what ran")?;
    for ran in &ran {
        writeln!(out, "{} {}", ran.calls, ran.cpu).context("failed to report what ran")?;
    }
    Ok(())
}

/// CPU time of this thread, in ns.
fn cpu() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Ends this process when its parent does, even if that is killed.
fn end_with(parent: u32) -> anyhow::Result<()> {
    let parent = i32::try_from(parent).ok().and_then(Pid::from_raw);
    let parent = parent.context("no process has the id of the parent")?;
    let end = pidfd_open(parent, PidfdFlags::empty()).context("the parent has ended")?;
    // Only now it is certain that the descriptor is that of the parent, not of another process with its id.
    ensure!(getppid() == Some(parent), "the parent has ended");
    std::thread::spawn(move || {
        while poll(&mut [PollFd::new(&end, PollFlags::IN)], None).is_err() {}
        // SAFETY: ends this process, which holds nothing that others use.
        unsafe { libc::_exit(1) }
    });
    Ok(())
}

/// Reads what [`run`] wrote; `None` if it did not get to its end.
pub(super) fn parse(text: &str) -> Option<Vec<Ran>> {
    let lines = text.lines().map(|line| {
        let (calls, cpu) = line.split_once(' ')?;
        Some(Ran {
            calls: calls.parse().ok()?,
            cpu: cpu.parse().ok()?,
        })
    });
    lines.collect()
}
