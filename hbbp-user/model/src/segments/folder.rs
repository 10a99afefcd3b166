//! The folder of the segments on disk.
//!
//! One daemon writes to a folder: it holds a lock on a file there, which the kernel releases however the daemon ends. Files
//! that are none of ours are left alone. Segments are written as every profile is: as a whole, or not at all.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, OFlags, accessat, flock};
use rustix::io::Errno;

use super::name::Name;
use crate::advice::{Advice, Advised};
use crate::profile::{Output, make_directory, read_runs};
use crate::snapshot::Snapshot;

/// The file that a daemon locks; it holds the id of its process.
const LOCK: &str = "daemon.lock";

/// What a file that is being written is called: see [`Output`].
const PART: &str = ".part";

/// A folder of segments, which no other daemon writes to while this lives.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

/// What is in a folder.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Listing {
    /// The segments with their sizes in bytes, in the order of their intervals.
    pub segments: Vec<(Name, u64)>,
    /// Names of other files, sorted.
    pub foreign: Vec<String>,
}

impl Listing {
    /// Reads the names in a folder.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut listing = Self::default();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let file = entry.file_name().to_string_lossy().into_owned();
            if file == LOCK || file.starts_with('.') && file.ends_with(PART) {
                continue;
            }
            // A segment may be gone by now: it was merged, or expired.
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            match Name::parse(&file).filter(|_| metadata.is_file()) {
                Some(name) => listing.segments.push((name, metadata.len())),
                None => listing.foreign.push(file),
            }
        }
        listing.segments.sort_unstable();
        listing.foreign.sort_unstable();
        Ok(listing)
    }

    /// The segments by name.
    pub fn names(&self) -> BTreeSet<Name> {
        self.segments.iter().map(|(name, _)| *name).collect()
    }
}

/// Whether this looks like a folder of segments: a daemon has written there.
pub fn is_folder_of_segments(path: &Path) -> bool {
    let has_segment = || Listing::read(path).is_ok_and(|listing| !listing.segments.is_empty());
    path.is_dir() && (path.join(LOCK).is_file() || has_segment())
}

/// The path of a segment.
pub(crate) fn path_of(folder: &Path, name: &Name) -> PathBuf {
    folder.join(name.to_string())
}

impl Folder {
    /// Opens a folder to write to, and makes it where it is missing. What a daemon that was killed left half-written is
    /// removed.
    ///
    /// # Errors
    /// Another daemon writes there, other users may, or a link of another user leads there.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let path = &make_directory(path, 0o700)?;
        check_owner(path)?;
        let lock_path = path.join(LOCK);
        let failed = || format!("cannot write to {}", lock_path.display());
        drop(open_lock(&lock_path, OpenOptions::new().write(true).create(true)).with_context(failed)?);
        // Open for reading alone: a file that is open for writing would keep the disk from being made read-only.
        let lock = open_lock(&lock_path, OpenOptions::new().read(true)).with_context(failed)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            let _ = (&lock).take(16).read_to_string(&mut pid);
            let why = format!(
                "another daemon (process {}) writes to {}",
                pid.trim(),
                path.display()
            );
            bail!(Advised::new(why, Advice::OtherDirectory));
        }
        // The id is for people; a full disk must not stop the daemon.
        let _ = open_lock(&lock_path, OpenOptions::new().write(true).truncate(true))
            .and_then(|mut file| writeln!(file, "{}", std::process::id()));
        let folder = Self {
            path: path.to_owned(),
            _lock: lock,
        };
        folder.remove_parts()?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether segments can be written with the capabilities that are left. A full or read-only disk may recover.
    ///
    /// # Errors
    /// This user may not write there.
    pub fn check_writable(&self) -> anyhow::Result<()> {
        let access = Access::WRITE_OK | Access::EXEC_OK;
        if accessat(CWD, &self.path, access, AtFlags::EACCESS) == Err(Errno::ACCESS) {
            let own = rustix::process::geteuid().as_raw();
            let why = format!(
                "user {own} may not write to {}, and the daemon keeps no capability for that: give it the directory (chown {own})",
                self.path.display()
            );
            bail!(Advised::new(why, Advice::OtherDirectoryElse));
        }
        Ok(())
    }

    /// Writes a segment.
    pub fn write(&self, name: &Name, bytes: &[u8]) -> anyhow::Result<()> {
        Output::open(&path_of(&self.path, name))?.write(bytes, &mut io::sink())
    }

    /// Reads the runs of a segment.
    pub fn read(&self, name: &Name) -> anyhow::Result<Vec<Snapshot>> {
        read_runs(&path_of(&self.path, name))
    }

    /// Removes a segment.
    pub fn remove(&self, name: &Name) -> io::Result<()> {
        fs::remove_file(path_of(&self.path, name))
    }

    fn remove_parts(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let file = entry.file_name();
            let file = file.to_string_lossy();
            if file.starts_with('.') && file.ends_with(PART) {
                // On a read-only disk it stays, and is never read.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

fn open_lock(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    options.mode(0o600).custom_flags(flags).open(path)
}

/// Refuses a folder in which other users could put files or links.
fn check_owner(path: &Path) -> anyhow::Result<()> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
    let own = rustix::process::geteuid().as_raw();
    let caller = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    let owner = metadata.uid();
    if owner != own && Some(owner) != caller {
        bail!(
            "{} belongs to user {owner}: choose a directory of your own",
            path.display()
        );
    }
    if metadata.mode() & 0o022 != 0 {
        bail!(
            "other users may write to {}: take that away (chmod go-w), or choose another directory",
            path.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice;
    use std::os::unix::fs::PermissionsExt as _;

    fn name(first: u64, last: u64) -> Name {
        Name {
            first,
            last,
            start: 1_795_359_600_000 + first * 60_000,
            length: (last + 1 - first) * 60_000,
        }
    }

    #[test]
    fn second_daemon_is_refused_until_the_first_has_ended() {
        let made = tempfile::tempdir().unwrap();
        let path = made.path().join("new/segments");
        let first = Folder::open(&path).unwrap();
        let refused = Folder::open(&path).unwrap_err();
        assert_eq!(advice::in_error(&refused), Some(Advice::OtherDirectory));
        let pid = std::process::id();
        let refused = refused.to_string();
        assert!(refused.contains(&format!("process {pid}")), "{refused}");
        drop(first);
        Folder::open(&path).unwrap();
    }

    #[test]
    fn folders_that_others_write_to_are_refused() {
        let made = tempfile::tempdir().unwrap();
        fs::set_permissions(made.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Folder::open(made.path()).unwrap_err().to_string();
        assert!(refused.contains("chmod go-w"), "{refused}");
    }

    #[test]
    fn listing_knows_segments_from_other_files() {
        let made = tempfile::tempdir().unwrap();
        let folder = Folder::open(made.path()).unwrap();
        for (name, bytes) in [(name(1, 1), "a"), (name(2, 2), "bc"), (name(1, 2), "def")] {
            folder.write(&name, bytes.as_bytes()).unwrap();
        }
        fs::write(made.path().join("notes.txt"), "mine").unwrap();
        fs::write(made.path().join(".x.hbbp.7-0.part"), "half").unwrap();
        let listing = Listing::read(made.path()).unwrap();
        assert_eq!(
            listing.segments,
            [(name(1, 1), 1), (name(1, 2), 3), (name(2, 2), 2)]
        );
        assert_eq!(listing.foreign, ["notes.txt"]);
        assert!(
            listing
                .names()
                .into_iter()
                .eq([name(1, 1), name(1, 2), name(2, 2)])
        );
        folder.remove(&name(1, 2)).unwrap();
        assert!(is_folder_of_segments(made.path()));
        drop(folder);
        Folder::open(made.path()).unwrap();
        assert!(!made.path().join(".x.hbbp.7-0.part").exists());
        assert!(made.path().join("notes.txt").exists());
    }
}
