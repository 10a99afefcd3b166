//! `hbbp-sys daemon`: measures for ever, and keeps a segment for each interval in a folder.
//!
//! ```text
//! main thread   collection.rs   intervals one after the other; opens collection again after an error
//!                   | snapshots
//! segments      keeper.rs       writes segments, merges and removes them; never makes collection wait
//!                   | figures
//! metrics       server.rs       serves them (metrics.rs) over HTTP
//! ```
//!
//! What it may do is limited before the other threads are started (`privileges`). Files of other users are parsed by a
//! process without rights (`worker`).
//!
//! Nothing that goes wrong while it runs ends it: it is counted (`counters`), told once on standard error, and tried again.

mod collection;
pub mod counters;
mod keeper;
mod memory;
mod metrics;
mod privileges;
pub mod server;
mod worker;

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::sync::Notify;

use super::interrupt::Interrupt;
use super::record::{Intervals, RecordOptions};
use crate::segments::Folder;
use crate::segments::plan::Limits;
use crate::snapshot::Snapshot;
use collection::{Pause, collect};
use counters::{Counter, Counters};
use keeper::Keeper;
use metrics::Metrics;
use server::{Listen, Server};

/// Intervals that wait while the thread of the segments is busy.
const WAITING: usize = 2;

/// What to measure, and where to keep it.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// What to measure.
    pub record: RecordOptions,
    /// The folder of the segments.
    pub folder: PathBuf,
    /// Length of an interval.
    pub interval: Duration,
    /// What the folder may hold.
    pub limits: Limits,
    /// Memory of user space in bytes.
    pub memory_budget: u64,
    /// Where metrics are served, if anywhere.
    pub listen: Option<Listen>,
}

/// Measures until a signal arrives; returns what was lost, sentence by sentence. What is wrong from the beginning is an
/// error.
pub fn daemon(options: &DaemonOptions) -> anyhow::Result<Vec<String>> {
    ignore_hangup();
    memory::keep_little();
    let folder = Folder::open(&options.folder)?;
    let kept = privileges::limit()?;
    folder.check_writable()?;
    let counters = Arc::new(Counters::default());
    let mut record = options.record.clone();
    record.parser = worker::start(&counters)?;
    let server = options.listen.as_ref().map(Server::bind).transpose()?;
    let interrupt = Interrupt::listen_after(privileges::limit_thread)?;
    let metrics = match server {
        Some(_) => {
            let rule = super::rule::read("balanced")?;
            Some(Arc::new(Metrics::new(
                rule,
                options.interval,
                Arc::clone(&counters),
            )))
        }
        None => None,
    };
    let keeper = Keeper::open(
        folder,
        options.limits,
        options.memory_budget,
        Arc::clone(&counters),
        metrics.clone(),
    )?;
    let open = || Intervals::open_until(&record, options.interval, interrupt.clone());
    let first = open()?;
    tell(&format!(
        "measuring in intervals of {:?}, kept in {}",
        options.interval,
        options.folder.display()
    ));
    tell(&format!("keeps {kept}"));
    let mut waiting = interrupt.clone();
    let pause = |time| {
        waiting.pause(time);
        if waiting.happened() {
            Pause::End
        } else {
            Pause::Over
        }
    };
    beside(keeper, server.zip(metrics), &counters, |deliver| {
        collect(first, open, deliver, pause, &counters);
    })?;
    Ok(counters.sentences())
}

/// Collects, while other threads keep what is delivered and serve the metrics.
fn beside(
    keeper: Keeper,
    serving: Option<(Server, Arc<Metrics>)>,
    counters: &Arc<Counters>,
    collecting: impl FnOnce(&mut dyn FnMut(Snapshot) -> ControlFlow<()>),
) -> anyhow::Result<()> {
    let (snapshots, received) = sync_channel::<Snapshot>(WAITING);
    let end = &Notify::new();
    thread::scope(|scope| {
        let serving = serving.map(|(server, metrics)| {
            let thread = thread::Builder::new().name("metrics".to_owned());
            thread.spawn_scoped(scope, move || {
                privileges::limit_server()?;
                server
                    .serve(&metrics, counters, end)
                    .context("failed to serve metrics")
            })
        });
        let thread = thread::Builder::new().name("segments".to_owned());
        let keeping = thread.spawn_scoped(scope, move || {
            privileges::limit_thread()?;
            keep_all(keeper, received)
        });
        let started = serving.transpose().and_then(|serving| Ok((serving, keeping?)));
        if started.is_err() {
            end.notify_one();
        }
        let (serving, keeping) = started.context("failed to start a thread")?;
        let mut delivery = Delivery {
            snapshots,
            counters,
            lost: Duration::ZERO,
        };
        collecting(&mut |snapshot| delivery.deliver(snapshot));
        drop(delivery);
        let kept = keeping.join();
        end.notify_one();
        if let Some(serving) = serving {
            serving.join().map_err(|_| ended_unexpectedly("metrics"))??;
        }
        kept.map_err(|_| ended_unexpectedly("segments"))?
    })
}

/// Hands intervals to the thread of the segments, without waiting for it.
struct Delivery<'a> {
    snapshots: SyncSender<Snapshot>,
    counters: &'a Counters,
    /// Length of the intervals that were lost since the last one that was taken.
    lost: Duration,
}

impl Delivery<'_> {
    /// Ends the collection where the thread has ended: what is measured then is kept by nobody.
    fn deliver(&mut self, mut snapshot: Snapshot) -> ControlFlow<()> {
        if self.lost != Duration::ZERO {
            snapshot.run.notes.push(format!(
                "the {:.1} s before this interval are lost: writing segments took longer than several intervals",
                self.lost.as_secs_f64()
            ));
        }
        match self.snapshots.try_send(snapshot) {
            Ok(()) => self.lost = Duration::ZERO,
            Err(TrySendError::Full(snapshot)) => {
                self.counters.add(Counter::IntervalsRefused, 1);
                self.lost += Duration::from_nanos(snapshot.run.duration);
            }
            Err(TrySendError::Disconnected(_)) => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }
}

fn ended_unexpectedly(thread: &str) -> anyhow::Error {
    anyhow!("the thread of the {thread} ended unexpectedly")
}

fn keep_all(mut keeper: Keeper, received: Receiver<Snapshot>) -> anyhow::Result<()> {
    for snapshot in received {
        keeper.keep(snapshot);
        memory::give_back();
    }
    keeper.finish()
}

/// A daemon has no terminal that could be closed; options are changed by starting it again.
fn ignore_hangup() {
    // SAFETY: sets how a signal is handled, to a handler that is not code of ours.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

/// Says what happened, on standard error, for the log of the service manager.
fn tell(what: &str) {
    // Nobody may be listening any more.
    let _ = writeln!(std::io::stderr(), "hbbp-sys: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_intervals_are_told_in_the_next_one_and_the_end_of_the_keeper_ends_it() {
        let counters = Counters::default();
        let (snapshots, received) = sync_channel(1);
        let mut delivery = Delivery {
            snapshots,
            counters: &counters,
            lost: Duration::ZERO,
        };
        let interval = || {
            let mut snapshot = Snapshot::default();
            snapshot.run.duration = 1_500_000_000;
            snapshot
        };
        for _ in 0..3 {
            assert!(delivery.deliver(interval()).is_continue());
        }
        assert_eq!(counters.get(Counter::IntervalsRefused), 2);
        assert!(received.recv().unwrap().run.notes.is_empty());
        assert!(delivery.deliver(interval()).is_continue());
        let notes = received.recv().unwrap().run.notes;
        assert!(
            notes.len() == 1 && notes[0].starts_with("the 3.0 s before this interval are lost"),
            "{notes:?}"
        );
        assert!(delivery.deliver(interval()).is_continue());
        assert!(received.recv().unwrap().run.notes.is_empty());
        drop(received);
        assert!(delivery.deliver(interval()).is_break());
    }
}
