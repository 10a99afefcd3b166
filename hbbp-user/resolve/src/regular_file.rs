//! Opening files of anybody without an effect or a wait: regular files that are not empty, and nothing else.
//!
//! A file is first looked up without opening it (`O_PATH`), as the files of /proc and tracefs, which are empty, have effects
//! when they are read, and pipes wait.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use hbbp_elf::byte_source::ByteSource;
use hbbp_model::snapshot::Loss;

/// A file, open for reading.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    /// Its bytes.
    pub source: ByteSource,
    /// Device and inode as they are now: two mappings with the same belong to one file.
    pub place: (u64, u64),
}

impl OpenedFile {
    /// An open file with this `stat`.
    pub(crate) fn of(file: File, stat: &Stat) -> Self {
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        Self {
            source: ByteSource::File(file, len),
            place: (stat.st_dev, stat.st_ino),
        }
    }
}

/// Why the file of a mapping cannot be used; the worst reason of all paths that were tried.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Refusal {
    /// It is nowhere.
    Missing,
    /// It is not a regular file, or we may not read it.
    Refused,
    /// Another file is at its path.
    Changed,
    /// Nothing but its name is known, by which anybody may call a file.
    Unidentified,
}

impl Refusal {
    /// How it is counted.
    pub(crate) const fn loss(self) -> Loss {
        match self {
            Self::Missing => Loss::FileMissing,
            Self::Refused => Loss::FileRefused,
            Self::Changed => Loss::FileChanged,
            Self::Unidentified => Loss::FileUnidentified,
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::SRCH | Errno::NAMETOOLONG => Self::Missing,
            _ => Self::Refused,
        }
    }
}

/// Opens a file by a path of our own choice, such as a debug file or a vmlinux; regular files only.
pub(crate) fn open_own(path: &Path) -> Result<OpenedFile, Refusal> {
    let place = fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    open_regular(&place).map(|(file, stat)| OpenedFile::of(file, &stat))
}

/// Opens what was looked up, where it is a regular file that is not empty.
pub(crate) fn open_regular(place: &OwnedFd) -> Result<(File, Stat), Refusal> {
    let stat = fs::fstat(place)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_size <= 0 {
        return Err(Refusal::Refused);
    }
    // The link in /proc leads to the opened file itself, even if its path names another one by now.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    Ok((File::from(fs::openat(CWD, path, flags, Mode::empty())?), stat))
}
