//! Ctrl-C and SIGTERM: the first ends the measurement, the second ends the program. The first one also ends the program
//! if it arrives after the report, while only the command is awaited.

use std::thread;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Exit code of an aborted program: 128 plus the number of SIGINT, as in shells.
const ABORTED: i32 = 130;

/// Whether the measurement is to end.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Starts a thread that listens for signals, so that the second signal is handled at any time.
    pub fn listen() -> anyhow::Result<Self> {
        let (sender, receiver) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let (mut interrupt, mut terminate) = {
            let _context = runtime.enter();
            let listen = |kind| signal(kind).context("failed to listen for signals");
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
        };
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                for received in 0.. {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    // Without a receiver there is nothing left that could end in order.
                    if 0 < received || sender.send(true).is_err() {
                        abort();
                    }
                }
            });
        })?;
        Ok(Self(receiver))
    }

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
