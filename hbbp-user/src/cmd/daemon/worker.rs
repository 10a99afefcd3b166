//! The process that parses files of other users for the daemon: without capabilities, with limits of memory and time, and
//! with no more than the files that it is handed.
//!
//! ```text
//! daemon -- a socket for a new worker --> supervisor -- fork --> worker
//!        ========== files, answers (resolve/parser) ==========>
//! ```
//!
//! The supervisor is forked before the daemon has threads. It starts a worker for each socket that it is sent, and ends
//! the one before. All of it ends with the daemon.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, kill_process, setrlimit, wait};
use rustix::thread::set_name;
use rustix::time::{ClockId, clock_gettime};

use super::counters::{Counter, Counters};
use super::privileges;
use crate::resolve::parser::serve::serve;
use crate::resolve::parser::{Failure, Parser, Worker, receive, send};

/// Memory of a worker beyond that of the program itself, in bytes: the largest tables are 64 MiB, parsed and encoded.
const MEMORY: u64 = 512 << 20;
/// CPU time in seconds at which a worker is killed.
const CPU_LIMIT: u64 = 10;
/// CPU time after which a worker is replaced when it has answered, so that the next file has its time, too.
const CPU_SPENT: Duration = Duration::from_secs(5);
/// Files that are open at once in a worker.
const FILES: u64 = 16;

/// What is said to the supervisor with a socket.
const START: u8 = 1;
/// The first descriptor that a process need not have.
const AFTER_STANDARD: RawFd = 3;

/// Starts the supervisor; to be called before any other thread is started, with the rights that it is to have at most.
pub(super) fn start(counters: &Arc<Counters>) -> anyhow::Result<Parser> {
    let (control, its) = UnixStream::pair().context("failed to start the worker that parses files")?;
    // SAFETY: no other thread runs that could hold a lock.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()).context("failed to start the worker that parses files"),
        0 => end_after(|| supervise(its)),
        _ => {}
    }
    let of_start = Arc::clone(counters);
    let start = move |socket: OwnedFd| {
        of_start.add(Counter::Workers, 1);
        send(&control, START, &[socket.as_fd()])
    };
    let counters = Arc::clone(counters);
    let tell = move |failure| {
        let counter = match failure {
            Failure::TimedOut => Counter::FilesTimedOut,
            Failure::Ended => Counter::FilesGivenUp,
            Failure::Invalid => Counter::FilesMisread,
        };
        counters.add(counter, 1);
    };
    Ok(Parser::apart(Worker::new(start, tell)))
}

/// Does the work of a process that was forked, and ends it.
fn end_after(work: impl FnOnce() -> anyhow::Result<()>) -> ! {
    let code = i32::from(work().is_err());
    // SAFETY: ends the process; what its parent has open or registered is not touched.
    unsafe { libc::_exit(code) }
}

/// Starts workers until the daemon ends.
fn supervise(control: UnixStream) -> anyhow::Result<()> {
    set_name(c"parser-start")?;
    privileges::limit_thread()?;
    ignore_ends();
    let control = keep_alone(control.into())?;
    let mut running: Option<Pid> = None;
    while let Some((_, sockets)) = receive(&control)? {
        // It is not waited for: a file system that does not answer may hold it.
        running.map(|worker| kill_process(worker, Signal::KILL));
        while let Ok(Some((ended, _))) = wait(WaitOptions::NOHANG) {
            running = running.filter(|worker| *worker != ended);
        }
        let Some(socket) = sockets.into_iter().next() else {
            continue;
        };
        // SAFETY: this process has one thread.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            drop(control);
            end_after(|| work(socket.into()));
        }
        running = Pid::from_raw(forked).filter(|_| 0 < forked);
    }
    running.map(|worker| kill_process(worker, Signal::KILL));
    Ok(())
}

/// Parses, within limits.
fn work(socket: OwnedFd) -> anyhow::Result<()> {
    set_name(c"parser")?;
    let socket = keep_alone(socket)?;
    let own_size = procfs::process::Process::myself()?.stat()?.vsize;
    let limits = [
        (Resource::As, own_size.saturating_add(MEMORY)),
        (Resource::Cpu, CPU_LIMIT),
        (Resource::Nofile, FILES),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
    ];
    for (resource, most) in limits {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit)?;
    }
    privileges::limit_parser()?;
    serve(&UnixStream::from(socket), is_spent)?;
    Ok(())
}

fn is_spent() -> bool {
    let time = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime));
    time.is_ok_and(|time| CPU_SPENT <= time)
}

/// Closes all descriptors but the standard ones and this one, which gets another number.
fn keep_alone(kept: OwnedFd) -> anyhow::Result<OwnedFd> {
    let kept = if kept.as_raw_fd() == AFTER_STANDARD {
        kept
    } else {
        // SAFETY: what has this number is not used any more in this process, and never by its number.
        let moved = unsafe { libc::dup3(kept.as_raw_fd(), AFTER_STANDARD, libc::O_CLOEXEC) };
        anyhow::ensure!(moved == AFTER_STANDARD, io::Error::last_os_error());
        drop(kept);
        // SAFETY: the descriptor was just made.
        unsafe { OwnedFd::from_raw_fd(moved) }
    };
    let kept = kept.into_raw_fd();
    // SAFETY: what is closed belongs to the daemon; this process never uses it again.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, kept + 1, RawFd::MAX, 0) };
    anyhow::ensure!(closed == 0, io::Error::last_os_error());
    // SAFETY: it is open, and was given up above.
    Ok(unsafe { OwnedFd::from_raw_fd(kept) })
}

/// Signals that end the daemon in order reach all processes of a terminal or service; the last interval still needs files
/// parsed. It ends when the daemon closes its socket.
fn ignore_ends() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: sets how a signal is handled, to a handler that is not code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
