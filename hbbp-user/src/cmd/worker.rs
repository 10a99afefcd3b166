//! The processes that parse files of other users for a measurement. They have no capabilities, limits of memory and time,
//! and only the files that they are handed.
//!
//! ```text
//! hbbp-sys -- a socket for a new worker --> supervisor -- fork --> workers
//!          =========== files, answers (resolve/parser) ==========>
//! ```
//!
//! The supervisor is forked before the program has threads. It starts a worker for each socket that it is sent, and ends
//! the one before of the same task. A worker that has ended is reaped at once. All of it ends with the program.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, kill_process, pidfd_open, setrlimit, waitpid,
};
use rustix::thread::{set_name, set_no_new_privs};
use rustix::time::{ClockId, clock_gettime};

use super::privileges;
use hbbp_elf::parser::serve::serve;
use hbbp_elf::parser::{FILE_CPU, Failure, Parser, Worker, receive, send};

/// Memory of a worker beyond that of the program itself, in bytes: the largest tables are 64 MiB, parsed and encoded.
const MEMORY: u64 = 512 << 20;
/// CPU time in seconds at which a worker is killed, as it may raise the limit per file that it sets itself.
const CPU_LIMIT: u64 = 10;
/// Files that are open at once in a worker.
const FILES: u64 = 16;

/// What workers do, as the supervisor receives it with a socket.
const LAYOUTS: u8 = 0;
const TABLES: u8 = 1;
/// The first descriptor that a process need not have.
const AFTER_STANDARD: RawFd = 3;

/// What happens to workers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Event {
    /// One was started.
    Started,
    /// A file was not parsed.
    Failed(Failure),
}

/// Starts the supervisor. Call it before any other thread is started; it never has more rights than the caller has then. `tell`
/// receives what happens to workers.
pub(super) fn start(tell: impl Fn(Event) + Clone + Send + 'static) -> anyhow::Result<Parser> {
    let (control, its) = UnixStream::pair().context("failed to start the worker that parses files")?;
    // SAFETY: no other thread runs that could hold a lock.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()).context("failed to start the worker that parses files"),
        0 => end_after(|| supervise(its)),
        _ => {}
    }
    let control = Arc::new(control);
    let worker = |task: u8| {
        let (control, started, failed) = (Arc::clone(&control), tell.clone(), tell.clone());
        let start = move |socket: OwnedFd| {
            started(Event::Started);
            send(&*control, task, &[socket.as_fd()])
        };
        Worker::new(start, move |failure| failed(Event::Failed(failure)))
    };
    Ok(Parser::apart(worker(LAYOUTS), worker(TABLES)))
}

/// Does the work of a process that was forked, and ends it.
fn end_after(work: impl FnOnce() -> anyhow::Result<()>) -> ! {
    let code = i32::from(work().is_err());
    // SAFETY: ends the process; what its parent has open or registered is not touched.
    unsafe { libc::_exit(code) }
}

/// Starts workers until the program ends.
fn supervise(control: UnixStream) -> anyhow::Result<()> {
    set_name(c"parser-start")?;
    set_no_new_privs(true)?;
    privileges::limit_thread()?;
    ignore_ends();
    let control = keep_alone(control.into())?;
    let mut workers: Vec<Forked> = Vec::new();
    loop {
        reap_until_asked(&control, &mut workers)?;
        let Some((task, sockets)) = receive(&control)? else {
            break;
        };
        // It is not waited for: a file system that does not answer may hold it.
        workers
            .iter()
            .filter(|worker| worker.task == task)
            .for_each(Forked::kill);
        let Some(socket) = sockets.into_iter().next() else {
            continue;
        };
        // SAFETY: this process has one thread.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            drop(control);
            end_after(|| work(socket.into()));
        }
        if let Some(pid) = Pid::from_raw(forked).filter(|_| 0 < forked) {
            let end = pidfd_open(pid, PidfdFlags::empty()).ok();
            workers.push(Forked { task, pid, end });
        }
    }
    workers.iter().for_each(Forked::kill);
    Ok(())
}

/// A worker that was forked, and is not reaped yet: no other process can have its id.
struct Forked {
    task: u8,
    pid: Pid,
    /// Readable when it has ended. Where there is none, its end is seen with the next question.
    end: Option<OwnedFd>,
}

impl Forked {
    fn kill(&self) {
        let _ = kill_process(self.pid, Signal::KILL);
    }

    /// Whether it has not ended; where it has, it is reaped.
    fn is_running(&self) -> bool {
        matches!(
            waitpid(Some(self.pid), WaitOptions::NOHANG),
            Ok(None) | Err(Errno::INTR)
        )
    }
}

/// Reaps workers as they end, until a socket for a new one comes or the program ends.
fn reap_until_asked(control: &OwnedFd, workers: &mut Vec<Forked>) -> anyhow::Result<()> {
    loop {
        workers.retain(Forked::is_running);
        let ends = workers.iter().filter_map(|worker| worker.end.as_ref());
        let mut waited: Vec<PollFd<'_>> = std::iter::once(PollFd::new(control, PollFlags::IN))
            .chain(ends.map(|end| PollFd::new(end, PollFlags::IN)))
            .collect();
        match poll(&mut waited, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("failed to wait for workers"),
        }
        if waited
            .first()
            .is_some_and(|control| !control.revents().is_empty())
        {
            workers.retain(Forked::is_running);
            return Ok(());
        }
    }
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
    serve(&UnixStream::from(socket), limit_file, cpu)?;
    Ok(())
}

/// Begins the CPU time that a file may take: the kernel ends this process after it (setitimer(2), SIGPROF).
fn limit_file() {
    let seconds = libc::time_t::try_from(FILE_CPU.as_secs()).unwrap_or(1);
    let time = libc::timeval {
        tv_sec: seconds,
        tv_usec: 0,
    };
    let once = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: time,
    };
    // SAFETY: the new value lives until the call returns; the old one is not asked for.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const once, std::ptr::null_mut()) };
}

fn cpu() -> Duration {
    let time = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime));
    time.unwrap_or_default()
}

/// Closes all descriptors but this one, which gets another number. The standard ones lead to /dev/null, so that a reader of
/// our output waits for this program alone.
fn keep_alone(kept: OwnedFd) -> anyhow::Result<OwnedFd> {
    let kept = if kept.as_raw_fd() == AFTER_STANDARD {
        kept
    } else {
        // SAFETY: this process no longer uses the descriptor with this number, and never did so by number.
        let moved = unsafe { libc::dup3(kept.as_raw_fd(), AFTER_STANDARD, libc::O_CLOEXEC) };
        anyhow::ensure!(moved == AFTER_STANDARD, io::Error::last_os_error());
        drop(kept);
        // SAFETY: the descriptor was just made.
        unsafe { OwnedFd::from_raw_fd(moved) }
    };
    let kept = kept.into_raw_fd();
    // SAFETY: what is closed belongs to the program; this process never uses it again.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, kept + 1, RawFd::MAX, 0) };
    anyhow::ensure!(closed == 0, io::Error::last_os_error());
    close_standard()?;
    // SAFETY: it is open, and was given up above.
    Ok(unsafe { OwnedFd::from_raw_fd(kept) })
}

/// Has the standard descriptors lead nowhere.
fn close_standard() -> anyhow::Result<()> {
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    for standard in 0..AFTER_STANDARD {
        // SAFETY: nothing of this process holds one of these by its number.
        let moved = unsafe { libc::dup2(nowhere.as_raw_fd(), standard) };
        anyhow::ensure!(moved == standard, io::Error::last_os_error());
    }
    Ok(())
}

/// Signals that end the program in order reach all processes of a terminal or service; the last interval still needs files
/// parsed. It ends when the program closes its socket. A worker ends with the time of its file whatever the program was
/// started with.
fn ignore_ends() {
    // SAFETY: sets how a signal is handled, to the default.
    unsafe { libc::signal(libc::SIGPROF, libc::SIG_DFL) };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: sets how a signal is handled, to a handler that is not code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Child, Command};
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// Longer than a busy machine takes to end a process.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn child(command: &[&str]) -> Child {
        Command::new(command[0]).args(&command[1..]).spawn().unwrap()
    }

    fn forked(child: &Child) -> Forked {
        let pid = Pid::from_child(child);
        Forked {
            task: LAYOUTS,
            pid,
            end: Some(pidfd_open(pid, PidfdFlags::empty()).unwrap()),
        }
    }

    fn wait_for_end(child: &Child) {
        let (path, start) = (format!("/proc/{}", child.id()), Instant::now());
        while Path::new(&path).exists() {
            assert!(start.elapsed() < PATIENCE, "it is not reaped");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn workers_that_end_are_reaped_without_a_request() {
        let (control, its) = UnixStream::pair().unwrap();
        let children = [
            child(&["true"]),
            child(&["sleep", "1000"]),
            child(&["sleep", "1000"]),
        ];
        let mut workers: Vec<Forked> = children.iter().map(forked).collect();
        let pids = children.each_ref().map(Pid::from_child);
        let reaping = thread::spawn(move || {
            reap_until_asked(&its.into(), &mut workers).unwrap();
            workers.len()
        });
        let [ended, killed, running] = &children;
        wait_for_end(ended);
        kill_process(pids[1], Signal::KILL).unwrap();
        wait_for_end(killed);
        send(&control, LAYOUTS, &[]).unwrap();
        assert_eq!(reaping.join().unwrap(), 1, "one runs on");
        kill_process(pids[2], Signal::KILL).unwrap();
        assert!(
            waitpid(Some(pids[2]), WaitOptions::empty()).is_ok(),
            "{}",
            running.id()
        );
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "what is tested reaps it")]
    fn worker_without_a_descriptor_is_reaped_with_the_next_question() {
        let (control, its) = UnixStream::pair().unwrap();
        let ended = child(&["true"]);
        let mut workers = vec![Forked {
            end: None,
            ..forked(&ended)
        }];
        // Readable when it has ended, which is then not reaped yet.
        let end = pidfd_open(Pid::from_child(&ended), PidfdFlags::empty()).unwrap();
        poll(&mut [PollFd::new(&end, PollFlags::IN)], None).unwrap();
        send(&control, LAYOUTS, &[]).unwrap();
        reap_until_asked(&its.into(), &mut workers).unwrap();
        assert!(workers.is_empty());
        wait_for_end(&ended);
    }
}
