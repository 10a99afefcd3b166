//! Where a profile is written, and who may read it.
//!
//! A file is replaced as a whole or not at all: the bytes go to a new file in the same directory, reach the disk, and
//! then take the name.
//! With privileges, other users must not decide where the bytes go: no symbolic link is followed, in no part of the
//! path, and their files, devices and pipes are neither replaced nor written to. The user who called sudo counts as the
//! owner, like root.
//! Without privileges a symbolic link stays, and the file that it leads to is replaced.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;

use super::STANDARD;
use crate::snapshot::Snapshot;
use crate::snapshot::file::encode;

/// Where a profile is written.
#[derive(Debug)]
pub struct Output {
    /// As the user named it.
    path: PathBuf,
    target: Target,
    user: User,
}

#[derive(Debug)]
enum Target {
    /// Standard output.
    Standard,
    /// A pipe or character device, which holds nothing that could be lost.
    Stream(File),
    /// A file by its name in a directory.
    File { directory: OwnedFd, name: OsString },
}

/// Whose profile it is.
#[derive(Clone, Copy, Debug)]
struct User {
    is_root: bool,
    /// User and group of the caller of sudo.
    sudo: Option<(u32, u32)>,
}

impl Output {
    /// Opens the output `path`, where `-` is standard output, and fails where nothing could be written to it.
    /// A pipe is waited for until it has a reader.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let user = User::current();
        let target = if path == Path::new(STANDARD) {
            Ok(Target::Standard)
        } else {
            user.open(path)
        };
        Ok(Self {
            path: path.to_owned(),
            target: target.with_context(|| format!("cannot write a profile to {}", path.display()))?,
            user,
        })
    }

    /// Whether it is standard output, to which nothing else may be printed then.
    pub const fn is_standard(&self) -> bool {
        matches!(self.target, Target::Standard)
    }

    /// Writes the profile, to `standard` where the output is standard output. Where that fails, a file is as it was
    /// before.
    pub fn save(self, snapshot: &Snapshot, standard: &mut dyn Write) -> anyhow::Result<()> {
        let bytes = encode(snapshot).with_context(|| self.failed())?;
        self.write(&bytes, standard)
    }

    /// Writes bytes in the place of a profile, as [`Self::save`] does.
    pub fn write(self, bytes: &[u8], standard: &mut dyn Write) -> anyhow::Result<()> {
        let failed = self.failed();
        let written = match self.target {
            Target::Standard => standard.write_all(bytes).and_then(|()| standard.flush()),
            Target::Stream(mut stream) => stream.write_all(bytes),
            Target::File { directory, name } => self.user.replace(&directory, &name, bytes),
        };
        written.context(failed)
    }

    fn failed(&self) -> String {
        format!("failed to write profile {}", self.path.display())
    }
}

impl User {
    fn current() -> Self {
        let id = |name| std::env::var(name).ok()?.parse().ok();
        let is_root = rustix::process::geteuid().is_root();
        Self {
            is_root,
            sudo: id("SUDO_UID").zip(id("SUDO_GID")).filter(|_| is_root),
        }
    }

    fn open(self, path: &Path) -> anyhow::Result<Target> {
        let followed = match fs::canonicalize(path) {
            Ok(followed) if !self.is_root => followed,
            _ => path.to_owned(),
        };
        let name = followed.file_name().with_context(|| NotAFile::Directory)?;
        let parent = followed.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = self.open_directory(parent.unwrap_or(Path::new(".")))?;
        let there = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            there => Some(there?),
        };
        match there.as_ref().map(|there| FileType::from_raw_mode(there.st_mode)) {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Fifo | FileType::CharacterDevice) => {
                self.check_owner(there.as_ref())?;
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
                let stream = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
                // It may be another one by now.
                self.check_owner(Some(&rustix::fs::fstat(&stream)?))?;
                return Ok(Target::Stream(stream.into()));
            }
            Some(FileType::Symlink) => bail!(NotAFile::Link),
            Some(FileType::Directory) => bail!(NotAFile::Directory),
            Some(_) => bail!(NotAFile::Other),
        }
        self.check_owner(there.as_ref())?;
        // Whether a file can be made there is better known now.
        let (temporary, _) = create_beside(&directory, name)?;
        rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty())?;
        Ok(Target::File {
            directory,
            name: name.to_owned(),
        })
    }

    fn open_directory(self, path: &Path) -> anyhow::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if !self.is_root {
            return Ok(rustix::fs::open(path, flags, Mode::empty())?);
        }
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
            Err(Errno::LOOP) => bail!(NotAFile::Link),
            opened => Ok(opened?),
        }
    }

    /// Refuses, with privileges, what belongs to somebody else.
    fn check_owner(self, there: Option<&Stat>) -> anyhow::Result<()> {
        let is_ours = |uid: u32| uid == 0 || self.sudo.is_some_and(|(user, _)| user == uid);
        match there {
            Some(there) if self.is_root && !is_ours(there.st_uid) => bail!(NotAFile::OfOthers(there.st_uid)),
            _ => Ok(()),
        }
    }

    /// Replaces the file `name` in `directory`.
    fn replace(self, directory: &OwnedFd, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
        let (temporary, mut file) = create_beside(directory, name)?;
        let written = self.give(&file).and_then(|()| {
            file.write_all(bytes)?;
            file.sync_all()?;
            Ok(rustix::fs::renameat(directory, &temporary, directory, name)?)
        });
        if written.is_err() {
            // The first error is the one to report.
            let _ = rustix::fs::unlinkat(directory, &temporary, AtFlags::empty());
        }
        written?;
        // The new name is durable only with its directory; the profile is complete in either case.
        let _ = rustix::fs::fsync(directory);
        Ok(())
    }

    /// Gives a new file to the user who called sudo.
    fn give(self, file: &File) -> io::Result<()> {
        match self.sudo {
            Some((uid, gid)) => Ok(rustix::fs::fchown(
                file,
                Some(Uid::from_raw(uid)),
                Some(Gid::from_raw(gid)),
            )?),
            None => Ok(()),
        }
    }
}

/// Creates a file in `directory` that was not there before, which its owner alone can read.
fn create_beside(directory: &OwnedFd, name: &OsStr) -> io::Result<(OsString, File)> {
    /// As many files of killed processes with our id are passed over.
    const ATTEMPTS: u32 = 64;

    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for attempt in 0..ATTEMPTS {
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}-{attempt}.part", std::process::id()));
        match rustix::fs::openat(directory, &temporary, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return Ok((temporary, file.into())),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Why a path is not written to.
#[derive(Clone, Copy, Debug)]
enum NotAFile {
    Directory,
    Link,
    OfOthers(u32),
    Other,
}

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory => f.write_str("it is a directory"),
            Self::Link => f.write_str("a part of the path is a symbolic link, which is not followed as root: use the path that it leads to"),
            Self::OfOthers(uid) => write!(f, "it belongs to user {uid}: choose another name"),
            Self::Other => f.write_str("it is neither a regular file nor a pipe"),
        }
    }
}

impl std::error::Error for NotAFile {}
