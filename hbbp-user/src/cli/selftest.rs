//! Options of the self-test.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::record::{parse_duration, parse_pid};
use crate::cmd::Job;
use crate::cmd::selftest::SelfTestOptions;

/// How long the loads run. The rest of a minute, or of ten seconds, is for opening events and for the estimate.
const WHOLE: Duration = Duration::from_secs(45);
/// As [`WHOLE`].
const QUICK: Duration = Duration::from_secs(6);

#[derive(Debug, Args)]
pub(super) struct SelfTestArgs {
    /// Take ten seconds instead of a minute: standard errors are some three times as large.
    #[arg(long)]
    quick: bool,
    /// Run the loads for TIME: 10, 500ms, 90s.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "quick", hide_short_help = true)]
    duration: Option<Duration>,
    /// Keep the profile in FILE, for `hbbp-sys report`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Sampling period in event counts (ns for clocks), for machines much slower than a processor.
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), hide_short_help = true)]
    period: Option<u64>,
    /// Sampling period of branch stacks, in taken branches.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), hide_short_help = true)]
    branch_period: Option<u64>,
}

impl SelfTestArgs {
    pub(super) fn into_options(self) -> SelfTestOptions {
        SelfTestOptions {
            time: self.duration.unwrap_or(if self.quick { QUICK } else { WHOLE }),
            output: self.output,
            period: self.period,
            branch_period: self.branch_period,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct SelfTestLoadsArgs {
    /// Process that asks.
    #[arg(value_parser = parse_pid)]
    parent: u32,
    /// Descriptor that the counts are written to.
    counts: i32,
    /// How long the loads run.
    #[arg(value_parser = parse_duration)]
    time: Duration,
}

impl SelfTestLoadsArgs {
    pub(super) const fn into_job(self) -> Job {
        Job::SelfTestLoads {
            parent: self.parent,
            counts: self.counts,
            time: self.time,
        }
    }
}
