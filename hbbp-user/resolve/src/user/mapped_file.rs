//! Opening the file of a mapping, without being led astray.
//!
//! Paths come from processes of strangers, and the collector runs as root.
//! So a file is first looked up without opening it (`O_PATH`), and must be a regular file that is not empty: the files of
//! /proc and tracefs are empty, and reading some of them has effects. It is then opened for reading, without ever waiting,
//! and must be the one that the mapping shows ([`super::mapped_identity`]).
//!
//! It is looked for as the process sees it:
//! 1. By the mapping itself, which also finds deleted files. This needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, and the
//!    process to live.
//! 2. By its path below the root of the process.
//! 3. For processes that have exited, by its path below the roots of those that created it, and below our own.

use std::iter;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::debug_link::DebugLink;
use hbbp_model::record::{FileIdentity, Mmap};

use super::mapped_identity::{Found, is_mapped};
use crate::debug_places::linked_places;
use crate::regular_file::{OpenedFile, Refusal, open_regular};

/// The mark that the kernel appends to the path of a file that was deleted.
const DELETED: &str = " (deleted)";

/// The path without the mark of deletion.
pub(crate) fn plain_path(path: &str) -> &str {
    path.strip_suffix(DELETED).unwrap_or(path)
}

/// Opens the file that `mmap` maps; the file is the executed one, or there is a reason why not. Where the process is
/// gone, the roots of `relatives`, which see the same files as a rule, are tried as well.
pub(crate) fn open_mapped(mmap: &Mmap, relatives: &[u32]) -> Result<OpenedFile, Refusal> {
    if !matches!(mmap.identity, FileIdentity::Inode { .. }) {
        return Err(Refusal::Unidentified);
    }
    let path = plain_path(&mmap.path);
    let below_process = |tgid: u32| open_below(&open_root(&format!("/proc/{tgid}/root"))?, path);
    let below_own = || open_below(&open_root("/")?, path);
    let by_range = iter::once_with(|| (Found::ByMapping, open_range(mmap)));
    let by_itself = iter::once_with(|| below_process(mmap.pid));
    let by_relatives = relatives.iter().map(|tgid| below_process(*tgid));
    let by_path = by_itself.chain(by_relatives).chain(iter::once_with(below_own));
    let mut worst = Refusal::Missing;
    for (found, place) in by_range.chain(by_path.map(|place| (Found::ByPath, place))) {
        let opened = place
            .map_err(Refusal::from)
            .and_then(|place| open_regular(&place));
        match opened {
            Ok((file, stat)) if is_mapped(&file, &stat, found, &mmap.identity) => {
                return Ok(OpenedFile::of(file, &stat));
            }
            Ok(_) => worst = worst.max(Refusal::Changed),
            Err(refusal) => worst = worst.max(refusal),
        }
    }
    Err(worst)
}

/// Opens a file by its path below the root of a process; regular files only.
pub(crate) fn open_below_process(tgid: u32, path: &str) -> Result<OpenedFile, Refusal> {
    let place = open_below(&open_root(&format!("/proc/{tgid}/root"))?, path)?;
    open_regular(&place).map(|(file, stat)| OpenedFile::of(file, &stat))
}

/// Opens the file that a file at `path` of a process names as the one with its symbols: as the process sees it, or as we do.
pub(super) fn open_linked(tgid: u32, path: &str, link: &DebugLink) -> Option<ByteSource> {
    let root = open_root(&format!("/proc/{tgid}/root"))
        .or_else(|_| open_root("/"))
        .ok()?;
    let places = linked_places(Path::new(plain_path(path)), &link.name);
    places.iter().find_map(|place| {
        let place = open_below(&root, place.to_str()?).ok()?;
        let (file, stat) = open_regular(&place).ok()?;
        Some(OpenedFile::of(file, &stat).source)
    })
}

/// The file as the mapping itself holds it; needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
fn open_range(mmap: &Mmap) -> Result<OwnedFd, Errno> {
    let end = mmap.start.checked_add(mmap.len).ok_or(Errno::INVAL)?;
    let path = format!("/proc/{}/map_files/{:x}-{:x}", mmap.pid, mmap.start.0, end.0);
    fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn open_root(path: &str) -> Result<OwnedFd, Errno> {
    fs::openat(
        CWD,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Looks a path up below a root that no link or `..` can leave.
fn open_below(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    if !path.starts_with('/') {
        return Err(Errno::NOENT);
    }
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use super::super::proc_scan::read_process;
    use super::*;
    use hbbp_elf::layout::read_layout;
    use hbbp_model::addr::{FileOff, Va};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    fn own_mapping(named: &str) -> Mmap {
        let me = read_process(std::process::id()).expect("own process");
        me.mappings
            .into_iter()
            .find(|m| m.path.contains(named))
            .expect("a mapping of that name")
    }

    fn mapping_of(path: &Path) -> Mmap {
        let identity = match fs::stat(path) {
            Ok(stat) => FileIdentity::Inode {
                major: fs::major(stat.st_dev),
                minor: fs::minor(stat.st_dev),
                inode: stat.st_ino,
                generation: 0,
            },
            Err(_) => own_mapping("hbbp_resolve").identity,
        };
        let path = path.to_str().expect("UTF-8").into();
        let pid = std::process::id();
        Mmap {
            pid,
            start: Va(0x1000),
            len: 0x1000,
            offset: FileOff(0),
            identity,
            shared: false,
            path,
        }
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("hbbp-mapped-file-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("scratch folder");
        dir
    }

    #[test]
    fn own_program_and_library() {
        for name in ["hbbp_resolve", "libc.so"] {
            let opened = open_mapped(&own_mapping(name), &[]).expect("it is mapped, so it is there");
            assert!(read_layout(&opened.source).is_ok());
        }
    }

    #[test]
    fn another_file_at_the_same_path_is_refused() {
        let mut mmap = own_mapping("hbbp_resolve");
        mmap.start = Va(0x1000);
        mmap.identity = FileIdentity::Inode {
            major: 0xfe,
            minor: 77,
            inode: 1,
            generation: 0,
        };
        assert_eq!(open_mapped(&mmap, &[]).err(), Some(Refusal::Changed));
        mmap.path = "/nowhere/at all".into();
        assert_eq!(open_mapped(&mmap, &[]).err(), Some(Refusal::Missing));
        let named_alone = Mmap {
            identity: FileIdentity::Unknown,
            ..own_mapping("hbbp_resolve")
        };
        assert_eq!(open_mapped(&named_alone, &[]).err(), Some(Refusal::Unidentified));
    }

    #[test]
    fn odd_files_are_refused_at_once() {
        let dir = scratch("odd");
        let fifo = dir.join("fifo");
        let made = std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .expect("mkfifo");
        assert!(made.success());
        std::fs::write(dir.join("empty"), b"").expect("write");
        symlink("/proc/self/fd/0", dir.join("magic")).expect("symlink");
        symlink("loop", dir.join("loop")).expect("symlink");
        symlink(&fifo, dir.join("to-fifo")).expect("symlink");
        let begin = Instant::now();
        for name in ["fifo", "empty", "magic", "loop", "to-fifo", "."] {
            let refused = open_mapped(&mapping_of(&dir.join(name)), &[]).err();
            assert_eq!(refused, Some(Refusal::Refused), "{name}");
        }
        for path in ["/dev/zero", "/proc/kmsg", "/dev/ptmx", "/proc/self/mem"] {
            assert_eq!(
                open_mapped(&mapping_of(Path::new(path)), &[]).err(),
                Some(Refusal::Refused),
                "{path}"
            );
        }
        assert_eq!(
            open_mapped(&mapping_of(Path::new("relative")), &[]).err(),
            Some(Refusal::Missing)
        );
        assert!(begin.elapsed() < Duration::from_secs(1), "nothing may wait");
        std::fs::remove_dir_all(dir).expect("clean up");
    }

    #[test]
    fn marks_of_deletion() {
        assert_eq!(plain_path("/memfd:a (deleted)"), "/memfd:a");
        assert_eq!(plain_path("/usr/bin/a (deleted) b"), "/usr/bin/a (deleted) b");
    }
}
