//! Where a path leads that is written to with privileges.
//!
//! Whoever owns a symbolic link decides where it leads. So links of root and of the user who called sudo are followed,
//! in every part of the path, and those of others are refused. Each part is opened before it is looked at, so that it
//! cannot be replaced by a link in between.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use anyhow::bail;
use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC};
use rustix::io::Errno;

/// As many links as the kernel follows (`MAXSYMLINKS` in include/linux/namei.h).
const MAX_LINKS: usize = 40;

/// The directory that a path leads to, and the name in it, which need not exist. `is_trusted` says of a user whether their
/// links are followed.
pub(super) fn follow(path: &Path, is_trusted: impl Fn(u32) -> bool) -> anyhow::Result<(OwnedFd, OsString)> {
    let walked = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = walked | OFlags::DIRECTORY;
    let mut directory = rustix::fs::openat(CWD, ".", folder, Mode::empty())?;
    let mut left = parts(path);
    let mut n_links = 0;
    while let Some(part) = left.pop() {
        if part == "/" || part == ".." {
            directory = rustix::fs::openat(&directory, &part, folder, Mode::empty())?;
            continue;
        }
        let found = match rustix::fs::openat(&directory, &part, walked, Mode::empty()) {
            Err(Errno::NOENT) if left.is_empty() => return named(&directory, part),
            found => found?,
        };
        let stat = rustix::fs::fstat(&found)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                n_links += 1;
                if !is_trusted(stat.st_uid) {
                    bail!(NotAFile::LinkOfOthers(stat.st_uid));
                }
                if rustix::fs::fstatfs(&directory)?.f_type == PROC_SUPER_MAGIC {
                    bail!(NotAFile::LinkOfProc);
                }
                if MAX_LINKS < n_links {
                    bail!(Errno::LOOP);
                }
                let target = rustix::fs::readlinkat(&found, "", Vec::new())?;
                left.extend(parts(Path::new(&OsString::from_vec(target.into_bytes()))));
            }
            FileType::Directory if !left.is_empty() => directory = found,
            _ if left.is_empty() => return named(&directory, part),
            _ => bail!(Errno::NOTDIR),
        }
    }
    bail!(NotAFile::Directory)
}

/// The parts of a path, the first one last.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().rev();
    let parts = parts.map(|part| part.as_os_str().to_owned());
    parts.filter(|part| part != OsStr::new(".")).collect()
}

/// The directory, open for more than walking.
fn named(directory: &OwnedFd, name: OsString) -> anyhow::Result<(OwnedFd, OsString)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((rustix::fs::openat(directory, ".", flags, Mode::empty())?, name))
}

/// Why a path is not written to.
#[derive(Clone, Copy, Debug)]
pub(super) enum NotAFile {
    Directory,
    LinkOfOthers(u32),
    LinkOfProc,
    OfOthers(u32),
    Other,
}

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory => f.write_str("it is a directory"),
            Self::LinkOfOthers(uid) => write!(
                f,
                "a part of the path is a symbolic link of user {uid}, which is not followed as root: use the path that it \
                 leads to"
            ),
            Self::LinkOfProc => {
                f.write_str("it is a link of /proc to an open file: use `-` for standard output")
            }
            Self::OfOthers(uid) => write!(f, "it belongs to user {uid}: choose another name"),
            Self::Other => f.write_str("it is neither a regular file nor a pipe"),
        }
    }
}

impl std::error::Error for NotAFile {}
