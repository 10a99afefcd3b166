//! `hbbp-sys daemon`: its segments cover the whole time, however it ends and whatever the disk does.

mod budget;
mod disk;
mod hostile;
mod metrics;
mod monitoring;
mod power;
mod privileges;
mod soak;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hbbp_model::profile::read_runs;
use hbbp_model::segments::plan::nests;
use hbbp_model::segments::{Listing, Name};
use serde_json::Value;

use super::load::Load;
use super::run::assert_accounts_for;
use super::{kernel, number, program, report, report_of, run};

/// How long a daemon may take for what is waited for; a busy machine takes some seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// A sample that is rounded up or down is more than a percent of a segment shorter than this, in ns.
const SHORT: u64 = 500_000_000;

/// Times that a daemon is killed, unless HBBP_KILLS says otherwise.
const KILLS: usize = 6;

/// A daemon with intervals of a second. It is killed when the test ends.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) folder: PathBuf,
    said: Arc<Mutex<String>>,
    /// Reads what it says until it ends.
    reader: Option<JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::with(folder, &[])
    }

    fn with(folder: &Path, more: &[&str]) -> Self {
        let mut args = vec!["daemon", "--interval", "1", "--dir", folder.to_str().unwrap()];
        args.extend(more);
        if !more.contains(&"--cpu-budget") {
            // An unoptimised build on a busy machine would have the longest periods, and few samples in an interval.
            args.extend(["--cpu-budget", "100%"]);
        }
        Self::of(program(&args), folder)
    }

    /// Of a command line that starts one with this folder.
    fn of(mut command: Command, folder: &Path) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (lines, all) = (
            BufReader::new(child.stderr.take().unwrap()).lines(),
            Arc::clone(&said),
        );
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut all = all.lock().unwrap();
                all.push_str(&line);
                all.push('\n');
            }
        });
        Self {
            child,
            folder: folder.to_owned(),
            said,
            reader: Some(reader),
        }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < PATIENCE, "no {what}: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn until_said(&self, what: &str) {
        self.until(what, |it| it.said().contains(what));
    }

    /// Until this many intervals were written.
    pub(crate) fn until_intervals(&self, n: usize) {
        self.until("intervals", |it| n <= intervals(&names(&it.folder)).len());
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a signal to a child that has not been waited for.
        let sent = unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        assert_eq!(sent, 0);
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) -> String {
        self.signal(libc::SIGTERM);
        let status = self.child.wait().unwrap();
        // Its last words may not have been read yet.
        self.reader.take().unwrap().join().unwrap();
        let said = self.said();
        assert!(status.success() && !said.contains("panicked"), "{status}: {said}");
        said
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The segments; none if the daemon has not made its directory yet.
fn names(folder: &Path) -> Vec<Name> {
    let listing = Listing::read(folder).unwrap_or_default();
    nests(&listing.names())
        .into_iter()
        .map(|nest| nest.outer)
        .collect()
}

/// The numbers of all intervals of segments.
fn intervals(names: &[Name]) -> Vec<u64> {
    names.iter().flat_map(Name::intervals).collect()
}

/// How many intervals were written.
pub(crate) fn n_intervals(folder: &Path) -> usize {
    intervals(&names(folder)).len()
}

fn path_of(folder: &Path, name: &Name) -> String {
    folder.join(name.to_string()).to_str().unwrap().to_owned()
}

/// Every segment closes its sums; returns how many samples reached the tool, over all of them.
pub(crate) fn assert_segments_close(folder: &Path) -> u64 {
    let reached = names(folder).into_iter().map(|name| {
        let path = path_of(folder, &name);
        let runs = read_runs(Path::new(&path)).unwrap();
        let report = report_of(&path);
        assert_eq!(number(&report["accounting"]["unexplained"]), 0, "{name}");
        assert_eq!(runs.len(), 1, "{name}");
        let reached = number(&report["accounting"]["reached"]);
        let run = &runs[0];
        assert_eq!(
            run.run.events.iter().map(|event| event.runs).sum::<u64>(),
            reached
        );
        // The last one may be some ms long, where counters and periods are compared too coarsely.
        if SHORT <= run.run.duration {
            assert_accounts_for(run, &report["accounting"]);
        }
        reached
    });
    reached.sum()
}

fn warnings(report: &Value) -> String {
    report["warnings"].to_string()
}

#[test]
fn directory_reads_like_one_run_of_all_its_intervals() {
    let Some(_kernel) = kernel() else { return };
    let _load = [Load::syscalls(), Load::spin()];
    let made = tempfile::tempdir().unwrap();
    let folder = made.path().join("segments");
    let daemon = Daemon::start(&folder);
    daemon.until_intervals(2);
    let refused = run(&["daemon", "--dir", folder.to_str().unwrap()]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("another daemon") && why.contains("--dir"), "{why}");
    // A terminal that is closed does not end it.
    daemon.signal(libc::SIGHUP);
    daemon.until_intervals(4);
    let said = daemon.stop();
    assert!(!said.contains("lost"), "{said}");

    let numbers = intervals(&names(&folder));
    assert!(
        4 <= numbers.len() && numbers.iter().copied().eq(0..numbers.len() as u64),
        "{numbers:?}"
    );
    let reached = assert_segments_close(&folder);
    let path = folder.to_str().unwrap();
    let whole = report_of(path);
    assert_eq!(number(&whole["accounting"]["reached"]), reached);
    assert_eq!(number(&whole["accounting"]["unexplained"]), 0);
    assert!(!warnings(&whole).contains("not measured"), "{}", warnings(&whole));
    for args in [
        &["annotate", path, "--hottest", "--since", "1h"][..],
        &["export", path, "--format", "collapsed", "--since", "1h"],
        &["diff", path, path, "--since", "1h", "--since", "2h"],
        &["report", path, "--over-time"],
    ] {
        let output = run(args);
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{args:?}: {output:?}"
        );
    }
    let merged = folder.with_extension("merged");
    let merged = merged.to_str().unwrap();
    assert!(
        run(&["merge", path, "--since", "1h", "-o", merged])
            .status
            .success()
    );
    assert_eq!(number(&report_of(merged)["accounting"]["reached"]), reached);
    let later = run(&["report", path, "--since", "2199-01-01"]);
    let why = String::from_utf8(later.stderr).unwrap();
    assert!(
        !later.status.success() && why.contains("no segment of that time"),
        "{why}"
    );
    let profile = path_of(&folder, &names(&folder)[0]);
    let none = run(&["report", &profile, "--since", "1h"]);
    assert!(
        String::from_utf8(none.stderr)
            .unwrap()
            .contains("--since and --until need")
    );
}

/// A number below `end`, another one at each call.
fn random(end: u64) -> u64 {
    RandomState::new().build_hasher().finish() % end
}

#[test]
fn killed_daemon_leaves_whole_segments_and_the_next_one_goes_on() {
    let Some(_kernel) = kernel() else { return };
    let _load = Load::syscalls();
    let kills = std::env::var("HBBP_KILLS").map_or(KILLS, |n| n.parse().unwrap());
    let made = tempfile::tempdir().unwrap();
    let first = Daemon::start(made.path());
    first.until_intervals(1);
    first.kill();
    // Longer than a daemon may pause from one interval to the next.
    std::thread::sleep(Duration::from_millis(1500));
    let mut n_before = 1;
    for _ in 0..kills {
        let daemon = Daemon::start(made.path());
        daemon.until_said("measuring");
        std::thread::sleep(Duration::from_millis(random(3000)));
        daemon.kill();
        let names = names(made.path());
        let numbers = intervals(&names);
        assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
        assert!(n_before <= numbers.len());
        for name in names.iter().skip(n_before) {
            read_runs(Path::new(&path_of(made.path(), name))).unwrap();
        }
        n_before = names.len();
    }
    let daemon = Daemon::start(made.path());
    daemon.until_intervals(n_before + 1);
    daemon.stop();
    println!("{} intervals after {kills} kills", names(made.path()).len());
    let whole = report_of(made.path().to_str().unwrap());
    assert!(
        warnings(&whole).contains("not measured"),
        "the time between two daemons: {}",
        warnings(&whole)
    );
    assert_eq!(number(&whole["accounting"]["unexplained"]), 0);
}

#[test]
fn two_daemons_and_a_measurement_at_once_close_their_sums() {
    let Some(_kernel) = kernel() else { return };
    let _load = Load::syscalls();
    let made = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let daemons = made.each_ref().map(|it| Daemon::start(it.path()));
    daemons.iter().for_each(|daemon| daemon.until_intervals(1));
    let report = report(&["--duration", "2"]);
    assert_eq!(number(&report["accounting"]["unexplained"]), 0);
    for daemon in daemons {
        daemon.stop();
    }
    for it in &made {
        assert!(0 < assert_segments_close(it.path()));
    }
}

#[test]
fn retention_removes_the_oldest_segments_while_it_runs() {
    let Some(_kernel) = kernel() else { return };
    let made = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(made.path(), &["--max-disk", "1"]);
    daemon.until("third interval", |it| {
        names(&it.folder).last().is_some_and(|name| 2 <= name.last)
    });
    daemon.stop();
    let names = names(made.path());
    assert!(names.len() <= 2, "the newest and the last interval: {names:?}");
}
