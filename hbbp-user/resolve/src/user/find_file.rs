//! Finding the files of a recording, which may have been made elsewhere and long ago.
//!
//! A file must be the executed one: its build id is compared where the recording has one. Files are looked for among those that the
//! user names, below the user's folder, in perf's cache by build id, and at their own path on this machine. Servers that the user
//! names come last ([`crate::debuginfod`]). A file of this machine that is another one is reported only where the recording was
//! made here.

use std::path::{Path, PathBuf};

use super::mapped_file::plain_path;
use super::mapping::MappedFile;
use crate::debuginfod::{Artifact, fetch};
use crate::regular_file::{OpenedFile, Refusal, open_own};
use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::layout::{ElfLayout, read_layout};
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::record::FileIdentity;
use hbbp_model::snapshot::{Loss, hex};

/// Whether a file that is not the executed one may be used for it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mismatch {
    /// It is refused.
    #[default]
    Refuse,
    /// It is taken, because the user says that its text is the same.
    Accept,
}

/// Where files may be.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Files that the user names.
    pub binaries: Vec<PathBuf>,
    /// A folder that holds files at their paths.
    pub symfs: Option<PathBuf>,
    /// perf's cache, usually `~/.debug`.
    pub cache: Option<PathBuf>,
    /// What to do about another build id.
    pub mismatch: Mismatch,
    /// Whose files are at the paths of the recording.
    pub host: Host,
}

/// The machine that a recording was made on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Host {
    /// This one.
    This,
    /// Another one, or an unknown one.
    #[default]
    Other,
}

impl Host {
    /// The host of this name; empty if it is unknown.
    pub fn named(name: &str) -> Self {
        let own = rustix::system::uname();
        if own.nodename().to_bytes() == name.as_bytes() {
            Self::This
        } else {
            Self::Other
        }
    }
}

/// A file that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) source: ByteSource,
    /// Its device and inode.
    pub(super) place: (u64, u64),
    pub(super) layout: ElfLayout,
    /// What the user must know about it.
    pub(super) note: Option<Advised>,
}

/// A file that was not.
#[derive(Debug)]
pub(super) struct NotFound {
    pub(super) loss: Loss,
    /// The note for the user.
    pub(super) note: Option<Advised>,
    /// The file that the user named for it, and that is another one.
    pub(super) named: Option<PathBuf>,
}

/// Bytes of a build id that a recording holds (tools/perf/util/build-id.h, `BUILD_ID_SIZE`).
const RECORDED: usize = 20;

/// Whether two build ids are one: older versions of perf write short ones with zeros up to 20 bytes, and all cut long ones.
pub(crate) fn same_build_id(a: &[u8], b: &[u8]) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    long.split_at_checked(short.len())
        .is_some_and(|(head, remainder)| {
            head == short && (short.len() == RECORDED || remainder.iter().all(|byte| *byte == 0))
        })
}

/// Looks for the file of a mapping. `build_id` is what the recording says of it, empty where it says nothing.
pub(super) fn find(places: &Places, file: &MappedFile, build_id: &[u8]) -> Result<Found, NotFound> {
    let path = plain_path(&file.path);
    let named = |candidate: &&PathBuf| candidate.file_name() == Path::new(path).file_name();
    let by_name = places.binaries.iter().filter(named);
    // A file of another name serves if it says that it is the right one.
    let by_id = places
        .binaries
        .iter()
        .filter(|binary| !build_id.is_empty() && !named(binary));
    let mut worst = NotFound {
        loss: Loss::FileMissing,
        note: None,
        named: None,
    };
    for candidate in by_name {
        match open_checked(candidate, build_id, places.mismatch) {
            Ok(found) => return Ok(found),
            Err(refused) => {
                worst = NotFound {
                    named: Some(candidate.clone()),
                    ..refused
                }
            }
        }
    }
    for candidate in by_id {
        if let Ok(found) = open_checked(candidate, build_id, Mismatch::Refuse) {
            return Ok(found);
        }
    }
    let below = |root: &PathBuf| root.join(path.trim_start_matches('/'));
    let others = [places.symfs.as_ref().map(below), cached(places, build_id)];
    let own = own_place(places, path, file, build_id);
    let is_own = |candidate: &PathBuf| own.as_ref() == Some(candidate);
    for candidate in others.into_iter().chain([own.clone()]).flatten() {
        match open_checked(&candidate, build_id, places.mismatch) {
            Ok(found) => return Ok(found),
            Err(refused) if refused.loss == Loss::FileMissing => {}
            Err(_) if is_own(&candidate) && places.host == Host::Other => {}
            Err(refused) => {
                worst = NotFound {
                    named: worst.named.take(),
                    ..refused
                }
            }
        }
    }
    let fetched = || fetch(Artifact::Executable, build_id);
    if worst.loss == Loss::FileMissing
        && let Some(path) = fetched()
    {
        return open_checked(&path, build_id, Mismatch::Refuse);
    }
    Err(worst)
}

/// `~/.debug/.build-id/ab/cdef.../elf`, where perf keeps the files that a recording hit.
fn cached(places: &Places, build_id: &[u8]) -> Option<PathBuf> {
    let digits = hex(build_id);
    let (first, remainder) = digits
        .split_at_checked(2)
        .filter(|(_, remainder)| !remainder.is_empty())?;
    Some(
        places
            .cache
            .as_ref()?
            .join(".build-id")
            .join(first)
            .join(remainder)
            .join("elf"),
    )
}

/// The path that the recording names, on this machine; a folder of files replaces the whole machine.
/// Only its build id or its inode distinguishes a file from others of its name.
fn own_place(places: &Places, path: &str, file: &MappedFile, build_id: &[u8]) -> Option<PathBuf> {
    let is_same_inode = || match file.identity {
        FileIdentity::Inode { inode, .. } => {
            use std::os::unix::fs::MetadataExt as _;
            std::fs::metadata(path).is_ok_and(|found| found.ino() == inode)
        }
        FileIdentity::Unknown | FileIdentity::BuildId(_) => false,
    };
    let known = !build_id.is_empty() || places.mismatch == Mismatch::Accept || is_same_inode();
    (places.symfs.is_none() && path.starts_with('/') && known).then(|| PathBuf::from(path))
}

fn open_checked(path: &Path, build_id: &[u8], mismatch: Mismatch) -> Result<Found, NotFound> {
    let shown = path.display();
    let refused = |loss, why: String, advice: Option<Advice>| NotFound {
        loss,
        note: Some(Advised::new(format!("{shown} was not used: {why}"), advice)),
        named: None,
    };
    let OpenedFile { source, place } = open_own(path).map_err(|refusal| match refusal {
        Refusal::Missing => NotFound {
            loss: Loss::FileMissing,
            note: None,
            named: None,
        },
        Refusal::Refused | Refusal::Changed | Refusal::Unidentified => refused(
            refusal.loss(),
            "not a regular file, or permission denied".to_owned(),
            None,
        ),
    })?;
    let layout =
        read_layout(&source).map_err(|error| refused(Loss::FileUnreadable, error.to_string(), None))?;
    let same = build_id.is_empty() || same_build_id(&layout.build_id, build_id);
    let ids = || {
        let own = if layout.build_id.is_empty() {
            "none".to_owned()
        } else {
            hex(&layout.build_id)
        };
        format!("its build id is {own}, expected {}", hex(build_id))
    };
    let note = match (same, mismatch) {
        (true, _) => None,
        (false, Mismatch::Accept) => Some(format!("{shown} was used although {}", ids()).into()),
        (false, Mismatch::Refuse) => {
            return Err(refused(
                Loss::FileChanged,
                ids(),
                Some(Advice::NameRightFileOrForce),
            ));
        }
    };
    Ok(Found {
        path: path.to_owned(),
        source,
        place,
        layout,
        note,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_program() -> (PathBuf, Vec<u8>) {
        let path = std::env::current_exe().unwrap();
        let build_id = read_layout(&open_own(&path).unwrap().source).unwrap().build_id;
        (path, build_id)
    }

    fn mapped(path: &str) -> MappedFile {
        MappedFile {
            path: path.into(),
            identity: FileIdentity::Unknown,
        }
    }

    #[test]
    fn short_build_ids_are_padded_with_zeros() {
        assert!(same_build_id(&[1, 2], &[1, 2, 0, 0]) && same_build_id(&[1, 2, 0], &[1, 2]));
        assert!(!same_build_id(&[1, 2], &[1, 2, 3]) && !same_build_id(&[1, 2], &[1, 3]));
        assert!(same_build_id(&[7; 20], &[7; 32]) && !same_build_id(&[7; 19], &[7; 32]));
        assert!(!same_build_id(&[7; 32], &[7; 33]));
    }

    #[test]
    fn a_file_with_another_build_id_is_refused_with_both() {
        let (path, own) = own_program();
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut places = Places {
            binaries: vec![path.clone()],
            ..Places::default()
        };
        let refused = find(&places, &mapped(&format!("/elsewhere/{name}")), &[0xab; 20]).unwrap_err();
        let note = refused.note.unwrap();
        assert_eq!(refused.loss, Loss::FileChanged);
        assert_eq!(note.advice, Some(Advice::NameRightFileOrForce));
        assert!(
            note.text.contains(&"ab".repeat(20)) && note.text.contains(&hex(&own)),
            "{note}"
        );
        places.mismatch = Mismatch::Accept;
        assert!(
            find(&places, &mapped(&format!("/elsewhere/{name}")), &[0xab; 20])
                .unwrap()
                .note
                .is_some()
        );
        assert_eq!(
            find(&places, &mapped("/elsewhere/another"), &[])
                .unwrap_err()
                .loss,
            Loss::FileMissing
        );
    }

    /// Another file at the same path matters on the host of the recording only.
    #[test]
    fn other_file_at_the_path_matters_on_the_recording_host_only() {
        let (path, _) = own_program();
        let find_on = |host| {
            let places = Places {
                host,
                ..Places::default()
            };
            let refused = find(&places, &mapped(path.to_str().unwrap()), &[0xab; 20]).unwrap_err();
            (refused.loss, refused.note.is_some())
        };
        assert_eq!(find_on(Host::Other), (Loss::FileMissing, false));
        assert_eq!(find_on(Host::This), (Loss::FileChanged, true));
        let own = rustix::system::uname();
        assert_eq!(Host::named(own.nodename().to_str().unwrap()), Host::This);
        assert_eq!(Host::named(""), Host::Other);
    }

    /// Files are found by build id below a folder and at their path.
    #[test]
    fn files_are_found_by_build_id_and_by_path() {
        let (path, own) = own_program();
        let place = path.to_str().unwrap();
        let binaries = Places {
            binaries: vec![path.clone()],
            ..Places::default()
        };
        let symfs = Places {
            symfs: Some(PathBuf::from("/")),
            ..Places::default()
        };
        if !own.is_empty() {
            assert!(find(&binaries, &mapped("/elsewhere/another name"), &own).is_ok());
            assert!(find(&Places::default(), &mapped(place), &own).is_ok());
        }
        assert!(find(&symfs, &mapped(place), &[]).is_ok());
        assert!(
            find(&Places::default(), &mapped(place), &[]).is_err(),
            "nothing says that it is the same"
        );
    }
}
