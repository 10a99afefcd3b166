//! The disk stops in the middle of a write, as at a power cut: what had not reached it is lost, journal included.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hbbp_model::profile::read_runs;

use super::{Daemon, intervals, names, path_of, random, warnings};
use crate::load::Load;
use crate::{kernel, number, report_of, skip_outside_ci};

/// Times that the power is cut, unless HBBP_CUTS says otherwise.
const CUTS: usize = 3;

/// A file system on an image, unmounted when the test ends.
struct Disk {
    image: PathBuf,
    folder: PathBuf,
}

impl Disk {
    /// `None` if none can be mounted.
    fn make(made: &Path) -> Option<Self> {
        let disk = Self {
            image: made.join("image"),
            folder: made.join("mounted"),
        };
        std::fs::create_dir(&disk.folder).unwrap();
        File::create(&disk.image).unwrap().set_len(256 << 20).unwrap();
        let mut make = Command::new("mkfs.ext4");
        let is_made = make.args(["-q", "-F"]).arg(&disk.image).status();
        if is_made.is_ok_and(|status| status.success()) && disk.mount() {
            return Some(disk);
        }
        skip_outside_ci("an ext4 file system cannot be made and mounted on a loop device here");
        None
    }

    fn mount(&self) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).args([&self.image, &self.folder]);
        mount.status().is_ok_and(|status| status.success())
    }

    /// Stops all writes at once, also those of the journal: `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`
    /// (fs/ext4/ext4.h).
    fn cut(&self) {
        const SHUTDOWN: libc::Ioctl = 0x8004_587d;
        const NO_LOG_FLUSH: u32 = 2;
        let root = File::open(&self.folder).unwrap();
        let how = NO_LOG_FLUSH;
        // SAFETY: the descriptor is open, and the call reads one number.
        let result = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, &raw const how) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// Goes on with a copy of the image: a mount namespace that was made meanwhile may keep the old one mounted, and stopped.
    fn start_again(&mut self) {
        let status = Command::new("umount").arg(&self.folder).status();
        assert!(status.unwrap().success());
        let old = self.image.clone();
        self.image.set_extension(random(u64::MAX).to_string());
        let copied = Command::new("cp").args([&old, &self.image]).status();
        assert!(copied.unwrap().success());
        std::fs::remove_file(old).unwrap();
        assert!(
            self.mount(),
            "the journal is read, and the disk is as good as new"
        );
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}

#[test]
fn power_cut_loses_no_interval_that_was_written() {
    let Some(_kernel) = kernel() else { return };
    let made = tempfile::tempdir().unwrap();
    let Some(mut disk) = Disk::make(made.path()) else {
        return;
    };
    let _load = Load::syscalls();
    let cuts = std::env::var("HBBP_CUTS").map_or(CUTS, |n| n.parse().unwrap());
    let folder = disk.folder.join("segments");
    let (mut n_read, mut n_unfinished) = (0, 0);
    for _ in 0..cuts {
        let before = names(&folder);
        let daemon = Daemon::start(&folder);
        daemon.until_intervals(intervals(&before).len() + 1);
        std::thread::sleep(Duration::from_millis(random(2000)));
        let mut written = intervals(&names(&folder));
        disk.cut();
        daemon.kill();
        disk.start_again();
        let found = names(&folder);
        let numbers = intervals(&found);
        // The name of the last one may have been about to reach the disk.
        let last = written.pop();
        n_unfinished += usize::from(last.is_some_and(|last| !numbers.contains(&last)));
        assert!(
            written.iter().all(|number| numbers.contains(number)),
            "{written:?}, {numbers:?}"
        );
        assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
        for name in &found {
            if !before.contains(name) {
                read_runs(Path::new(&path_of(&folder, name))).unwrap();
                n_read += 1;
            }
        }
    }
    println!("{n_read} segments read after {cuts} power cuts; {n_unfinished} were just being named");
    let whole = report_of(folder.to_str().unwrap());
    assert_eq!(number(&whole["accounting"]["unexplained"]), 0);
    assert!(!warnings(&whole).contains("damaged"), "{}", warnings(&whole));
}
