//! Watches a guest: its log is read as it comes, and a guest that cannot end well is ended.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::guest;

/// Lines of a kernel after which no verdict can be trusted, and what they mean.
const FATAL: [(&str, &str); 7] = [
    ("Kernel panic", "the guest's kernel panicked"),
    ("Oops: ", "the guest's kernel failed"),
    ("BUG: ", "the guest's kernel failed"),
    ("general protection fault", "the guest's kernel failed"),
    ("soft lockup", "a CPU of the guest was stuck"),
    ("self-detected stall", "a CPU of the guest stalled"),
    ("blocked for more than", "a task of the guest hung"),
];
/// Lines of the log that an error shows.
const SHOWN: usize = 60;
/// Time a guest gets to say more after a fatal line, and to power off after its verdict.
const GRACE: Duration = Duration::from_secs(10);

/// A run that came to its end.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) exit_code: i32,
    pub(crate) log: String,
    pub(crate) took: Duration,
}

/// Ends the process when it goes out of scope, whatever happened before.
pub(crate) struct Running(Child);

impl Running {
    /// Starts an emulator whose outputs are to be read.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().with_context(|| {
            format!(
                "failed to start {}: install qemu-system-x86",
                command.get_program().to_string_lossy()
            )
        })?;
        Ok(Self(child))
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// The lines of both its outputs as they come; the last one is followed by a disconnection.
    pub(crate) fn lines(&mut self) -> mpsc::Receiver<String> {
        let (lines, received) = mpsc::channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            self.0.stdout.take().map(|stream| Box::new(stream) as _),
            self.0.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        for output in outputs.into_iter().flatten() {
            let lines = lines.clone();
            std::thread::spawn(move || send_lines(output, &lines));
        }
        received
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; then both say so and there is nothing left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the emulator until the guest's verdict; `started` is called once it runs.
///
/// # Errors
/// When the guest panics, stalls, hangs, ends without a verdict, or takes longer than `limit`.
pub(crate) fn watch(
    command: &mut Command,
    limit: Duration,
    started: impl FnOnce(&mut Running) -> Result<()>,
) -> Result<Verdict> {
    let began = Instant::now();
    let mut running = Running::start(command)?;
    let received = running.lines();
    if let Err(error) = started(&mut running) {
        drop(running);
        let log: Vec<String> = received.iter().map(|line| line + "\n").collect();
        return Err(error.context(format!("the guest did not start{}", tail(&log.concat()))));
    }
    let mut log = String::new();
    let mut exit_code = None;
    let mut fatal = None;
    let mut deadline = began + limit;
    loop {
        match received.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                log.push_str(&line);
                log.push('\n');
                if let Some((_, code)) = line.split_once(guest::VERDICT) {
                    // The kernel may say something of its own before the line ends.
                    let is_number = |c: char| c.is_ascii_digit() || c == '-';
                    exit_code = code
                        .split(|c| !is_number(c))
                        .next()
                        .and_then(|code| code.parse().ok());
                    deadline = deadline.min(Instant::now() + GRACE);
                }
                let found = FATAL.iter().find(|(marker, _)| line.contains(marker));
                if let (Some((_, meaning)), None) = (found, fatal) {
                    fatal = Some(*meaning);
                    deadline = deadline.min(Instant::now() + GRACE);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if fatal.is_none() && exit_code.is_none() {
                    bail!(
                        "the guest gave no verdict within {} s{}",
                        limit.as_secs(),
                        tail(&log)
                    );
                }
                break;
            }
        }
    }
    match (fatal, exit_code) {
        (Some(meaning), _) => bail!("{meaning}{}", tail(&log)),
        (None, None) => bail!("the guest ended without a verdict{}", tail(&log)),
        (None, Some(exit_code)) => Ok(Verdict {
            exit_code,
            log,
            took: began.elapsed(),
        }),
    }
}

fn send_lines(stream: impl Read, lines: &mpsc::Sender<String>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while let Ok(1..) = reader.read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        // The watcher has left: the remainder is unwanted.
        if lines.send(text).is_err() {
            return;
        }
    }
}

/// The end of the guest's log from its first fatal line on, to be appended to an error.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let is_fatal = |line: &&str| FATAL.iter().any(|(marker, _)| line.contains(marker));
    let fatal = lines.iter().position(is_fatal).unwrap_or(lines.len());
    // The kernel says what failed some lines before it says that something did.
    let from = lines.len().saturating_sub(SHOWN).min(fatal.saturating_sub(5));
    format!(
        "; the end of its log:\n{}",
        lines.get(from..).unwrap_or_default().join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(script: &str, limit: Duration) -> Result<Verdict> {
        watch(Command::new("sh").args(["-c", script]), limit, |_| Ok(()))
    }

    #[test]
    fn verdict_is_the_exit_code() {
        let verdict = watched("echo boot; echo 'hbbp-vm: exit code 3'", Duration::from_secs(20)).unwrap();
        assert_eq!(verdict.exit_code, 3);
        assert!(verdict.log.starts_with("boot\n"));
    }

    /// A word of the kernel on the line of the verdict is none of it.
    #[test]
    fn kernel_message_on_the_verdict_line_is_ignored() {
        let script = "echo 'hbbp-vm: exit code 7[   25.402972] reboot: Power down'";
        let verdict = watched(script, Duration::from_secs(20)).unwrap();
        assert_eq!(verdict.exit_code, 7);
    }

    #[test]
    fn no_verdict_is_an_error_with_the_log() {
        let error = watched("echo only this", Duration::from_secs(20))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("without a verdict") && error.contains("only this"),
            "{error}"
        );
    }

    #[test]
    fn hang_ends_at_the_limit() {
        // The watchdog ends the process: otherwise this would wait for a day.
        let error = watched("echo started; exec sleep 1d", Duration::from_secs(2))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no verdict within") && error.contains("started"),
            "{error}"
        );
    }

    #[test]
    fn panic_is_an_error_even_with_a_verdict() {
        let script = "echo '[ 1.0] Kernel panic - not syncing'; echo 'hbbp-vm: exit code 0'";
        let error = watched(script, Duration::from_secs(20)).unwrap_err().to_string();
        assert!(error.starts_with("the guest's kernel panicked"), "{error}");
    }
}
