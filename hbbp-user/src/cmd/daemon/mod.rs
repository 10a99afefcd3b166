//! `hbbp-sys daemon`: measures for ever, and keeps a segment for each interval in a folder.
//!
//! ```text
//! main thread   collection.rs   intervals one after the other; opens collection again after an error
//!                   | snapshots
//! segments      keeper.rs       writes segments, merges and removes them; never makes collection wait
//!                   | estimates
//! metrics       server.rs       serves sums (metrics) and profiles (served.rs) over HTTP
//! ```
//!
//! What it may do is limited before the other threads are started (`privileges`). Files of other users are parsed by a
//! process without rights (`worker`).
//!
//! Nothing that goes wrong while it runs ends it: it is counted (`counters`), reported once on standard error, and
//! tried again.

mod budget_watch;
mod collection;
pub(crate) mod counters;
mod feed;
mod keeper;
pub(crate) mod memory;
mod metrics;
mod served;
pub(crate) mod server;
mod service_log;
mod work;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::sync::Notify;

use super::interrupt::Interrupt;
use super::privileges;
use super::record::{Intervals, RecordOptions};
use super::worker;
use crate::advice::error_in_words;
use budget_watch::BudgetWatch;
use collection::{Pause, collect};
use counters::{Counter, Counters};
use hbbp_elf::parser::Failure;
use hbbp_model::segments::Folder;
use hbbp_model::segments::plan::Limits;
use hbbp_model::snapshot::Snapshot;
use keeper::Keeper;
use metrics::Metrics;
use served::{Profiles, Served};
use server::{Listen, Server};
use service_log::tell;
use work::{Delivery, WAITING, Work};

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
pub(crate) fn daemon(options: &DaemonOptions) -> anyhow::Result<Vec<String>> {
    ignore_hangup();
    memory::keep_little();
    let folder = Folder::open(&options.folder)?;
    let kept = privileges::limit()?;
    folder.check_writable()?;
    let counters = Arc::new(Counters::default());
    let of_workers = Arc::clone(&counters);
    let parser = worker::start(move |event| count_worker(&of_workers, event))?;
    let server = options.listen.as_ref().map(Server::bind).transpose()?;
    let interrupt = Interrupt::listen_after(privileges::limit_thread)?;
    let metrics = server
        .as_ref()
        .map(|_| Metrics::new(options.interval, Arc::clone(&counters)).map(Arc::new))
        .transpose()?;
    let keeper = Keeper::open(
        folder,
        options.limits,
        options.memory_budget,
        Arc::clone(&counters),
        metrics.clone(),
    )?;
    let open = || Intervals::open_until(&options.record, options.interval, &parser, interrupt.clone());
    let first = open()?;
    tell(&format!(
        "measuring in intervals of {:?}, kept in {}",
        options.interval,
        options.folder.display()
    ));
    tell(&format!("keeps {kept}"));
    let (mut waiting, ending) = (interrupt.clone(), interrupt.clone());
    let pause = |time| {
        waiting.pause(time);
        if waiting.happened() {
            Pause::End
        } else {
            Pause::Over
        }
    };
    let beside = Beside {
        keeper,
        serving: server.zip(metrics),
        is_private: options.listen.as_ref().is_some_and(Listen::is_private),
        counters: &counters,
    };
    beside.run(
        move || ending.happened(),
        |deliver| collect(first, open, deliver, pause, &counters),
    )?;
    Ok(counters.sentences())
}

fn count_worker(counters: &Counters, event: worker::Event) {
    let counter = match event {
        worker::Event::Started => Counter::Workers,
        worker::Event::Failed(Failure::TimedOut) => Counter::FilesTimedOut,
        worker::Event::Failed(Failure::Ended | Failure::TooLarge) => Counter::FilesGivenUp,
        worker::Event::Failed(Failure::Refused) => Counter::FilesRefused,
        worker::Event::Failed(Failure::Invalid) => Counter::FilesMisread,
    };
    counters.add(counter, 1);
}

/// What other threads do while the main thread collects.
struct Beside<'a> {
    keeper: Keeper,
    /// The server, and what it serves.
    serving: Option<(Server, Arc<Metrics>)>,
    /// Whether the owner alone can ask the server.
    is_private: bool,
    counters: &'a Arc<Counters>,
}

impl Beside<'_> {
    /// Collects, and hands to the other threads what is delivered, until the daemon is ending. What `collecting` returns is dropped
    /// when all is written.
    fn run<M>(
        self,
        is_ending: impl Fn() -> bool + Send,
        collecting: impl FnOnce(&mut dyn FnMut(Snapshot) -> ControlFlow<()>) -> M,
    ) -> anyhow::Result<()> {
        let Self { keeper, counters, .. } = self;
        let (work, received) = sync_channel::<Work>(WAITING);
        let end = &Notify::new();
        let serving = self.serving.map(|(server, metrics)| {
            let work = self.is_private.then(|| work.clone());
            let profiles = Profiles::new(work, Arc::clone(counters));
            (server, Arc::new(Served { metrics, profiles }))
        });
        thread::scope(|scope| {
            let named = |name: &str| thread::Builder::new().name(name.to_owned());
            let serving = serving.map(|(server, served)| {
                named("metrics").spawn_scoped(scope, move || {
                    privileges::limit_server()?;
                    server
                        .serve(&served, counters, end)
                        .context("failed to serve metrics")
                })
            });
            let keeping = named("segments").spawn_scoped(scope, move || {
                privileges::limit_thread()?;
                keep_all(keeper, received, is_ending)
            });
            let started = serving.transpose().and_then(|serving| Ok((serving, keeping?)));
            if started.is_err() {
                end.notify_one();
            }
            let (serving, keeping) = started.context("failed to start a thread")?;
            let mut delivery = Delivery {
                work,
                counters,
                lost: Duration::ZERO,
                watch: BudgetWatch::default(),
            };
            let measured = collecting(&mut |snapshot| delivery.deliver(snapshot));
            drop(delivery);
            // The server holds a sender to the segment thread, which ends when no sender is left.
            end.notify_one();
            let served = serving.map(|it| ended(it, "metrics"));
            let kept = ended(keeping, "segments");
            // The collection is torn down after its last interval is written, whether or not that succeeds.
            drop(measured);
            served.transpose()?;
            kept
        })
    }
}

/// Waits for the end of a thread.
fn ended(thread: ScopedJoinHandle<'_, anyhow::Result<()>>, what: &str) -> anyhow::Result<()> {
    let ended = thread.join();
    ended.map_err(|_| anyhow!("the thread of the {what} ended unexpectedly"))?
}

fn keep_all(
    mut keeper: Keeper,
    received: Receiver<Work>,
    is_ending: impl Fn() -> bool,
) -> anyhow::Result<()> {
    for work in received {
        match work {
            Work::Keep(snapshot) if is_ending() => keeper.keep_last(*snapshot),
            Work::Keep(snapshot) => keeper.keep(*snapshot),
            Work::Profile(request) => {
                let profile = keeper.profile(request.seconds);
                // Whoever asked may be gone.
                let _ = request
                    .answer
                    .send(profile.map_err(|error| error_in_words(&error)));
            }
        }
        memory::give_back();
    }
    keeper.finish()
}

/// A daemon has no terminal that could be closed; options are changed by starting it again.
fn ignore_hangup() {
    // SAFETY: sets how a signal is handled, to a handler that is not code of ours.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use hbbp_model::segments::Listing;
    use hbbp_model::snapshot::Process;

    /// Used instead of what measures: says how many segments there are when it is torn down.
    struct Measuring {
        folder: PathBuf,
        seen: Sender<usize>,
    }

    impl Drop for Measuring {
        fn drop(&mut self) {
            let listing = Listing::read(&self.folder).unwrap();
            self.seen.send(listing.segments.len()).unwrap();
        }
    }

    #[test]
    fn last_interval_is_written_before_anything_is_torn_down() {
        let made = tempfile::tempdir().unwrap();
        let counters = Arc::new(Counters::default());
        let folder = Folder::open(made.path()).unwrap();
        let limits = Limits {
            disk: None,
            age: None,
        };
        let keeper = Keeper::open(folder, limits, 64 << 20, Arc::clone(&counters), None).unwrap();
        let beside = Beside {
            keeper,
            serving: None,
            is_private: false,
            counters: &counters,
        };
        let (seen, torn_down) = channel();
        let folder = made.path().to_owned();
        let collecting = |deliver: &mut dyn FnMut(Snapshot) -> ControlFlow<()>| {
            let mut last = Snapshot {
                processes: vec![Process::default()],
                ..Snapshot::default()
            };
            last.run.duration = 1_000_000_000;
            assert!(deliver(last).is_continue());
            Measuring { folder, seen }
        };
        beside.run(|| false, collecting).unwrap();
        assert_eq!(torn_down.recv().unwrap(), 1);
    }
}
