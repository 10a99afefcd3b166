//! The event loop of a measurement: it does what the schedule says, and what events of the kernel ask for at once. It ends after
//! the duration, when the command exits, or at a signal.

use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::child::exit_code;
use super::interrupt::Signals;
use super::progress::Progress;
use super::schedule::{Schedule, Task};
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
    let mut schedule = planned(session, start, duration);
    let text_events = watched(session.collector.text_events()?)?;
    let bursts = bursts(session)?;
    let half_full = session.collector.half_full();
    let (mut shares, drains) = (FIRST_SHARES, session.drain_every() * session.pace());
    loop {
        schedule.once(Task::Split, session.patched());
        if session.stacks != StacksSeen::NotYet {
            schedule.once(Task::LookAtStacks, None);
        }
        let task = tokio::select! {
            biased;
            () = signals.wait() => return Ok(Pause::Signal),
            () = notified(half_full.as_deref()) => Task::Drain,
            task = due(&schedule) => task,
            ready = text_events.readable() => {
                ready.context("failed to wait for kernel text events")?.clear_ready();
                session.read_sideband()?;
                continue;
            }
            task = begun(bursts.as_ref()) => task?,
        };
        schedule.begun(task, Instant::now());
        match task {
            Task::End => return Ok(Pause::Time),
            Task::Drain => {
                session.drain()?;
                session.look_at_text()?;
            }
            Task::TakeTurns => {
                session.collector.take_turns();
                // A turn is longer the longer they go on, and the more it costs to take turns.
                schedule.once(Task::TakeTurns, turn_end(session));
            }
            Task::ShareOut => {
                session.collector.share_out()?;
                shares *= 2;
                schedule.once(Task::ShareOut, (shares < drains).then(|| start + shares));
            }
            Task::Split => session.split()?,
            Task::LookAtStacks => session.look_at_stacks()?,
            Task::CheckBudget if session.is_over_budget() => return Ok(Pause::Budget),
            Task::CheckBudget => {}
            Task::FollowCpus => session.collector.follow_cpus()?,
            Task::FollowBursts => session.follow(),
            Task::ReadRecords => {
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
        }
    }
}

/// What a measurement does again and again, or at first. Where a budget asks for it, some of it comes less often.
fn planned(session: &Session, start: Instant, duration: Option<Duration>) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.once(
        Task::End,
        duration.and_then(|duration| start.checked_add(duration)),
    );
    let pace = session.pace();
    schedule.repeat(Task::Drain, start, session.drain_every() * pace);
    schedule.repeat(Task::ReadRecords, start, SIDEBAND_EVERY * pace);
    schedule.repeat(Task::LookAtStacks, start, STACKS_EVERY);
    schedule.repeat(Task::FollowCpus, start, CPUS_EVERY * pace);
    if session.budget.is_some() {
        schedule.repeat(Task::CheckBudget, start, BUDGET_EVERY);
    }
    schedule.once(Task::TakeTurns, turn_end(session));
    if session.collector.has_rings_apart() {
        schedule.once(Task::ShareOut, Some(start + FIRST_SHARES));
    }
    schedule
}

/// The end of the turn that begins now; `None` where no events take turns.
fn turn_end(session: &Session) -> Option<Instant> {
    let length = session.collector.turn_length();
    length.map(|length| Instant::now() + length)
}

/// Waits until a task is due.
async fn due(schedule: &Schedule) -> Task {
    match schedule.next(Instant::now()) {
        Some((task, at)) => {
            tokio::time::sleep_until(at).await;
            task
        }
        None => std::future::pending().await,
    }
}

/// What of the kernel is to be read when it is there.
fn watched(events: OwnedFd) -> anyhow::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is our own and stays the same and open as long as it is waited for.
    unsafe { AsyncFd::register_with_interest(events, Interest::READABLE) }
        .context("failed to wait for events of the kernel")
}

/// The ring of bursts, where user code is followed.
fn bursts(session: &Session) -> anyhow::Result<Option<AsyncFd<OwnedFd>>> {
    let bursts = session.bursts.as_ref().map(|bursts| watched(bursts.ready()?));
    bursts.transpose()
}

/// Waits until bursts have begun; for ever without their ring.
async fn begun(ring: Option<&AsyncFd<OwnedFd>>) -> anyhow::Result<Task> {
    match ring {
        Some(ring) => {
            let ready = ring.readable().await;
            ready.context("failed to wait for bursts")?.clear_ready();
            Ok(Task::FollowBursts)
        }
        None => std::future::pending().await,
    }
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
