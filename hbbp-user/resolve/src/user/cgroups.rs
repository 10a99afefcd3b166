//! Cgroups of live processes in the unified hierarchy, from `/proc/PID/cgroup`.
//!
//! A process is read when its exec is notified and, if that was not possible, when its first sample is resolved. One
//! that has exited by then has the cgroup of its parent: the kernel starts a fork in the cgroup of the parent
//! (kernel/cgroup/cgroup.c, `cgroup_post_fork`), and only a service manager or container runtime moves it, before the
//! exec. A later move is not followed.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

/// Most paths that are held at once, and their bytes: users with a delegated cgroup can create any number below it.
const MAX_PATHS: usize = 1 << 14;
const MAX_BYTES: usize = 4 << 20;
/// Bytes of the file: a line of up to PATH_MAX for each hierarchy.
const MOST_READ: u64 = 1 << 16;
/// Processes that are read between two drains because of their exec, before they have a sample. Each takes some 10 µs.
const MAX_EARLY: usize = 256;

/// The cgroup of a process image, and how it is known.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Membership {
    /// Path; `None` if it is not known.
    pub(super) path: Option<Arc<str>>,
    /// Whether it was read of this process image; else it is that of its parent.
    pub(super) is_read: bool,
}

impl Membership {
    /// As read of the process itself; without a path where the hierarchy is not mounted.
    pub(super) const fn read(path: Option<Arc<str>>) -> Self {
        Self { path, is_read: true }
    }

    /// That of a child, or of the next program of the process.
    pub(super) fn inherited(&self) -> Self {
        Self {
            path: self.path.clone(),
            is_read: false,
        }
    }
}

/// Paths of the cgroups of live processes, each held once.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    paths: HashSet<Arc<str>>,
    n_bytes: usize,
    n_early: usize,
    /// Those that were read at an exec which is still to be applied, by process and time.
    at_exec: HashMap<(u32, u64), Membership>,
}

impl Cgroups {
    /// Reads the cgroup of a live process, which has none where the hierarchy is not mounted; nothing if the process is
    /// gone, or there are too many paths.
    pub(super) fn read(&mut self, tgid: u32) -> Option<Membership> {
        let mut text = Vec::new();
        let file = File::open(format!("/proc/{tgid}/cgroup")).ok()?;
        file.take(MOST_READ).read_to_end(&mut text).ok()?;
        let Some(path) = unified(&text) else {
            return Some(Membership::read(None));
        };
        let path = self.intern(&String::from_utf8_lossy(path))?;
        Some(Membership::read(Some(path)))
    }

    /// The same at the exec of a process at `time`, a limited number of times between two drains.
    pub(super) fn read_at_exec(&mut self, tgid: u32, time: u64) {
        if self.n_early < MAX_EARLY {
            self.n_early += 1;
            let read = self.read(tgid);
            self.at_exec.extend(read.map(|read| ((tgid, time), read)));
        }
    }

    /// What was read at an exec, when that is applied.
    pub(super) fn take_at_exec(&mut self, tgid: u32, time: u64) -> Option<Membership> {
        self.at_exec.remove(&(tgid, time))
    }

    fn intern(&mut self, path: &str) -> Option<Arc<str>> {
        if let Some(known) = self.paths.get(path) {
            return Some(known.clone());
        }
        if self.is_full(path.len()) {
            self.forget_unused();
        }
        if self.is_full(path.len()) {
            return None;
        }
        let path: Arc<str> = Arc::from(path);
        self.n_bytes += path.len();
        self.paths.insert(path.clone());
        Some(path)
    }

    fn is_full(&self, len: usize) -> bool {
        MAX_PATHS <= self.paths.len() || MAX_BYTES < self.n_bytes.saturating_add(len)
    }

    fn forget_unused(&mut self) {
        self.paths.retain(|path| 1 < Arc::strong_count(path));
        self.n_bytes = self.paths.iter().map(|path| path.len()).sum();
    }

    /// Ends a drain.
    pub(super) const fn end_drain(&mut self) {
        self.n_early = 0;
    }
}

/// The path in the unified hierarchy, whose line is `0::PATH` (Documentation/admin-guide/cgroup-v2.rst); `None` if only
/// the hierarchies of version 1 are mounted.
fn unified(text: &[u8]) -> Option<&[u8]> {
    text.split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))
        .filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_counts() {
        let text = b"4:memory:/a\n1:name=systemd:/b\n0::/user.slice/a b\xff\n";
        assert_eq!(unified(text), Some(&b"/user.slice/a b\xff"[..]));
        assert_eq!(unified(b"4:memory:/a\n10::/x\n"), None);
        assert_eq!(unified(b""), None);
    }

    #[test]
    fn paths_are_stored_once_and_bounded() {
        let mut cgroups = Cgroups::default();
        let long = "x".repeat(4096);
        let held: Vec<_> = (0..MAX_BYTES / 4096 + 1)
            .map(|n| cgroups.intern(&format!("{n:04}{}", &long[4..])))
            .collect();
        assert!(held.iter().rev().skip(1).all(Option::is_some));
        assert_eq!(held.last(), Some(&None));
        assert!(Arc::ptr_eq(
            held[0].as_ref().unwrap(),
            &cgroups.intern(held[0].as_ref().unwrap()).unwrap()
        ));
        drop(held);
        assert!(cgroups.intern("/new").is_some(), "unused paths make room");
        assert_eq!(cgroups.n_bytes, 4);
    }

    #[test]
    fn this_process_has_what_its_file_says() {
        let text = std::fs::read("/proc/self/cgroup").unwrap();
        let expected = unified(&text).map(|path| String::from_utf8_lossy(path).into_owned());
        let read = Cgroups::default().read(std::process::id()).unwrap();
        assert_eq!(read.path.as_deref(), expected.as_deref());
        assert_eq!(Cgroups::default().read(u32::MAX), None);
    }
}
