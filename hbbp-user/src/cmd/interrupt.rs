//! Ctrl-C, SIGTERM, and the SIGHUP of a terminal that is closed: the first ends the measurement, what was measured is saved
//! or reported, and what else comes within half a second is the same signal: timeout(1) signals its child and then the group
//! of both, a terminal that is closed its group and then its session.
//! A later one opens no more files of processes, so that what is there is saved soon. Where that does not end, or at a third
//! one, the program ends and says what is lost.
//! The first one ends the program if it arrives after the report, while only the command is awaited.
//! Under `nohup` SIGHUP stays ignored.
//!
//! A thread of its own waits for signals, so that the second one is handled at any time. It sleeps until there is one: the
//! measurement runs on the main thread, with the runtime, and its timers wake no other thread. All other threads block these
//! signals: the kernel gives up verifying a program when a signal is pending for the thread that loads it
//! (kernel/bpf/verifier.c, `do_check`).

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use hbbp_resolve::user::haste::Haste;

/// Exit code of an aborted program: 128 plus the number of SIGINT, as in shells.
const ABORTED: i32 = 130;

/// Signals that come within this time are one.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Time to save what there is after a second signal: a reader of our output may never read it.
const LAST_CHANCE: Duration = Duration::from_secs(10);

/// The runtime, and whether the measurement should end; copies share both. A program listens once: what it starts later blocks
/// the signals.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    runtime: Arc<Runtime>,
    signals: Signals,
    ender: Ender,
    haste: Haste,
}

/// Whether the measurement is to end.
#[derive(Clone, Debug)]
pub(crate) struct Signals(watch::Receiver<bool>);

/// Ends the measurement, as the first signal does.
#[derive(Clone, Debug)]
pub struct Ender(watch::Sender<bool>);

impl Ender {
    /// Ends it.
    pub fn end(&self) {
        self.0.send_replace(true);
    }
}

impl Interrupt {
    /// Starts the runtime and listens for signals.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Self::listen_after(|| Ok(()))
    }

    /// The same; the thread that waits for signals does `first` before.
    pub(crate) fn listen_after(
        first: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("failed to set up waiting for events")?;
        let (sender, receiver) = watch::channel(false);
        let ender = Ender(sender);
        let signals = block(ending_signals()).context("failed to block signals")?;
        let (started, start) = sync_channel(1);
        let haste = Haste::default();
        let of_thread = Hearer {
            signals,
            ender: ender.clone(),
            haste: haste.clone(),
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let is_ready = first();
                let goes_on = is_ready.is_ok();
                if started.send(is_ready).is_ok() && goes_on {
                    of_thread.hear();
                }
            })
            .context("failed to start a thread")?;
        start
            .recv()
            .context("the thread of the signals ended unexpectedly")??;
        Ok(Self {
            runtime: Arc::new(runtime),
            signals: Signals(receiver),
            ender,
            haste,
        })
    }

    /// Whether a second signal has asked to come to an end soon.
    pub(crate) fn haste(&self) -> Haste {
        self.haste.clone()
    }

    /// What ends the measurement from another thread.
    pub(crate) fn ender(&self) -> Ender {
        self.ender.clone()
    }

    /// The runtime, and the signals to wait for on it.
    pub(crate) fn parts(&mut self) -> (&Runtime, &mut Signals) {
        (&self.runtime, &mut self.signals)
    }

    /// Waits for a time, or until the measurement is to end.
    pub(crate) fn pause(&mut self, time: Duration) {
        let (runtime, signals) = (&self.runtime, &mut self.signals);
        runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                () = signals.wait() => {}
            }
        });
    }

    /// Whether a signal has ended the measurement.
    pub(crate) fn happened(&self) -> bool {
        *self.signals.0.borrow()
    }

    /// From now on the first signal ends the program, unless there are copies.
    pub(crate) fn abort_at_next(self) {
        drop(self);
    }
}

fn ending_signals() -> impl Iterator<Item = libc::c_int> {
    let hangup = (!ignores_hangup()).then_some(libc::SIGHUP);
    [libc::SIGINT, libc::SIGTERM].into_iter().chain(hangup)
}

/// Blocks the signals on this thread, and on those that it starts. A command has to unblock them before its exec.
fn block(signals: impl Iterator<Item = libc::c_int>) -> io::Result<libc::sigset_t> {
    // SAFETY: a signal set is plain data, which `sigemptyset` sets.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to the set alone.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: the call writes to the set alone, and the number is that of a known signal.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    // SAFETY: the set lives until the call returns; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(set),
        refused => Err(io::Error::from_raw_os_error(refused)),
    }
}

/// Whether the program was started to survive its terminal.
fn ignores_hangup() -> bool {
    let status = procfs::process::Process::myself().and_then(|own| own.status());
    // The lowest bit represents signal 1, which is SIGHUP.
    status.is_ok_and(|status| status.sigign & 1 != 0)
}

/// The thread that waits for signals.
struct Hearer {
    signals: libc::sigset_t,
    ender: Ender,
    haste: Haste,
}

impl Hearer {
    fn hear(&self) {
        self.wait(None);
        // Without a receiver there is nothing left that could end in order.
        if self.ender.0.send(true).is_err() {
            self.abort();
        }
        let first = Instant::now();
        self.wait(None);
        while first.elapsed() < SAME_SIGNAL {
            self.wait(None);
        }
        if self.is_all_saved() {
            self.abort();
        }
        self.haste.begin();
        say("a second signal: what is known now is saved, and no more files are read");
        let second = Instant::now();
        loop {
            let left = LAST_CHANCE.saturating_sub(second.elapsed());
            if !self.wait(Some(left)) || SAME_SIGNAL <= second.elapsed() {
                self.abort();
            }
        }
    }

    /// Waits for a signal, up to some time; returns whether there was one.
    fn wait(&self, time: Option<Duration>) -> bool {
        let time = time.map(|time| libc::timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        loop {
            // SAFETY: the set and the time live until the call returns; what is known of the signal is not asked for.
            if 0 < unsafe { libc::sigtimedwait(&raw const self.signals, std::ptr::null_mut(), time) } {
                return true;
            }
            // A stop and its end interrupt the wait; it fails for nothing else than the time.
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return false;
            }
        }
    }

    /// The measurement was dropped.
    fn is_all_saved(&self) -> bool {
        self.ender.0.is_closed()
    }

    /// Ends the program whatever it is doing; files are written atomically.
    fn abort(&self) -> ! {
        say(if self.is_all_saved() {
            "ended by a signal; what was measured was complete before"
        } else {
            "ended by a signal before what was measured was saved or reported in full: it is lost"
        });
        std::process::exit(ABORTED)
    }
}

/// Says a sentence, if anybody can hear it.
fn say(sentence: &str) {
    let _ = writeln!(io::stderr(), "hbbp-sys: {sentence}");
}

impl Signals {
    /// Returns at the first signal.
    pub(crate) async fn wait(&mut self) {
        if self.0.wait_for(|ended| *ended).await.is_err() {
            // The listener is gone, so no signal will come.
            std::future::pending::<()>().await;
        }
    }
}
