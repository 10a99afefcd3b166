//! Where a profile is written, and who may read it.
//!
//! A file is replaced as a whole or not at all: the bytes go to a new file in the same directory, reach the disk, and
//! then take the name.
//! With privileges, other users must not decide where the bytes go: their symbolic links are not followed (`place`), and
//! their files, devices and pipes are neither replaced nor written to. The user who called sudo counts as the owner, like
//! root.
//! A symbolic link stays, and the file that it leads to is replaced.
//! Where it cannot be written in the end, as on a full disk, the profile is saved in a temporary directory instead.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::place::{NotAFile, follow};
use crate::snapshot::Snapshot;
use crate::snapshot::file::{Compression, encode_runs};

/// The path that means standard input or standard output.
pub const STANDARD: &str = "-";

/// Where a profile is written.
#[derive(Debug)]
pub struct Output {
    /// As the user named it.
    path: PathBuf,
    target: Target,
    user: User,
    readers: Readers,
}

/// Who may read a new file.
#[derive(Clone, Copy, Debug)]
enum Readers {
    /// The user, or the one who called sudo.
    Owner,
    /// Everybody; it belongs to the user who writes it.
    Everybody,
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
pub(super) struct User {
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
            target: target.with_context(|| format!("cannot write to {}", path.display()))?,
            user,
            readers: Readers::Owner,
        })
    }

    /// The same, as a file that everybody may read: it holds nothing of what was measured.
    #[must_use]
    pub fn for_everybody(self) -> Self {
        Self {
            readers: Readers::Everybody,
            ..self
        }
    }

    /// Whether it is standard output, to which nothing else may be printed then.
    pub const fn is_standard(&self) -> bool {
        matches!(self.target, Target::Standard)
    }

    /// Writes the runs of a profile, to `standard` where the output is standard output. Where that fails, a file is as it was
    /// before.
    pub fn save(
        self,
        runs: &[Snapshot],
        compression: Compression,
        standard: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let failed = format!("failed to write profile {}", self.path.display());
        let bytes = encode_runs(runs, compression).with_context(|| failed.clone())?;
        let user = self.user;
        self.put(&bytes, standard)
            .with_context(|| format!("{failed}; {}", user.save_elsewhere(&bytes)))
    }

    /// Writes an export. On failure the file is unchanged, and nothing is saved elsewhere: an export can be made again.
    pub fn write(self, bytes: &[u8], standard: &mut dyn Write) -> anyhow::Result<()> {
        let failed = format!("failed to write {}", self.path.display());
        self.put(bytes, standard).context(failed)
    }

    /// Writes what is too long to be held in memory, piece by piece as `write` makes it, to a file; as
    /// [`Self::write`] else.
    pub fn write_with(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        let failed = format!("failed to write {}", self.path.display());
        self.put_with(&mut io::sink(), write).context(failed)
    }

    fn put(self, bytes: &[u8], standard: &mut dyn Write) -> io::Result<()> {
        self.put_with(standard, |out| out.write_all(bytes))
    }

    fn put_with(
        self,
        standard: &mut dyn Write,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.target {
            Target::Standard => write(standard).and_then(|()| standard.flush()),
            Target::Stream(mut stream) => write(&mut stream),
            Target::File { directory, name } => self.user.replace(&directory, &name, self.readers, write),
        }
    }
}

impl User {
    pub(super) fn current() -> Self {
        let id = |name| std::env::var(name).ok()?.parse().ok();
        let is_root = rustix::process::geteuid().is_root();
        Self {
            is_root,
            sudo: id("SUDO_UID").zip(id("SUDO_GID")).filter(|_| is_root),
        }
    }

    pub(super) const fn is_root(self) -> bool {
        self.is_root
    }

    fn open(self, path: &Path) -> anyhow::Result<Target> {
        let (directory, name) = if self.is_root {
            follow(path, |user| self.is_ours(user))?
        } else {
            let followed = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let name = followed.file_name().with_context(|| NotAFile::Directory)?;
            let parent = followed.parent().filter(|parent| !parent.as_os_str().is_empty());
            (open_directory(parent.unwrap_or(Path::new(".")))?, name.to_owned())
        };
        let there = match rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            there => Some(there?),
        };
        match there.as_ref().map(|there| FileType::from_raw_mode(there.st_mode)) {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Fifo | FileType::CharacterDevice) => {
                self.check_owner(there.as_ref())?;
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
                let stream = rustix::fs::openat(&directory, &name, flags, Mode::empty())?;
                // It may be another one by now.
                self.check_owner(Some(&rustix::fs::fstat(&stream)?))?;
                return Ok(Target::Stream(stream.into()));
            }
            Some(FileType::Directory) => bail!(NotAFile::Directory),
            Some(_) => bail!(NotAFile::Other),
        }
        self.check_owner(there.as_ref())?;
        // Whether a file can be made there is better known now.
        let (temporary, _) = create_beside(&directory, &name, Readers::Owner)?;
        rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty())?;
        Ok(Target::File { directory, name })
    }

    /// With privileges: whether this is root or who called sudo.
    pub(super) fn is_ours(self, user: u32) -> bool {
        user == 0 || self.sudo.is_some_and(|(caller, _)| caller == user)
    }

    /// Refuses, with privileges, what belongs to somebody else.
    fn check_owner(self, there: Option<&Stat>) -> anyhow::Result<()> {
        match there {
            Some(there) if self.is_root && !self.is_ours(there.st_uid) => {
                bail!(NotAFile::OfOthers(there.st_uid))
            }
            _ => Ok(()),
        }
    }

    /// Saves the profile in the first temporary directory that takes it, and says where.
    fn save_elsewhere(self, bytes: &[u8]) -> String {
        let folders = [std::env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()];
        let save = |folder: &PathBuf| {
            let directory = open_directory(folder).ok()?;
            let name = OsString::from(format!("hbbp-sys-{}.hbbp", std::process::id()));
            // What others put there under this name stays theirs.
            rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW).err()?;
            self.replace(&directory, &name, Readers::Owner, |out| out.write_all(bytes))
                .ok()?;
            Some(folder.join(name))
        };
        match folders.iter().find_map(save) {
            Some(path) => format!("it was saved as {} instead", path.display()),
            None => "it could not be saved in a temporary directory either".to_owned(),
        }
    }

    /// Replaces the file `name` in `directory`.
    fn replace(
        self,
        directory: &OwnedFd,
        name: &OsStr,
        readers: Readers,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let (temporary, file) = create_beside(directory, name, readers)?;
        let written = self.give(&file, readers).and_then(|()| {
            let mut buffered = BufWriter::new(&file);
            write(&mut buffered)?;
            buffered.flush()?;
            drop(buffered);
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
    fn give(self, file: &File, readers: Readers) -> io::Result<()> {
        match (self.sudo, readers) {
            (Some((uid, gid)), Readers::Owner) => Ok(rustix::fs::fchown(
                file,
                Some(Uid::from_raw(uid)),
                Some(Gid::from_raw(gid)),
            )?),
            _ => Ok(()),
        }
    }
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Creates a file in `directory` that was not there before.
fn create_beside(directory: &OwnedFd, name: &OsStr, readers: Readers) -> io::Result<(OsString, File)> {
    /// As many files of killed processes with our id are passed over.
    const ATTEMPTS: u32 = 64;

    let mode = match readers {
        Readers::Owner => Mode::RUSR | Mode::WUSR,
        Readers::Everybody => Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH,
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for attempt in 0..ATTEMPTS {
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}-{attempt}.part", std::process::id()));
        match rustix::fs::openat(directory, &temporary, flags, mode) {
            Ok(file) => return Ok((temporary, file.into())),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
