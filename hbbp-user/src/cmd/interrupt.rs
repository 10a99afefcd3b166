//! Ctrl-C, SIGTERM, and the SIGHUP of a terminal that is closed: the first ends the measurement, the second ends the
//! program. The first one also ends the program if it arrives after the report, while only the command is awaited.
//! Under `nohup` SIGHUP stays ignored.
//!
//! A thread of its own waits for signals, so that the second one is handled at any time. It sleeps until there is one: the
//! measurement runs on the main thread, with the runtime, and its timers wake no other thread. All other threads block these
//! signals: the kernel gives up verifying a program when a signal is pending for the thread that loads it
//! (kernel/bpf/verifier.c, `do_check`).

use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// Exit code of an aborted program: 128 plus the number of SIGINT, as in shells.
const ABORTED: i32 = 130;

/// The runtime, and whether the measurement is to end; copies share both. A program listens once: what it starts later
/// blocks the signals.
#[derive(Clone, Debug)]
pub struct Interrupt {
    runtime: Arc<Runtime>,
    signals: Signals,
    ender: Ender,
}

/// Whether the measurement is to end.
#[derive(Clone, Debug)]
pub struct Signals(watch::Receiver<bool>);

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
    pub fn listen() -> anyhow::Result<Self> {
        Self::listen_after(|| Ok(()))
    }

    /// The same; the thread that waits for signals does `first` before.
    pub fn listen_after(first: impl FnOnce() -> anyhow::Result<()> + Send + 'static) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("failed to set up waiting for events")?;
        let (sender, receiver) = watch::channel(false);
        let ender = Ender(sender);
        let signals = block(ending_signals()).context("failed to block signals")?;
        let (started, start) = sync_channel(1);
        let of_thread = ender.clone();
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let is_ready = first();
                let goes_on = is_ready.is_ok();
                if started.send(is_ready).is_ok() && goes_on {
                    hear(&signals, &of_thread);
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
        })
    }

    /// What ends the measurement from another thread.
    pub fn ender(&self) -> Ender {
        self.ender.clone()
    }

    /// The runtime, and the signals to wait for on it.
    pub fn parts(&mut self) -> (&Runtime, &mut Signals) {
        (&self.runtime, &mut self.signals)
    }

    /// Waits for a time, or until the measurement is to end.
    pub fn pause(&mut self, time: Duration) {
        let (runtime, signals) = (&self.runtime, &mut self.signals);
        runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                () = signals.wait() => {}
            }
        });
    }

    /// Whether a signal has ended the measurement.
    pub fn happened(&self) -> bool {
        *self.signals.0.borrow()
    }

    /// From now on the first signal ends the program, unless there are copies.
    pub fn abort_at_next(self) {
        drop(self);
    }
}

fn ending_signals() -> impl Iterator<Item = libc::c_int> {
    let hangup = (!ignores_hangup()).then_some(libc::SIGHUP);
    [libc::SIGINT, libc::SIGTERM].into_iter().chain(hangup)
}

/// Blocks the signals on this thread, and on those that it starts. A program that it executes gets an empty mask from
/// the standard library.
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
    // The lowest bit stands for signal 1, which is SIGHUP.
    status.is_ok_and(|status| status.sigign & 1 != 0)
}

fn hear(signals: &libc::sigset_t, ender: &Ender) {
    for received in 0.. {
        let mut signal = 0;
        // SAFETY: both live until the call returns. It fails only where the set has a number that is no signal.
        unsafe { libc::sigwait(signals, &raw mut signal) };
        // Without a receiver there is nothing left that could end in order.
        if 0 < received || ender.0.send(true).is_err() {
            abort();
        }
    }
}

impl Signals {
    /// Returns at the first signal.
    pub async fn wait(&mut self) {
        if self.0.wait_for(|ended| *ended).await.is_err() {
            // The listener is gone, so no signal will come.
            std::future::pending::<()>().await;
        }
    }
}

#[expect(
    clippy::exit,
    reason = "a second signal must end the program whatever it is doing; files are written atomically"
)]
fn abort() -> ! {
    std::process::exit(ABORTED)
}
