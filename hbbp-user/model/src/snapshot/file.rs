//! The profile file: [`encode`] and [`parse`] turn a snapshot into bytes and back, [`encode_runs`] and [`parse_runs`] those of
//! several runs. `FORMAT.md` follows.
//!
#![doc = include_str!("FORMAT.md")]

mod container;
mod error;
mod writer;

use std::borrow::Cow;

use prost::Message;
use prost::bytes::Bytes;

use super::budget::{self, MAX_MEMORY};
use super::{Losses, Run, Snapshot, StaticBranch, Text, wire};
use container::{Section, Stored, Unreadable};
pub use error::Error;
use wire::{
    Capacity, CountsSection, LossesSection, Malformed, ModulesSection, ProcessesSection, RunSection,
    StaticBranchesSection, SymbolsSection, TextSection,
};
pub use writer::Compression;
use writer::Writer;

/// How a snapshot file begins.
pub(crate) const MAGIC: [u8; 8] = container::MAGIC;

/// The bytes of a profile of one run, compressed fast; the same snapshot gives the same bytes.
///
/// What is too large for a file is [made to fit](Snapshot::fit), never refused.
pub fn encode(snapshot: &Snapshot) -> Result<Vec<u8>, Error> {
    encode_runs(std::slice::from_ref(snapshot), Compression::Fast)
}

/// The bytes of a profile of several runs, in their order.
///
/// # Errors
/// [`Error::TooLarge`] where the runs together are more than a reader grants, and [`Error::Count`] without any run.
pub fn encode_runs(runs: &[Snapshot], compression: Compression) -> Result<Vec<u8>, Error> {
    let used: usize = runs.iter().map(budget::used).fold(0, usize::saturating_add);
    if 1 < runs.len() && MAX_RUNS_MEMORY < used {
        return Err(Error::TooLarge);
    }
    if runs.is_empty() {
        return Err(missing(Section::Run));
    }
    let mut file = Writer::new(compression);
    for run in runs {
        add_run(&mut file, run)?;
    }
    Ok(file.finish())
}

fn add_run(file: &mut Writer, snapshot: &Snapshot) -> Result<(), Error> {
    snapshot.check()?;
    let snapshot = if budget::used_percent(snapshot) <= 100 {
        Cow::Borrowed(snapshot)
    } else {
        let mut smaller = snapshot.clone();
        smaller.fit();
        Cow::Owned(smaller)
    };
    let modules = snapshot.modules.as_slice();
    add(file, Section::Run, RunSection::from(&snapshot.run));
    add(file, Section::Modules, ModulesSection::from(modules));
    add(file, Section::Symbols, SymbolsSection::from(modules));
    let processes = ProcessesSection::new(&snapshot.processes, &snapshot.cgroups);
    add(file, Section::Processes, processes);
    file.push(Section::Text, TextSection::len(&snapshot.text), |out| {
        TextSection::write(&snapshot.text, out)
    });
    if !snapshot.static_branches.is_empty() {
        let branches = StaticBranchesSection::from(snapshot.static_branches.as_slice());
        add(file, Section::Branches, branches);
    }
    for interval in &snapshot.intervals {
        add(file, Section::Counts, CountsSection::from(interval));
    }
    add(file, Section::Losses, LossesSection::from(&snapshot.losses));
    Ok(())
}

/// Adds a section to a file. The message is dropped before compression.
fn add(file: &mut Writer, section: Section, message: impl Message) {
    let bytes = message.encode_to_vec();
    drop(message);
    file.push(section, bytes.len(), |out| out.write_all(&bytes));
}

/// Whether a file that starts with these bytes is a snapshot, whole or not.
pub fn is_snapshot(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

/// The snapshot in the bytes of a profile of one run.
/// What is returned is consistent (see [`Snapshot::check`]); sections that had to be left out are listed in its notes.
///
/// Memory stays below eight times the length of the file for a section, and below the bounds of [`budget`] for the rows.
pub fn parse(file: &[u8]) -> Result<Snapshot, Error> {
    let mut runs = parse_runs(file)?;
    match (runs.pop(), runs.len()) {
        (Some(run), 0) => Ok(run),
        (_, others) => Err(Error::Runs { found: others + 1 }),
    }
}

/// The snapshots in the bytes of a profile, one for each run, in the order of the file; there is one at least.
/// The bounds of [`parse`] hold for each run, and four times those for all together.
pub fn parse_runs(file: &[u8]) -> Result<Vec<Snapshot>, Error> {
    let sections = container::sections(file)?;
    let capacity = &mut Capacity(MAX_RUNS_MEMORY);
    let runs = runs(&sections).into_iter();
    runs.map(|run| parse_run(run, capacity)).collect()
}

/// Memory that the rows of all runs of a profile may take.
const MAX_RUNS_MEMORY: usize = 4 * MAX_MEMORY;

/// The sections of each run: from one section `run` to the next. What comes before the first belongs to it.
fn runs<'a, 'b>(sections: &'b [Stored<'a>]) -> Vec<&'b [Stored<'a>]> {
    let starts = sections
        .iter()
        .enumerate()
        .filter(|(_, stored)| stored.section == Some(Section::Run));
    let mut bounds: Vec<usize> = starts.map(|(at, _)| at).skip(1).collect();
    bounds.push(sections.len());
    let mut from = 0;
    let run = |until: usize| {
        let run = sections.get(from..until).unwrap_or(&[]);
        from = until;
        run
    };
    bounds.into_iter().map(run).collect()
}

fn parse_run(sections: &[Stored<'_>], all: &mut Capacity) -> Result<Snapshot, Error> {
    refuse_duplicates(sections)?;
    let granted = all.0.min(MAX_MEMORY);
    let capacity = &mut Capacity(granted);
    let snapshot = parse_sections(sections, capacity)?;
    all.0 -= granted - capacity.0;
    Ok(snapshot)
}

/// Adds notes on sections that could not be read. Static branches only say what some NOPs are; without another section no figure is
/// what it was.
fn add_notes(run: &mut Run, notes: Vec<(Section, String)>) {
    for (section, note) in notes {
        match section {
            Section::Branches => run.notes.push(note),
            _ => run.note_unmeasured(note, Run::WHOLE),
        }
    }
}

fn parse_sections(sections: &[Stored<'_>], capacity: &mut Capacity) -> Result<Snapshot, Error> {
    let mut run = needed(sections, Section::Run, |section: RunSection| {
        Run::try_from(section)
    })?;
    let mut modules = needed(sections, Section::Modules, |section: ModulesSection| {
        section.read(capacity)
    })?;
    let (processes, cgroups) = needed(sections, Section::Processes, |section: ProcessesSection| {
        section.read(capacity)
    })?;
    let intervals = all(sections, Section::Counts)
        .map(|stored| Ok(message::<CountsSection>(stored)?.read(capacity)?))
        .collect::<Result<_, Fault>>()
        .map_err(|why| damaged(Section::Counts, &why))?;

    let mut notes = Vec::new();
    let mut without = |section, consequence: &str, why: Fault| {
        let name = Section::name(section);
        let note = format!("section `{name}` of the profile could not be read ({why}): {consequence}");
        notes.push((section, note));
    };
    let symbols = only::<SymbolsSection>(sections, Section::Symbols)
        .and_then(|section| Ok(section.put_into(&mut modules, capacity)?));
    if let Err(why) = symbols {
        without(Section::Symbols, "functions have no names", why);
    }
    let text: Vec<Text> = only::<TextSection>(sections, Section::Text)
        .and_then(|section| Ok(section.read(capacity)?))
        .unwrap_or_else(|why| {
            without(Section::Text, "samples cannot be resolved to instructions", why);
            Vec::new()
        });
    let static_branches = static_branches(sections, capacity).unwrap_or_else(|why| {
        without(
            Section::Branches,
            "static branches are NOPs and jumps like others",
            why,
        );
        Vec::new()
    });
    let losses = only::<LossesSection>(sections, Section::Losses)
        .map(Losses::from)
        .unwrap_or_else(|why| {
            without(Section::Losses, "losses are unknown", why);
            Losses::default()
        });
    add_notes(&mut run, notes);
    let snapshot = Snapshot {
        run,
        modules,
        processes,
        cgroups,
        static_branches,
        text,
        intervals,
        losses,
    };
    snapshot.check()?;
    Ok(snapshot)
}

/// The static branches, which are written where there are some, since version 3.2.
fn static_branches(sections: &[Stored<'_>], capacity: &mut Capacity) -> Result<Vec<StaticBranch>, Fault> {
    match only::<StaticBranchesSection>(sections, Section::Branches) {
        Err(Fault::Missing) => Ok(Vec::new()),
        section => Ok(section?.read(capacity)?),
    }
}

fn refuse_duplicates(sections: &[Stored<'_>]) -> Result<(), Error> {
    for section in Section::ONCE {
        let found = all(sections, section).count();
        if 1 < found {
            return Err(Error::Count {
                section: section.name(),
                found,
            });
        }
    }
    Ok(())
}

/// Why one section cannot be used, while the others may well be.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("missing")]
    Missing,
    #[error("{0}")]
    Unreadable(#[from] Unreadable),
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

/// All sections of one name.
fn all<'a>(sections: &'a [Stored<'a>], section: Section) -> impl Iterator<Item = &'a Stored<'a>> {
    sections
        .iter()
        .filter(move |stored| stored.section == Some(section))
}

/// The message in a section.
fn message<M: Message + Default>(stored: &Stored<'_>) -> Result<M, Fault> {
    let raw = Bytes::from(stored.open()?);
    Ok(M::decode(raw).map_err(Malformed::from)?)
}

/// The message in the only section of that name.
fn only<M: Message + Default>(sections: &[Stored<'_>], section: Section) -> Result<M, Fault> {
    message(all(sections, section).next().ok_or(Fault::Missing)?)
}

/// The content of a section without which nothing can be reported.
fn needed<M: Message + Default, T>(
    sections: &[Stored<'_>],
    section: Section,
    read: impl FnOnce(M) -> Result<T, Malformed>,
) -> Result<T, Error> {
    match only::<M>(sections, section).and_then(|message| Ok(read(message)?)) {
        Ok(content) => Ok(content),
        Err(Fault::Missing) => Err(missing(section)),
        Err(why) => Err(damaged(section, &why)),
    }
}

/// The error where there is no such section.
const fn missing(section: Section) -> Error {
    Error::Count {
        section: section.name(),
        found: 0,
    }
}

/// The error for a section without which nothing can be reported.
fn damaged(section: Section, why: &Fault) -> Error {
    Error::Damaged {
        section: section.name(),
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests;
