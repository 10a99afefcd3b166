//! The command to measure: forked, but held before its exec until the events are open.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;

use anyhow::{Context as _, anyhow};

/// A forked command that waits before its exec.
#[derive(Debug)]
pub(crate) struct PendingChild {
    name: String,
    pid: u32,
    go: PipeWriter,
    starting: JoinHandle<io::Result<Child>>,
}

impl PendingChild {
    /// Forks the command and holds it. `spawn` returns only after the exec, so it is called in another thread.
    pub(crate) fn fork(command: &[OsString]) -> anyhow::Result<Self> {
        let (program, args) = command
            .split_first()
            .ok_or_else(|| anyhow!("no command to run"))?;
        let (mut pid_reader, pid_writer) = io::pipe().context("failed to make a pipe")?;
        let (go_reader, go) = io::pipe().context("failed to make a pipe")?;
        let mut command = Command::new(program);
        command.args(args);
        let hold = hold(pid_writer, go_reader, go.as_raw_fd());
        // SAFETY: between fork and exec the closure only reads, writes and closes pipes, asks for its own pid, unblocks
        // signals and exits, which are safe after a fork (signal-safety(7)).
        unsafe { command.pre_exec(hold) };
        let starting = std::thread::spawn(move || command.spawn());
        let name = program.to_string_lossy().into_owned();
        let mut pid = [0; 4];
        if pid_reader.read_exact(&mut pid).is_err() {
            // The fork failed; the thread has the error.
            return Err(started(starting)
                .err()
                .unwrap_or_else(|| anyhow!("no error was reported")))
            .with_context(|| format!("failed to start {name}"));
        }
        Ok(Self {
            name,
            pid: u32::from_ne_bytes(pid),
            go,
            starting,
        })
    }

    /// Process id of the command.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Name of the program.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Lets the command exec.
    pub(crate) fn release(mut self) -> anyhow::Result<Child> {
        let name = self.name;
        self.go
            .write_all(&[1])
            .with_context(|| format!("failed to start {name}"))?;
        started(self.starting).with_context(|| format!("failed to start {name}"))
    }
}

fn started(starting: JoinHandle<io::Result<Child>>) -> anyhow::Result<Child> {
    Ok(starting
        .join()
        .map_err(|_| anyhow!("the launcher thread failed"))??)
}

fn hold(mut pid: PipeWriter, mut go: PipeReader, parents_end: RawFd) -> impl FnMut() -> io::Result<()> {
    move || {
        // SAFETY: this is the child's copy of a descriptor that only the parent uses. It must go: the parent's end
        // closes without a byte when the parent fails, and then the command must not run.
        unsafe { libc::close(parents_end) };
        unblock_signals()?;
        let held = pid.write_all(&std::process::id().to_ne_bytes());
        if held.and_then(|()| go.read_exact(&mut [0])).is_err() {
            // The parent gave up. An error would be reported to it through a pipe of the standard library. The library aborts
            // with a message of its own where the pipe has no reader any more.
            // SAFETY: ends this process without running anything else of it.
            unsafe { libc::_exit(1) };
        }
        Ok(())
    }
}

/// The program waits for its signals in a thread and blocks them, and the standard library passes that on: the command would
/// live through Ctrl-C, and the program would wait for it.
fn unblock_signals() -> io::Result<()> {
    // SAFETY: a signal set is plain data, which `sigemptyset` sets.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to the set alone.
    unsafe { libc::sigemptyset(&raw mut none) };
    // SAFETY: the set lives until the call returns; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) } {
        0 => Ok(()),
        refused => Err(io::Error::from_raw_os_error(refused)),
    }
}

/// The exit code to pass on: that of the command, or 128 plus the signal number, as in shells.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &[&str]) -> anyhow::Result<u8> {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let pending = PendingChild::fork(&command)?;
        assert_ne!(pending.pid(), 0);
        Ok(exit_code(pending.release()?.wait()?))
    }

    #[test]
    fn exit_code_is_passed_on() {
        assert_eq!(run(&["sh", "-c", "exit 7"]).unwrap(), 7);
        assert_eq!(run(&["sh", "-c", "kill -9 $$"]).unwrap(), 137);
    }

    #[test]
    fn missing_command_is_named() {
        let error = format!("{:#}", run(&["/no/such/program"]).unwrap_err());
        assert!(error.contains("/no/such/program"), "{error}");
    }
}
