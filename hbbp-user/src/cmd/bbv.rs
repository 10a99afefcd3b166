//! `hbbp-sys bbv`: from a recording with slices to the files of exp-bbv and SimPoint.
//!
//! Every file is replaced as a whole, `bb.out` last. Where the directory cannot take them in the end, as on a full disk, all of
//! them are written to a temporary directory, and the error says which.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::record::{RecordOptions, Recorded};
use crate::advice::words;
use hbbp_analysis::vectors::lines::{Ids, sentences, write_blocks, write_places, write_vectors};
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
    /// Totals alone.
    pub totals_only: bool,
    /// At most as many simulation points.
    pub simpoints: Option<usize>,
    /// Name or file of the rule that chooses between EBS and LBR.
    pub rule: String,
    /// Where the files go.
    pub directory: PathBuf,
}

/// A file to be: its name, and what writes it.
type Planned<'a> = (String, Box<dyn Fn(&mut dyn Write) -> io::Result<()> + 'a>);

impl BbvOptions {
    /// Fails where nothing could be written in the end.
    pub(crate) fn check_output(&self) -> anyhow::Result<()> {
        // Who called sudo reads the files, which are theirs.
        let directory = make_directory(&self.directory, 0o755)?;
        Output::open(&directory.join("bb.out")).map(drop)
    }
}

/// Writes the vectors of a recording. Returns what the user must know.
pub(crate) fn save(options: &BbvOptions, recorded: &mut Recorded) -> anyhow::Result<Vec<String>> {
    let rule = super::rule::read(&options.rule)?;
    let slices = recorded.slices.take().context("slices were not distinguished")?;
    let vectors = vectors(&recorded.snapshot, &slices, &rule, options.rings);
    let ids = Ids::new(&vectors);
    let files = planned(options, &vectors, &ids);
    if let Err(error) = write_all(&options.directory, &files) {
        return Err(error.context(save_elsewhere(&files)));
    }
    let mut warnings = recorded.snapshot.run.notes.clone();
    warnings.extend(sentences(&vectors, words));
    if vectors.threads().iter().all(|thread| thread.slices < 2) {
        warnings.push(format!(
            "no interval of {} was completed: shorten them (--interval-size)",
            options.length
        ));
    }
    Ok(warnings)
}

/// The files, the vectors of the first thread last.
fn planned<'a>(options: &'a BbvOptions, vectors: &'a Vectors<'_>, ids: &'a Ids) -> Vec<Planned<'a>> {
    let mut files: Vec<Planned<'a>> = vec![
        (
            "pc.out".to_owned(),
            Box::new(|out| write_places(vectors, ids, out)),
        ),
        (
            "blocks.csv".to_owned(),
            Box::new(|out| write_blocks(vectors, ids, out)),
        ),
    ];
    let threads = 0..u32::try_from(vectors.threads().len()).unwrap_or(u32::MAX);
    for thread in threads.clone() {
        let Some(most) = options.simpoints else { break };
        let points = std::rc::Rc::new(choose(vectors, ids, thread, most));
        let (weights, plot) = (points.clone(), points.clone());
        let title = vectors
            .threads()
            .get(thread as usize)
            .map_or("", |thread| thread.name.as_str());
        files.push((
            named("simpoints", thread),
            Box::new(move |out| write_points(&points, out)),
        ));
        files.push((
            named("weights", thread),
            Box::new(move |out| write_weights(&weights, out)),
        ));
        files.push((
            format!("{}.svg", named("phases", thread)),
            Box::new(move |out| write_plot(&plot, title, out)),
        ));
    }
    for thread in threads.rev() {
        let (length, totals_only) = (options.length, options.totals_only);
        files.push((
            named("bb.out", thread),
            Box::new(move |out| {
                write_vectors(vectors, ids, thread, length, totals_only, words, out).map(drop)
            }),
        ));
    }
    files
}

/// The name of a thread's file: threads after the first have their number as suffix.
fn named(name: &str, thread: u32) -> String {
    match thread {
        0 => name.to_owned(),
        _ => format!("{name}.{}", thread + 1),
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
        let written = write_all(&folder, files);
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
