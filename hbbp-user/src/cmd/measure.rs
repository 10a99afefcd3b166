//! The event loop of a measurement: drains, records, patches of kernel text, CPUs and the budget each have a schedule. It ends
//! after the duration, when the command exits, or at a signal.

use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::child::exit_code;
use super::interrupt::Signals;
use super::progress::Progress;
use super::session::{SIDEBAND_EVERY, Session};
use hbbp_collect::StacksSeen;

/// Time between two checks whether branch stacks are empty, until that is known: empty ones are detected within a
/// second.
const STACKS_EVERY: Duration = Duration::from_millis(250);

/// Time between two polls of the online CPUs: a CPU that comes online is not measured for longer than this.
const CPUS_EVERY: Duration = Duration::from_millis(250);

/// Time between two polls of what the samples cost, if there is a budget.
const BUDGET_EVERY: Duration = Duration::from_millis(250);

/// Time until the first adjustment of the periods of rings with events of their own. It doubles with each one, until drains make the
/// adjustments.
const FIRST_SHARES: Duration = Duration::from_millis(5);

/// Why a measurement paused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pause {
    /// Its time is over.
    Time,
    /// A signal arrived.
    Signal,
    /// The command exited with this code.
    Exited(u8),
    /// Its samples cost much more than the budget: the interval should end, and the next one have longer periods.
    Budget,
}

/// Measures until the time is over, the command exits, a signal arrives, or the budget asks for longer periods.
pub(super) async fn measure(
    session: &mut Session,
    duration: Option<Duration>,
    mut child: Option<&mut Child>,
    signals: &mut Signals,
    progress: Option<Progress>,
) -> anyhow::Result<Pause> {
    let start = Instant::now();
    let every = |time: Duration| interval_at(start + time, time);
    let pace = session.pace();
    let mut drains = every(session.drain_every() * pace);
    let mut sideband = every(SIDEBAND_EVERY * pace);
    let mut stacks = every(STACKS_EVERY);
    let mut cpus = every(CPUS_EVERY * pace);
    let mut budget = every(BUDGET_EVERY);
    // A late tick needs no catching up: the next drain takes more.
    for late in [&mut drains, &mut sideband, &mut cpus, &mut budget] {
        late.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let end = tokio::time::sleep(duration.unwrap_or(Duration::MAX));
    tokio::pin!(end);
    let text_events = text_events(session)?;
    let half_full = session.collector.half_full();
    let (is_apart, mut shares) = (session.collector.has_rings_apart(), FIRST_SHARES);
    let mut turn = session.collector.turn_length().map(|turn| start + turn);
    loop {
        let patched = tokio::time::sleep_until(session.patched.unwrap_or(start));
        tokio::select! {
            biased;
            () = &mut end, if duration.is_some() => return Ok(Pause::Time),
            () = signals.wait() => return Ok(Pause::Signal),
            _ = drains.tick() => {
                session.drain()?;
                session.look_at_text()?;
            }
            () = notified(half_full.as_deref()) => session.drain()?,
            () = tokio::time::sleep_until(turn.unwrap_or(start)), if turn.is_some() => {
                session.collector.take_turns();
                turn = session.collector.turn_length().map(|turn| Instant::now() + turn);
            }
            () = tokio::time::sleep_until(start + shares), if is_apart && shares < drains.period() => {
                session.collector.share_out()?; shares *= 2;
            }
            () = patched, if session.patched.is_some() => session.split()?,
            _ = stacks.tick(), if session.stacks == StacksSeen::NotYet => session.look_at_stacks()?,
            _ = budget.tick(), if session.budget.is_some() => if session.is_over_budget() {
                return Ok(Pause::Budget);
            },
            _ = cpus.tick() => session.collector.follow_cpus()?,
            _ = sideband.tick() => {
                session.read_sideband()?;
                session.settle_records()?;
                session.watch_memory();
                if let Some(progress) = &progress {
                    progress.at(start.elapsed());
                }
                if let Some(status) = ended(child.as_deref_mut())? {
                    return Ok(Pause::Exited(exit_code(status)));
                }
            }
            ready = text_events.readable() => {
                ready.context("failed to wait for kernel text events")?.clear_ready();
                session.read_sideband()?;
            }
        }
    }
}

/// The changes of kernel text that are to be read.
fn text_events(session: &Session) -> anyhow::Result<AsyncFd<OwnedFd>> {
    let text_events = session.collector.text_events()?;
    // SAFETY: the descriptor is our own and stays the same and open as long as it is waited for.
    unsafe { AsyncFd::register_with_interest(text_events, Interest::READABLE) }
        .context("failed to wait for kernel text events")
}

/// Waits for a notification; for ever without a notifier.
async fn notified(notify: Option<&Notify>) {
    match notify {
        Some(notify) => notify.notified().await,
        None => std::future::pending().await,
    }
}

fn ended(child: Option<&mut Child>) -> anyhow::Result<Option<ExitStatus>> {
    let status = child
        .map(Child::try_wait)
        .transpose()
        .context("failed to wait for the command")?;
    Ok(status.flatten())
}
