//! Ctrl-C, SIGTERM, and the SIGHUP of a terminal that is closed: the first ends the measurement, the second ends the
//! program. The first one also ends the program if it arrives after the report, while only the command is awaited.
//! Under `nohup` SIGHUP stays ignored.
//!
//! The runtime of the program is here. Its one worker thread handles signals, so that the second signal is handled at
//! any time; the measurement runs on the main thread. The main thread blocks these signals: the kernel gives up
//! verifying a program when a signal is pending for the thread that loads it (kernel/bpf/verifier.c, `do_check`).

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
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
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("signals")
            .enable_all()
            .build()
            .context("failed to start a thread")?;
        let (sender, receiver) = watch::channel(false);
        let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
        if !ignores_hangup() {
            kinds.push(SignalKind::hangup());
        }
        let numbers: Vec<libc::c_int> = kinds.iter().map(SignalKind::as_raw_value).collect();
        let signals: Vec<Signal> = {
            let _context = runtime.enter();
            let listen = |kind| signal(kind).context("failed to listen for signals");
            kinds.into_iter().map(listen).collect::<Result<_, _>>()?
        };
        let ender = Ender(sender);
        runtime.spawn(hear(signals, ender.clone()));
        leave_to_worker(&numbers)?;
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

    /// From now on the first signal ends the program, as long as the runtime lives.
    pub fn abort_at_next(self) -> Arc<Runtime> {
        self.runtime
    }
}

/// Blocks the signals on this thread, and on those that it starts. A program that it executes gets an empty mask from
/// the standard library.
fn leave_to_worker(signals: &[libc::c_int]) -> anyhow::Result<()> {
    // SAFETY: a signal set is plain data, which `sigemptyset` sets.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to the set alone.
    unsafe { libc::sigemptyset(&raw mut set) };
    for &signal in signals {
        // SAFETY: the call writes to the set alone, and the number is that of a known signal.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    // SAFETY: the set lives until the call returns; the old mask is not asked for.
    let refused = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if refused == 0 {
        Ok(())
    } else {
        Err(std::io::Error::from_raw_os_error(refused)).context("failed to block signals on the main thread")
    }
}

/// Whether the program was started to survive its terminal.
fn ignores_hangup() -> bool {
    let status = procfs::process::Process::myself().and_then(|own| own.status());
    // The lowest bit stands for signal 1, which is SIGHUP.
    status.is_ok_and(|status| status.sigign & 1 != 0)
}

/// Waits for the next of any of the signals.
async fn next(signals: &mut [Signal]) {
    std::future::poll_fn(|context| {
        let mut received = signals.iter_mut().map(|signal| signal.poll_recv(context));
        if received.any(|received| received.is_ready()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

async fn hear(mut signals: Vec<Signal>, ender: Ender) {
    for received in 0.. {
        next(&mut signals).await;
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
