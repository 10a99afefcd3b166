//! Options of basic block vectors.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

use super::record::RecordArgs;
use super::report::RuleArgs;
use crate::cmd::bbv::BbvOptions;
use hbbp_model::slices::{Rings, SliceCut};

/// What the files are.
pub(super) const HELP: &str = "\
Files in the directory, in the formats of Valgrind's exp-bbv and of SimPoint 3.2:
  bb.out       a line for each interval, `T:ID:INSTRUCTIONS   :ID:INSTRUCTIONS ..`; bb.out.2 .. of further threads
  pc.out       `F:ID:ADDRESS:FUNCTION` of each block
  blocks.csv   the same with ring, module and length
  simpoints, weights, phases.svg   with --simpoints; simpoints.2 .. of further threads

Example: hbbp-sys bbv --simpoints 10 -o vectors -- ./program";

#[derive(Debug, Args)]
pub(super) struct BbvArgs {
    /// Instructions in an interval, of each thread with --per-thread and of all together without. Where only a clock can be
    /// sampled, nanoseconds.
    #[arg(long, value_name = "N", default_value_t = INTERVAL_SIZE, value_parser = clap::value_parser!(u64).range(1..))]
    interval_size: u64,
    /// Write totals alone, no vectors.
    #[arg(long, conflicts_with = "simpoints")]
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
    /// Choose at most K simulation points, with their weights, and draw the phases.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=MOST_POINTS))]
    simpoints: Option<u16>,
    /// Write the files to DIR.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
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
        Ok(BbvOptions {
            record,
            rings,
            length: self.interval_size,
            totals_only: self.instr_count_only,
            simpoints: self.simpoints.map(usize::from),
            rule: self.rule.rule,
            directory: self.output,
        })
    }
}
