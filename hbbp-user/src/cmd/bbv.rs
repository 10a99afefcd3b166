//! `hbbp-sys bbv`: from a recording with slices to the files of exp-bbv and SimPoint.
//!
//! Every file is replaced as a whole, the vectors last. Where the directory cannot take them in the end, as on a full disk, all of
//! them are written to a temporary directory, and the error says which.

mod file_name;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::record::{RecordOptions, Recorded};
use crate::advice::words;
pub(crate) use file_name::{FileName, FileNameError};
use hbbp_analysis::vectors::lines::{
    Ids, sentences, write_blocks, write_places, write_totals, write_vectors,
};
use hbbp_analysis::vectors::plot::write_plot;
use hbbp_analysis::vectors::simpoint::{choose, write_points, write_weights};
use hbbp_analysis::vectors::{Vectors, vectors};
use hbbp_model::profile::{Output, make_directory};
use hbbp_model::slices::Rings;

/// What to record, and what to write.
#[derive(Clone, Debug)]
pub struct BbvOptions {
    /// The recording, with the cut of its slices.
    pub record: RecordOptions,
    /// Rings whose code is in the vectors.
    pub rings: Rings,
    /// Units of the counting event in a slice.
    pub length: u64,
    /// Name or file of the rule that chooses between EBS and LBR.
    pub rule: String,
    /// What becomes of them.
    pub(crate) result: VectorResult,
}

/// What becomes of vectors.
#[derive(Clone, Debug)]
pub(crate) enum VectorResult {
    /// Their totals are printed.
    Totals,
    /// They are written to files.
    Files(VectorFiles),
}

/// The files of vectors.
#[derive(Clone, Debug)]
pub(crate) struct VectorFiles {
    /// Where those are whose names are relative; the current directory without one.
    pub(crate) directory: Option<PathBuf>,
    /// The vectors.
    pub(crate) vectors: FileName,
    /// Addresses and functions of their blocks, if wanted.
    pub(crate) places: Option<FileName>,
    /// At most as many simulation points, in the directory.
    pub(crate) simpoints: Option<usize>,
}

/// A file to be: its name, and what writes it.
type Planned<'a> = (PathBuf, Box<dyn Fn(&mut dyn Write) -> io::Result<()> + 'a>);

impl BbvOptions {
    /// Fails where nothing could be written in the end.
    pub(crate) fn check_output(&self) -> anyhow::Result<()> {
        let VectorResult::Files(files) = &self.result else {
            return Ok(());
        };
        // Who called sudo reads the files, which are theirs.
        let made = files.directory.as_ref().map(|path| make_directory(path, 0o755));
        let directory = made.transpose()?.unwrap_or_default();
        let names = [Some(&files.vectors), files.places.as_ref()];
        for name in names.into_iter().flatten() {
            // The processes are not known yet; only the folder matters.
            Output::open(&directory.join(name.of(std::process::id())))?;
        }
        Ok(())
    }
}

/// Writes the vectors of a recording, or prints their totals to `out`. Returns what the user must know.
pub(crate) fn save(
    options: &BbvOptions,
    recorded: &mut Recorded,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<String>> {
    let rule = super::rule::read(&options.rule)?;
    let slices = recorded.slices.take().context("slices were not distinguished")?;
    let vectors = vectors(&recorded.snapshot, &slices, &rule, options.rings);
    match &options.result {
        VectorResult::Totals => write_totals(&vectors, options.length, out)?,
        VectorResult::Files(wanted) => {
            let ids = Ids::new(&vectors);
            let files = planned(wanted, options.length, &vectors, &ids);
            let directory = wanted.directory.as_deref().unwrap_or(Path::new(""));
            if let Err(error) = write_all(directory, &files) {
                return Err(error.context(save_elsewhere(&files)));
            }
        }
    }
    let mut warnings = recorded.snapshot.run.notes.clone();
    warnings.extend(sentences(&vectors, words));
    let has_vectors = matches!(options.result, VectorResult::Files(_));
    if has_vectors && vectors.threads().iter().all(|thread| thread.slices < 2) {
        warnings.push(format!(
            "no interval of {} was completed: shorten them (--interval-size)",
            options.length
        ));
    }
    Ok(warnings)
}

/// The files, the vectors of the first thread last.
fn planned<'a>(
    wanted: &VectorFiles,
    length: u64,
    vectors: &'a Vectors<'_>,
    ids: &'a Ids,
) -> Vec<Planned<'a>> {
    let threads: Vec<u32> = (0..u32::try_from(vectors.threads().len()).unwrap_or(u32::MAX)).collect();
    let mut files: Vec<Planned<'a>> = Vec::new();
    if let Some(name) = &wanted.places {
        for (tgid, threads) in by_file(name, &threads, vectors) {
            files.push((
                name.of(tgid),
                Box::new(move |out| write_places(vectors, ids, &threads, out)),
            ));
        }
    }
    if wanted.directory.is_some() {
        let write = |out: &mut dyn Write| write_blocks(vectors, ids, out);
        files.push(("blocks.csv".into(), Box::new(write)));
    }
    for thread in &threads {
        let Some(most) = wanted.simpoints else { break };
        files.extend(points(*thread, most, vectors, ids));
    }
    for (tgid, threads) in by_file(&wanted.vectors, &threads, vectors).into_iter().rev() {
        let name = wanted.vectors.of(tgid);
        for (thread, nth) in threads.into_iter().zip(0..).collect::<Vec<_>>().into_iter().rev() {
            files.push((
                numbered(&name, nth),
                Box::new(move |out| write_vectors(vectors, ids, thread, length, words, out)),
            ));
        }
    }
    files
}

/// The threads whose lines are in files of one name: those of each process, or all.
fn by_file(name: &FileName, threads: &[u32], vectors: &Vectors<'_>) -> Vec<(u32, Vec<u32>)> {
    if !name.is_of_process() {
        return vec![(0, threads.to_vec())];
    }
    let mut files: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for thread in threads {
        let about = vectors.threads().get(*thread as usize);
        let tgid = about.map_or(0, |about| about.tgid);
        files.entry(tgid).or_default().push(*thread);
    }
    files.into_iter().collect()
}

/// The simulation points of a thread.
fn points<'a>(thread: u32, most: usize, vectors: &'a Vectors<'_>, ids: &Ids) -> [Planned<'a>; 3] {
    let points = std::rc::Rc::new(choose(vectors, ids, thread, most));
    let (weights, plot) = (points.clone(), points.clone());
    let title = vectors
        .threads()
        .get(thread as usize)
        .map_or("", |thread| thread.name.as_str());
    let named = |name: &str| numbered(Path::new(name), thread);
    [
        (
            named("simpoints"),
            Box::new(move |out| write_points(&points, out)),
        ),
        (
            named("weights"),
            Box::new(move |out| write_weights(&weights, out)),
        ),
        (
            named("phases").with_added_extension("svg"),
            Box::new(move |out| write_plot(&plot, title, out)),
        ),
    ]
}

/// The name of a thread's file: threads after the first have their number as suffix.
fn numbered(name: &Path, nth: u32) -> PathBuf {
    match nth {
        0 => name.to_owned(),
        _ => name.with_added_extension((nth + 1).to_string()),
    }
}

fn write_all(directory: &Path, files: &[Planned<'_>]) -> anyhow::Result<()> {
    for (name, write) in files {
        Output::open(&directory.join(name))?.write_with(|out| write(out))?;
    }
    Ok(())
}

/// Writes the files to the first temporary directory that takes them, and says where.
fn save_elsewhere(files: &[Planned<'_>]) -> String {
    let folders = [std::env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()];
    let save = |folder: &PathBuf| {
        let folder = folder.join(format!("hbbp-sys-{}.bbv", std::process::id()));
        // What others put there under this name stays theirs.
        fs::create_dir(&folder).ok()?;
        let written = files.iter().try_for_each(|(name, write)| {
            let name = name.file_name().context("it has no name")?;
            Output::open(&folder.join(name))?.write_with(|out| write(out))?;
            anyhow::Ok(())
        });
        if written.is_err() {
            // Made just now, and of no use.
            let _ = fs::remove_dir_all(&folder);
        }
        written.ok().map(|()| folder)
    };
    match folders.iter().find_map(save) {
        Some(folder) => format!("the vectors were saved in {} instead", folder.display()),
        None => "the vectors could not be saved in a temporary directory either".to_owned(),
    }
}
