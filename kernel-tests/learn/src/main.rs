//! `cargo xtask learn`: learns the rule that chooses between EBS and LBR for each block, as the paper did (HBBP, ISPASS 2018,
//! section IV.B), from recordings with exact counts.
//!
//! Training pairs are the output of `hbbp-sys eval --blocks` for each block: its features, and which method was nearer.
//! A classification tree of them is a rule file and a picture. Its worth is measured by cross-validation, with trees
//! that have not seen the workload, and compared with the rule of the paper and the default. Recordings of the emulated
//! machine are of a model of a processor; users may learn from their own.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program")]

mod folds;
mod judge;
mod pairs;
mod picture;
mod recordings;
mod rule_file;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use kernel_tests::{artifacts, host};
use tempfile::TempDir;

use judge::{Errors, Line};
use pairs::{Pair, Pairs, Weighing};
use recordings::Recording;

/// Learn the rule that chooses between EBS and LBR from recordings with exact counts.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask learn")]
struct Args {
    /// Recordings: directories with files `profile` and `reference`, or directories of such, as `cargo xtask vm accuracy
    /// --keep DIR` leaves. What is named `..-WORKLOAD` after a workload of the suite belongs to that; any other is a
    /// workload of its own. All make one rule: how far samples skid decides what EBS is worth, so name those of one machine.
    #[arg(required = true)]
    recordings: Vec<PathBuf>,
    /// What a tree may ask of a block, comma-separated: any feature of rule files. Numbers of samples are not among those of the
    /// default: what is chosen by its outcome is too much or too little in sum, and counts of one run are not those of
    /// another.
    #[arg(long, value_delimiter = ',', default_value = "instructions,biased")]
    features: Vec<String>,
    /// The weight of a block in the tree.
    #[arg(long, value_enum, default_value = "worth")]
    weight: Weighing,
    /// Directory of the rule files and pictures. Default: `target/learn` of the workspace.
    #[arg(long)]
    out: Option<PathBuf>,
    /// The hbbp-sys that evaluates. Default: built from this workspace.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// The weightings of streams for which a rule is learnt, each with the named rule that it is compared with.
const STREAMS: [(&str, &str); 2] = [("recorded", "paper"), ("balanced", "balanced")];

/// What was learnt with a weighting of streams.
struct Learnt {
    /// For each recording, the errors of the named rule and of the rule that was learnt without its workload.
    errors: Vec<[Errors; 2]>,
}

fn main() -> ExitCode {
    match learn(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn learn(args: &Args) -> Result<()> {
    let recordings = Recording::find(&args.recordings)?;
    let workloads: BTreeSet<&str> = recordings.iter().map(|it| it.workload.as_str()).collect();
    let workloads: Vec<&str> = workloads.into_iter().collect();
    ensure!(
        2 < workloads.len(),
        "rules are learnt from all workloads but one, and leaves counted on these but one: {} are too few",
        workloads.len()
    );
    let program = args.program.clone().map_or_else(artifacts::hbbp_sys, Ok)?;
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| host::target_directory().join("learn"));
    fs::create_dir_all(&out).with_context(|| format!("failed to make {}", out.display()))?;
    let of = |(streams, named)| {
        let session = Session {
            program: &program,
            recordings: &recordings,
            workloads: &workloads,
            streams,
            named,
        };
        session.learn(args, &out)
    };
    let [recorded, balanced] = STREAMS.map(of);
    let (recorded, balanced) = (recorded?, balanced?);
    let mut machines: BTreeMap<&str, Vec<Line<'_>>> = BTreeMap::new();
    let errors = recorded.errors.iter().zip(&balanced.errors);
    for (recording, ([paper, learnt], [default, learnt_balanced])) in recordings.iter().zip(errors) {
        let errors = [*paper, *learnt, *default, *learnt_balanced];
        let lines = machines.entry(&recording.machine).or_default();
        lines.push(Line { recording, errors });
    }
    println!("average weighted error, in % of the reference, by rules learnt without the workload:");
    for (machine, lines) in machines {
        println!("\n{machine}\n{}", judge::table(&lines));
    }
    Ok(())
}

/// Learning with a weighting of streams.
struct Session<'a> {
    program: &'a Path,
    recordings: &'a [Recording],
    workloads: &'a [&'a str],
    streams: &'static str,
    named: &'static str,
}

impl Session<'_> {
    fn learn(&self, args: &Args, out: &Path) -> Result<Learnt> {
        let directory = TempDir::new().context("failed to make a directory")?;
        let (pairs, by_named) = self.pairs(args, directory.path())?;
        let all: Vec<&Pair> = pairs.pairs.iter().collect();
        let mut left_out: BTreeMap<&str, PathBuf> = BTreeMap::new();
        for (number, workload) in self.workloads.iter().enumerate() {
            let fold = folds::without(&all, &BTreeSet::from([number]));
            let tree = folds::learn(&fold.training)?;
            let path = directory.path().join(format!("{number}.rule"));
            write(&path, &rule_file::text(&tree, &pairs.features, self.streams, &[]))?;
            left_out.insert(workload, path);
        }
        let mut errors = Vec::new();
        for (recording, by_named) in self.recordings.iter().zip(by_named) {
            let rule = left_out
                .get(recording.workload.as_str())
                .and_then(|path| path.to_str());
            let rule = rule.context("a path that is not text")?;
            errors.push([by_named, judge::eval(self.program, recording, rule, None)?]);
        }
        self.write_tree(&pairs.features, &all, out)?;
        Ok(Learnt { errors })
    }

    /// The training pairs of all recordings, and the errors of the named rule.
    fn pairs(&self, args: &Args, directory: &Path) -> Result<(Pairs, Vec<Errors>)> {
        let path = directory.join("blocks.csv");
        let mut pairs = Pairs::of(args.features.clone(), args.weight);
        let mut errors = Vec::new();
        for recording in self.recordings {
            errors.push(judge::eval(self.program, recording, self.named, Some(&path))?);
            let workload = self.workloads.iter().position(|name| *name == recording.workload);
            let file = File::open(&path).with_context(|| format!("failed to read {}", path.display()))?;
            pairs.add(file, workload.context("a workload without a number")?)?;
        }
        Ok((pairs, errors))
    }

    /// Writes the tree of all pairs, as a rule file and as a picture.
    fn write_tree(&self, features: &[String], all: &[&Pair], out: &Path) -> Result<()> {
        let tree = folds::learn(all)?;
        let title = format!(
            "Learnt by `cargo xtask learn` from {} blocks in {} recordings of {} workloads, streams as {}.",
            all.iter().map(|pair| pair.blocks).sum::<usize>(),
            self.recordings.len(),
            self.workloads.len(),
            self.streams
        );
        let text = rule_file::text(&tree, features, self.streams, std::slice::from_ref(&title));
        println!("{text}");
        write(&out.join(format!("{}.rule", self.streams)), &text)?;
        let picture = picture::svg(&tree, features, &title);
        write(&out.join(format!("{}.svg", self.streams)), &picture)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
