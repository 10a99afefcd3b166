//! The files of a recording: of the recorded machine, only these or copies of them are available.
//!
//! Each is looked for once ([`super::find_file`]); what the user must know about the search is collected until the end.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::find_file::{Found, NotFound, Places, find};
use super::mapped_file::plain_path;
use super::mapping::{Backing, MappedFile};
use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::jit_dump::JitDump;
use hbbp_model::addr::Va;
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::record::{BuildId, FileIdentity, Mmap, Record, Timed};
use hbbp_model::snapshot::{Loss, Losses, hex};

/// Names of missing files to show; there may be hundreds.
const MOST_NAMES: usize = 8;

/// Files of as many names with one build id are not all the same file. A program and its other name are.
const MOST_NAMES_OF_A_FILE: usize = 2;

/// A file for which a text names addresses as the file states them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamedFile {
    /// Build id; empty if it is unknown.
    pub build_id: Vec<u8>,
    /// Path; the program itself has none, and is the first file that the user names.
    pub path: Option<String>,
    /// The address that means address 0 of the file.
    pub base: Va,
    /// Length in bytes of the addresses from there on.
    pub len: u64,
    /// Some of the addresses that the text names.
    pub addresses: Vec<u64>,
}

/// A jitdump that was found.
#[derive(Debug)]
pub(super) struct RecordedDump {
    /// Its own mapping, which it was found by.
    pub(super) mark: Mmap,
    /// When that was made.
    pub(super) marked: u64,
    pub(super) source: ByteSource,
    pub(super) dump: JitDump,
}

/// The files of a recording.
#[derive(Debug, Default)]
pub struct RecordedFiles {
    /// Where they may be.
    places: Places,
    /// Build ids by path, as the recording lists them at its end.
    build_ids: HashMap<String, Vec<u8>>,
    /// Build ids that more files share than one file has names, so that they identify none.
    shared: HashSet<Vec<u8>>,
    /// Those of them whose files were looked for.
    shared_hit: BTreeSet<Vec<u8>>,
    /// Addresses without a mapping belong to these.
    named: Vec<NamedFile>,
    /// What compilers at run time wrote.
    pub(super) dumps: Vec<RecordedDump>,
    /// Time of the first sample, where jitdumps were looked for.
    pub(super) start: u64,
    found: Vec<PathBuf>,
    missing: Vec<String>,
    lacks_program: bool,
    notes: Vec<Advised>,
    /// Files that the user named and that are not the executed ones, with the reasons.
    refused: Vec<(PathBuf, Advised)>,
}

impl RecordedFiles {
    /// Files that may be at these locations. `build_ids` are those that the recording lists, by path, `records` those with its
    /// mappings; addresses without a mapping belong to the `named` files.
    pub fn new(
        places: Places,
        build_ids: HashMap<String, Vec<u8>>,
        records: &[Timed],
        named: Vec<NamedFile>,
    ) -> Self {
        Self {
            places,
            shared: shared(&build_ids, records),
            build_ids,
            named,
            ..Self::default()
        }
    }

    /// Where files are looked for.
    pub(super) const fn places(&self) -> &Places {
        &self.places
    }

    pub(super) fn note_found(&mut self, path: PathBuf) {
        self.found.push(path);
    }

    pub(super) fn note_missing(&mut self, path: &str) {
        self.missing.push(path.to_owned());
    }

    pub(super) fn add_note(&mut self, note: Advised) {
        self.notes.push(note);
    }

    /// The file of a mapping; `None` if it is nowhere, which is counted and noted.
    pub(super) fn find(&mut self, file: &MappedFile, losses: &mut Losses) -> Option<Found> {
        if file.backing() != Backing::File && file.identity == FileIdentity::Unknown {
            // Memory without a file, which went with its process.
            losses.add(Loss::ProcessGone, 1);
            return None;
        }
        let build_id = match &file.identity {
            FileIdentity::BuildId(build_id) => build_id.as_slice(),
            FileIdentity::Inode { .. } | FileIdentity::Unknown => {
                self.build_ids.get(&*file.path).map_or(&[][..], Vec::as_slice)
            }
        };
        let found = if self.shared.contains(build_id) {
            self.shared_hit.insert(build_id.to_vec());
            self.find_by_name(file, build_id)
        } else {
            find(&self.places, file, build_id)
        };
        match found {
            Ok(mut found) => {
                self.notes.extend(found.note.take());
                self.found.push(found.path.clone());
                Some(found)
            }
            Err(NotFound { loss, note, named }) => {
                losses.add(loss, 1);
                match note {
                    Some(note) => {
                        self.refused.extend(named.map(|named| (named, note.clone())));
                        self.notes.push(note);
                    }
                    None => self.missing.push(file.path.as_ref().to_owned()),
                }
                None
            }
        }
    }

    /// The file of a mapping by its name alone: one with the build id, which may be right, or else any.
    fn find_by_name(&self, file: &MappedFile, build_id: &[u8]) -> Result<Found, NotFound> {
        let name = Path::new(plain_path(&file.path)).file_name();
        let mut places = Places {
            cache: None,
            ..self.places.clone()
        };
        places.binaries.retain(|binary| binary.file_name() == name);
        find(&places, file, build_id).or_else(|_| find(&places, file, &[]))
    }

    /// The file that a text names `at` of, and what it is called; `None` if there is none, or where the user did not name the
    /// program.
    pub(super) fn named_at(&mut self, at: Va) -> Option<(NamedFile, MappedFile)> {
        let holds = |file: &&NamedFile| at.since(file.base).is_some_and(|offset| offset < file.len);
        let named = self.named.iter().find(holds)?.clone();
        let program = self.places.binaries.first();
        let path = match (&named.path, named.build_id.as_slice(), program) {
            (Some(path), ..) => path.clone(),
            (None, [], Some(program)) => program.to_string_lossy().into_owned(),
            (None, [], None) => {
                self.lacks_program = true;
                return None;
            }
            (None, build_id, _) => hex(build_id),
        };
        let identity = BuildId::new(&named.build_id).map_or(FileIdentity::Unknown, FileIdentity::BuildId);
        let path = path.into();
        Some((named, MappedFile { path, identity }))
    }

    /// Why the recording cannot be used: the first file that the user named is not the executed one, and matches no
    /// other, or the program was not named and no other file was found.
    pub(crate) fn refused(&self) -> Option<Advised> {
        let refused = self.refused.iter().find(|(path, _)| !self.found.contains(path));
        let lacks_program = (self.lacks_program && self.found.is_empty()).then(lacks_program);
        refused.map(|(_, why)| why.clone()).or(lacks_program)
    }

    /// What the user must know about the files.
    pub(crate) fn notes(&self) -> Vec<Advised> {
        let mut notes = self.notes.clone();
        notes.dedup();
        notes.extend(self.shared_hit.iter().map(|id| shared_note(id)));
        notes.extend(self.lacks_program.then(lacks_program));
        notes.extend(missing_note(self.missing.clone()));
        let unused = |path: &&PathBuf| !self.found.contains(path);
        let unused = self.places.binaries.iter().filter(unused);
        notes.extend(unused.map(|path| {
            format!(
                "{} was not used: no sample hit a file of that name or build id",
                path.display()
            )
            .into()
        }));
        notes
    }
}

/// The build ids that more files share than one file has names.
fn shared(build_ids: &HashMap<String, Vec<u8>>, records: &[Timed]) -> HashSet<Vec<u8>> {
    let mapped = records.iter().filter_map(|timed| match &timed.record {
        Record::Mmap(mmap) => match &mmap.identity {
            FileIdentity::BuildId(id) => Some((id.as_slice(), &*mmap.path)),
            FileIdentity::Inode { .. } | FileIdentity::Unknown => None,
        },
        _ => None,
    });
    let listed = build_ids.iter().map(|(path, id)| (id.as_slice(), path.as_str()));
    let mut names: HashMap<&[u8], BTreeSet<&str>> = HashMap::new();
    for (id, path) in listed.chain(mapped).filter(|(id, _)| !id.is_empty()) {
        let names = names.entry(id).or_default();
        if names.len() <= MOST_NAMES_OF_A_FILE {
            let path = plain_path(path);
            names.insert(path.rsplit('/').next().unwrap_or(path));
        }
    }
    let shared = names
        .into_iter()
        .filter(|(_, names)| MOST_NAMES_OF_A_FILE < names.len());
    shared.map(|(id, _)| id.to_vec()).collect()
}

/// What to say of a build id that many files share.
fn shared_note(build_id: &[u8]) -> Advised {
    format!(
        "build id {} belongs to files of more than {MOST_NAMES_OF_A_FILE} names, so it identifies none: they were looked for by \
         their names alone",
        hex(build_id)
    )
    .into()
}

/// What to say of addresses of a program without a name.
fn lacks_program() -> Advised {
    let why = "the recording holds addresses of a program and not its name";
    Advised::new(why, Advice::NameProgram)
}

fn missing_note(mut missing: Vec<String>) -> Option<Advised> {
    missing.sort_unstable();
    missing.dedup();
    let names = missing.get(..MOST_NAMES).unwrap_or(&missing).join(", ");
    let more = match missing.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!missing.is_empty()).then(|| {
        let note = format!("files that ran were not found: {names}{more}");
        Advised::new(note, Advice::NameFiles)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(path: &str) -> MappedFile {
        MappedFile {
            path: path.into(),
            identity: FileIdentity::Unknown,
        }
    }

    #[test]
    fn missing_files_are_named_once_and_memory_is_none() {
        let mut files = RecordedFiles::default();
        let mut losses = Losses::default();
        for path in ["/usr/bin/b", "/usr/bin/a", "/usr/bin/a", "[vdso]", "//anon"] {
            assert!(files.find(&mapped(path), &mut losses).is_none());
        }
        assert_eq!(
            (losses.get(Loss::FileMissing), losses.get(Loss::ProcessGone)),
            (3, 2)
        );
        assert_eq!(files.refused(), None);
        let notes = files.notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].text.ends_with("/usr/bin/a, /usr/bin/b"), "{notes:?}");
    }

    #[test]
    fn build_ids_of_files_with_many_names_are_shared() {
        let listed = |paths: &[&str], id: u8| -> HashMap<String, Vec<u8>> {
            paths
                .iter()
                .map(|path| ((*path).to_owned(), vec![id; 20]))
                .collect()
        };
        let one_file = listed(
            &[
                "/usr/bin/python3",
                "/mnt/usr/bin/python3",
                "/bin/python3.11 (deleted)",
            ],
            1,
        );
        assert_eq!(shared(&one_file, &[]), HashSet::new());
        let mut many = listed(&["/bin/a", "/bin/b", "/bin/c"], 2);
        many.extend(one_file);
        assert_eq!(shared(&many, &[]), HashSet::from([vec![2; 20]]));
        assert_eq!(shared(&listed(&["/a", "/b", "/c"], 0), &[]).len(), 1);
        let none = HashMap::from(["/a", "/b", "/c"].map(|path| (path.to_owned(), Vec::new())));
        assert_eq!(
            shared(&none, &[]),
            HashSet::new(),
            "no build id is not a shared one"
        );
    }

    #[test]
    fn many_missing_files_are_summed_up() {
        let missing = (10..30).map(|n| format!("/lib/{n}")).collect();
        let note = missing_note(missing).unwrap();
        assert!(note.text.contains("/lib/17 and 12 more"), "{note}");
    }

    #[test]
    fn addresses_of_a_program_without_a_name_ask_for_it() {
        let mut files = RecordedFiles {
            named: vec![NamedFile {
                build_id: Vec::new(),
                path: None,
                base: Va(0),
                len: 0x1000,
                addresses: Vec::new(),
            }],
            ..RecordedFiles::default()
        };
        assert!(files.named_at(Va(0x2000)).is_none() && files.refused().is_none());
        assert!(files.named_at(Va(0x10)).is_none());
        assert_eq!(files.refused().unwrap().advice, Some(Advice::NameProgram));
    }
}
