//! The snapshot file: a documented, versioned container of sections, each with its checksum.
//!
//! [`encode`] and [`parse`] are pure; reading and writing files is [`read`] and [`write_atomic`].
//!
//! | section   | holds                                                            | where it is damaged or missing |
//! |-----------|------------------------------------------------------------------|--------------------------------|
//! | `run`     | host, kernel, CPU, events, counters, times, notes                | error                          |
//! | `modules` | what text can belong to: name, kind, build id                    | error                          |
//! | `symbols` | names and ranges of functions by module                          | a note, and no names           |
//! | `process` | process images and their mappings                                | error                          |
//! | `text`    | the bytes that ran                                               | a note, and no instructions    |
//! | `counts`  | what was counted in one interval; one section for each interval  | error                          |
//! | `losses`  | what was lost, by its stable name                                | a note                         |
//!
//! The content of each is a protobuf message (see `wire`), the frame around them is described in `container`.
//! The notes land in [`Run::notes`](super::Run), so that every report of such a file begins with them.
//! Sections and fields that this version does not know are skipped.

mod container;
mod disk;

use prost::Message;

use super::{Inconsistent, Interval, Losses, Module, Process, Run, Snapshot, Text, wire};
use container::{Section, Stored, Unreadable, Writer};
pub use disk::{check_writable, read, write_atomic};
use wire::{
    CountsSection, LossesSection, ModulesSection, ProcessesSection, RunSection, SymbolsSection, TextSection,
};

/// Why some bytes are no readable snapshot, or why a snapshot cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The first bytes are those of something else.
    #[error("not an hbbp-sys profile")]
    NotASnapshot,
    /// The format has another major version.
    #[error(
        "unsupported profile version {found} (this hbbp-sys reads version {known}): use the hbbp-sys \
         version that wrote it, or a newer one"
    )]
    Version {
        /// Major version of the file.
        found: u16,
        /// Major version of this reader.
        known: u16,
    },
    /// The file ends too early.
    #[error("truncated profile: it ends {place}")]
    Truncated {
        /// Where it ends, in words.
        place: String,
    },
    /// The frame between sections is damaged, so that none behind it can be found.
    #[error("damaged profile: wrong checksum of the section header after {before}")]
    Frame {
        /// What stands before the damage, in words.
        before: String,
    },
    /// Something follows the end of the snapshot.
    #[error("{n_bytes} trailing bytes: the profile is damaged, or two files were joined")]
    Trailing {
        /// How many bytes.
        n_bytes: usize,
    },
    /// A section that nothing can stand in for is damaged.
    #[error("damaged section `{section}`: {why}")]
    Damaged {
        /// Name of the section.
        section: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A section that nothing can stand in for is not there, or is there twice.
    #[error("expected one section `{section}`, found {found}")]
    Count {
        /// Name of the section.
        section: &'static str,
        /// How many there are.
        found: usize,
    },
    /// What was read or is to be written does not fit together.
    #[error(transparent)]
    Inconsistent(#[from] Inconsistent),
    /// The sections up to this one are larger than a reader accepts.
    #[error("the profile is too large: it exceeds the size limit at section `{section}`")]
    TooLarge {
        /// Name of the section.
        section: &'static str,
    },
}

/// The bytes of a snapshot file; the same snapshot gives the same bytes.
pub fn encode(snapshot: &Snapshot) -> Result<Vec<u8>, Error> {
    snapshot.check()?;
    let modules = snapshot.modules.as_slice();
    let mut file = Writer::new();
    add(&mut file, Section::Run, &RunSection::from(&snapshot.run))?;
    add(&mut file, Section::Modules, &ModulesSection::from(modules))?;
    add(&mut file, Section::Symbols, &SymbolsSection::from(modules))?;
    let processes = ProcessesSection::from(snapshot.processes.as_slice());
    add(&mut file, Section::Processes, &processes)?;
    let text = TextSection::from(snapshot.text.as_slice());
    add(&mut file, Section::Text, &text)?;
    drop(text);
    for interval in &snapshot.intervals {
        add(&mut file, Section::Counts, &CountsSection::from(interval))?;
    }
    add(&mut file, Section::Losses, &LossesSection::from(&snapshot.losses))?;
    file.finish()
}

/// Adds a section to a file, where it is encoded at once.
fn add(file: &mut Writer, section: Section, message: &impl Message) -> Result<(), Error> {
    file.push(section, message.encoded_len(), |bytes| message.encode_raw(bytes))
}

/// Whether a file that starts with these bytes is a snapshot, whole or not.
pub fn is_snapshot(start: &[u8]) -> bool {
    start.starts_with(&container::MAGIC)
}

/// The snapshot in the bytes of a file.
/// What is returned fits together (see [`Snapshot::check`]); sections that had to be left out stand in its notes.
pub fn parse(file: &[u8]) -> Result<Snapshot, Error> {
    let sections = container::sections(file)?;
    let mut run = Run::try_from(essential::<RunSection>(&sections, Section::Run)?)
        .map_err(|why| damaged(Section::Run, &why.into()))?;
    let mut modules = Vec::<Module>::try_from(essential::<ModulesSection>(&sections, Section::Modules)?)
        .map_err(|why| damaged(Section::Modules, &why.into()))?;
    let processes = Vec::<Process>::try_from(essential::<ProcessesSection>(&sections, Section::Processes)?)
        .map_err(|why| damaged(Section::Processes, &why.into()))?;
    let intervals = all(&sections, Section::Counts)
        .map(|stored| Ok(Interval::try_from(message::<CountsSection>(stored)?)?))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|why| damaged(Section::Counts, &why))?;

    let mut notes = Vec::new();
    let mut without = |section, consequence: &str, why: Fault| {
        let name = Section::name(section);
        notes.push(format!(
            "section `{name}` of the profile could not be read ({why}): {consequence}"
        ));
    };
    let symbols = optional::<SymbolsSection>(&sections, Section::Symbols)
        .and_then(|section| Ok(section.put_into(&mut modules)?));
    if let Err(why) = symbols {
        without(Section::Symbols, "functions have no names", why);
    }
    let text = optional::<TextSection>(&sections, Section::Text)
        .and_then(|section| Ok(Vec::<Text>::try_from(section)?))
        .unwrap_or_else(|why| {
            without(Section::Text, "samples cannot be resolved to instructions", why);
            Vec::new()
        });
    let losses = optional::<LossesSection>(&sections, Section::Losses)
        .map(Losses::from)
        .unwrap_or_else(|why| {
            without(Section::Losses, "losses are unknown", why);
            Losses::default()
        });
    run.notes.extend(notes);
    let snapshot = Snapshot {
        run,
        modules,
        processes,
        text,
        intervals,
        losses,
    };
    snapshot.check()?;
    Ok(snapshot)
}

/// Why one section cannot be used, while the others may well be.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("found {0} of it")]
    Count(usize),
    #[error("{0}")]
    Unreadable(#[from] Unreadable),
    #[error("{0}")]
    Malformed(#[from] wire::Malformed),
}

/// All sections of one name.
fn all<'a>(sections: &'a [Stored<'a>], section: Section) -> impl Iterator<Item = &'a Stored<'a>> {
    sections
        .iter()
        .filter(move |stored| stored.section == Some(section))
}

/// The message in a section.
fn message<M: Message + Default>(stored: &Stored<'_>) -> Result<M, Fault> {
    let raw = stored.open()?;
    Ok(M::decode(raw.as_slice()).map_err(wire::Malformed::from)?)
}

/// The message in the only section of that name.
fn optional<M: Message + Default>(sections: &[Stored<'_>], section: Section) -> Result<M, Fault> {
    let mut named = all(sections, section);
    match (named.next(), named.next()) {
        (Some(stored), None) => message(stored),
        _ => Err(Fault::Count(all(sections, section).count())),
    }
}

/// The message in the only section of that name, without which nothing can be reported.
fn essential<M: Message + Default>(sections: &[Stored<'_>], section: Section) -> Result<M, Error> {
    optional(sections, section).map_err(|why| match why {
        Fault::Count(found) => Error::Count {
            section: section.name(),
            found,
        },
        other => damaged(section, &other),
    })
}

/// The error for a section without which nothing can be reported.
fn damaged(section: Section, why: &Fault) -> Error {
    Error::Damaged {
        section: section.name(),
        why: why.to_string(),
    }
}
