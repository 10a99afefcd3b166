//! `hbbp-sys daemon`: measures for ever, and keeps a segment for each interval in a folder.
//!
//! ```text
//! main thread   collection.rs   intervals one after the other; opens collection again after an error
//!                   | snapshots
//! segments      keeper.rs       writes segments, merges and removes them; never makes collection wait
//! ```
//!
//! Nothing that goes wrong while it runs ends it: it is counted (`counters`), told once on standard error, and tried again.

mod collection;
pub mod counters;
mod keeper;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::interrupt::Interrupt;
use super::record::{Intervals, RecordOptions};
use crate::segments::Folder;
use crate::segments::plan::Limits;
use crate::snapshot::Snapshot;
use collection::{Pause, collect};
use counters::{Counter, Counters};
use keeper::Keeper;

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
}

/// Measures until a signal arrives; returns what was lost, sentence by sentence. What is wrong from the beginning is an
/// error.
pub fn daemon(options: &DaemonOptions) -> anyhow::Result<Vec<String>> {
    ignore_hangup();
    let folder = Folder::open(&options.folder)?;
    let interrupt = Interrupt::listen()?;
    let counters = Arc::new(Counters::default());
    let mut keeper = Keeper::open(folder, options.limits, Arc::clone(&counters))?;
    let open = || Intervals::open_until(&options.record, options.interval, interrupt.clone());
    let first = open()?;
    tell(&format!(
        "measuring {} in intervals of {:?}, kept in {}",
        "the system",
        options.interval,
        options.folder.display()
    ));
    let (snapshots, received) = sync_channel::<Snapshot>(WAITING);
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("segments".to_owned());
        let keeping = thread.spawn_scoped(scope, move || {
            for snapshot in received {
                keeper.keep(snapshot);
            }
            keeper.finish()
        });
        let keeping = keeping.context("failed to start the thread of the segments")?;
        let mut pause = interrupt.clone();
        collect(
            first,
            open,
            |snapshot| match snapshots.try_send(snapshot) {
                Ok(()) => {}
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                    counters.add(Counter::IntervalsRefused, 1);
                }
            },
            |time| {
                pause.pause(time);
                if pause.happened() { Pause::End } else { Pause::Over }
            },
            &counters,
        );
        drop(snapshots);
        match keeping.join() {
            Ok(finished) => finished,
            Err(_) => bail!("the thread of the segments ended unexpectedly"),
        }
    })?;
    Ok(counters.sentences())
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
