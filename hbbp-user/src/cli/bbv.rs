//! Options of basic block vectors.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

use super::record::RecordArgs;
use super::report::RuleArgs;
use crate::cmd::bbv::{BbvOptions, FileName, FileNameError, VectorFiles, VectorResult};
use hbbp_model::slices::{Rings, SliceCut};
use hbbp_model::streams::ThreadCounts;

/// What the files are.
pub(super) const HELP: &str = "\
Files in the directory of --output, in the formats of Valgrind's exp-bbv and of SimPoint 3.2:
  bb.out       a line for each interval, `T:ID:INSTRUCTIONS   :ID:INSTRUCTIONS ..`; bb.out.2 .. of further threads
  pc.out       `F:ID:ADDRESS:FUNCTION` of each block
  blocks.csv   the same with ring, module and length
  simpoints, weights, phases.svg   with --simpoints; simpoints.2 .. of further threads

Example: hbbp-sys bbv --simpoints 10 -o vectors -- ./program";

#[derive(Debug, Args)]
pub(super) struct BbvArgs {
    /// Instructions in an interval; ns of a clock.
    ///
    /// Of each thread with --per-thread and of all together without. Where only a clock can be sampled, nanoseconds.
    #[arg(long, value_name = "N", default_value_t = INTERVAL_SIZE, value_parser = clap::value_parser!(u64).range(1..))]
    interval_size: u64,
    /// Print the totals of each thread, and write nothing.
    #[arg(long, conflicts_with_all = ["simpoints", "output", "bb_out_file", "pc_out_file"])]
    instr_count_only: bool,
    /// Kernel code alone.
    #[arg(long)]
    kernel: bool,
    /// User code alone, as exp-bbv.
    #[arg(long, conflicts_with = "kernel")]
    user: bool,
    /// Kernel and user code (the default).
    #[arg(long, conflicts_with_all = ["kernel", "user"])]
    both: bool,
    /// Choose at most K simulation points.
    ///
    /// They have weights, and the phases are drawn.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=MOST_POINTS), requires = "output")]
    simpoints: Option<u16>,
    /// Write the files to DIR.
    #[arg(short, long, value_name = "DIR", required_unless_present_any = ["bb_out_file", "instr_count_only"])]
    output: Option<PathBuf>,
    /// Write the vectors to FILE, in DIR if there is one. `%p` is the process, with --per-thread: each has its files. `%q{NAME}` is
    /// a variable of the environment, `%%` a percent sign.
    #[arg(long, value_name = "FILE", value_parser = parse_name, hide_short_help = true)]
    bb_out_file: Option<FileName>,
    /// Write addresses and functions of the blocks to FILE, named in the same way.
    #[arg(long, value_name = "FILE", value_parser = parse_name, hide_short_help = true)]
    pc_out_file: Option<FileName>,
    #[command(flatten)]
    rule: RuleArgs,
    #[command(flatten)]
    pub(super) record: RecordArgs,
}

/// exp-bbv's default.
const INTERVAL_SIZE: u64 = 100_000_000;

/// More are no longer few; the time of k-means grows with their square.
const MOST_POINTS: i64 = 100;

/// Counts between two drains, where slices are distinguished: each has keys of its own. 34 MB of kernel memory.
const MAP_ENTRIES: u32 = 1 << 17;

/// A name with the variables of this environment.
fn parse_name(text: &str) -> Result<FileName, FileNameError> {
    FileName::parse(text, |name| std::env::var(name).ok())
}

impl BbvArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> anyhow::Result<BbvOptions> {
        let mut record = self.record.into_options()?;
        ensure!(
            !matches!(
                record.choice.period,
                Some(hbbp_model::snapshot::Period::Frequency(_))
            ),
            "intervals need a period, which --frequency has not: use --period"
        );
        let names = [&self.bb_out_file, &self.pc_out_file];
        ensure!(
            record.threads == ThreadCounts::Apart
                || !names.into_iter().flatten().any(FileName::is_of_process),
            "%p needs --per-thread: without it all processes have one vector for each interval"
        );
        let rings = Rings {
            user: !self.kernel,
            kernel: !self.user,
        };
        record.choice.slices = Some(SliceCut {
            length: self.interval_size,
            rings,
            threads: record.threads,
        });
        record.map_entries.get_or_insert(MAP_ENTRIES);
        let in_directory = |name: &str| self.output.as_ref().map(|_| FileName::plain(name));
        let result = match self.bb_out_file.or_else(|| in_directory("bb.out")) {
            // Neither a directory nor a file was named.
            None => VectorResult::Totals,
            Some(vectors) => VectorResult::Files(VectorFiles {
                vectors,
                places: self.pc_out_file.or_else(|| in_directory("pc.out")),
                simpoints: self.simpoints.map(usize::from),
                directory: self.output.clone(),
            }),
        };
        Ok(BbvOptions {
            record,
            rings,
            length: self.interval_size,
            rule: self.rule.rule,
            result,
        })
    }
}
