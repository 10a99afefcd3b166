//! A daemon whose disk takes nothing for a while, or to the end: no interval is lost.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hbbp_model::profile::read_runs;

use super::{Daemon, PATIENCE, assert_segments_close, intervals, names, warnings};
use crate::{kernel, report_of, skip_outside_ci};

/// A small file system, unmounted when the test ends.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None` if none can be mounted.
    fn mount() -> Option<Self> {
        let disk = Self(tempfile::tempdir().unwrap());
        if disk.mounted("size=64m,mode=700") {
            return Some(disk);
        }
        skip_outside_ci("a tmpfs cannot be mounted here");
        None
    }

    fn mounted(&self, options: &str) -> bool {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(self.0.path());
        mount.status().is_ok_and(|status| status.success())
    }

    /// Remounts it, as soon as no file is just being written.
    fn remount(&self, how: &str) {
        let start = Instant::now();
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,{how}")]).arg(self.0.path());
        while !mount.output().unwrap().status.success() {
            assert!(start.elapsed() < PATIENCE, "the disk stays busy");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// While the disk takes nothing intervals wait, and nothing is lost when it does again.
#[test]
fn disk_that_is_full_or_read_only_loses_no_interval() {
    let Some(_kernel) = kernel() else { return };
    let Some(disk) = Disk::mount() else { return };
    let folder = disk.0.path().join("segments");
    let daemon = Daemon::start(&folder);
    daemon.until_intervals(1);
    let filler = disk.0.path().join("filler");
    let fill = Command::new("dd")
        .args(["if=/dev/zero", "bs=4k"])
        .arg(format!("of={}", filler.display()))
        .output();
    assert!(!fill.unwrap().status.success(), "the disk is full");
    daemon.until_said("No space left");
    std::thread::sleep(Duration::from_secs(2));
    std::fs::remove_file(&filler).unwrap();
    daemon.until_said("segments are written again");
    disk.remount("ro");
    daemon.until_said("Read-only file system");
    disk.remount("rw");
    daemon.until("second recovery", |it| {
        it.said().matches("written again").count() == 2
    });
    let said = daemon.stop();
    assert!(
        said.contains("could not be written") && !said.contains("lost"),
        "{said}"
    );
    let numbers = intervals(&names(&folder));
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
    assert_segments_close(&folder);
    let whole = report_of(folder.to_str().unwrap());
    assert!(!warnings(&whole).contains("not measured"), "{}", warnings(&whole));
}

/// The last intervals are saved elsewhere where the disk stays read-only.
#[test]
fn last_intervals_are_saved_elsewhere_on_a_read_only_disk() {
    let Some(_kernel) = kernel() else { return };
    let Some(disk) = Disk::mount() else { return };
    let daemon = Daemon::start(&disk.0.path().join("segments"));
    daemon.until_intervals(1);
    disk.remount("ro");
    daemon.until_said("Read-only file system");
    let said = daemon.stop();
    let (_, elsewhere) = said.split_once("the last intervals were saved as ").unwrap();
    let elsewhere = Path::new(elsewhere.split_once(" instead").unwrap().0);
    let saved = read_runs(elsewhere);
    std::fs::remove_file(elsewhere).unwrap();
    assert!(!saved.unwrap().is_empty());
}
