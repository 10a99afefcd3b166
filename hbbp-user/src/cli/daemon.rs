//! Options of `hbbp-sys daemon`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::record::{EndedArgs, RecordArgs, parse_duration};
use crate::cmd::daemon::DaemonOptions;
use crate::cmd::daemon::memory::default_budget;
use crate::cmd::daemon::server::Listen;
use hbbp_model::segments::plan::Limits;

/// What becomes of the segments, in the long help.
pub(super) const HELP: &str = "\
The directory gets one profile for each interval. Those of an hour are merged into one when it is over, those of a day
likewise. `report`, `annotate`, `diff`, `export` and `merge` take the directory instead of a profile, with --since and --until.

SIGTERM and Ctrl-C end it: the last interval is saved. SIGHUP is ignored: there is no configuration to reload.
After an error collection is opened again. Intervals that cannot be written, as on a full disk, wait in memory.
One daemon writes to a directory.";

#[derive(Debug, Args)]
pub(super) struct DaemonArgs {
    /// Directory of the segments; it is made if it is missing.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Length of an interval in seconds, or with a unit.
    #[arg(short, long, value_name = "TIME", default_value = "60", value_parser = parse_interval)]
    interval: Duration,
    /// Remove the oldest segments beyond it, e.g. 20G.
    ///
    /// While all together are larger: 500M, 20G.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_disk: Option<u64>,
    /// Remove segments that ended longer ago, e.g. 30d.
    ///
    /// Hours or days: 12h, 30d.
    #[arg(long, value_name = "TIME", value_parser = parse_age)]
    max_age: Option<Duration>,
    /// Serve metrics at unix:PATH or 127.0.0.1:PORT.
    ///
    /// OpenMetrics, /metrics and /healthz. At unix:PATH, which its owner alone can use, there are also profiles
    /// (/profile?seconds=N); at 127.0.0.1:PORT every local user can read.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Listen>,
    /// CPU time that the daemon may take, of all CPUs.
    ///
    /// In percent; sampling periods are adapted to it. 100% leaves them as they are.
    #[arg(long, value_name = "SHARE", default_value = "0.3%", value_parser = parse_share)]
    cpu_budget: u32,
    /// Memory for intervals that wait and segments that are merged, with as much for measuring; what does not fit is
    /// not merged, or is left out and counted [default: 384MiB, or an eighth of the memory of a small machine].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, hide_short_help = true)]
    memory_budget: Option<u64>,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    ended: EndedArgs,
}

impl DaemonArgs {
    pub(super) fn into_options(self) -> anyhow::Result<DaemonOptions> {
        let mut record = self.record.into_options()?;
        // It has no end: the periods are those of long runs.
        record.choice.duration = None;
        record.ended = self.ended.into_ended();
        record.cpu_budget = Some(self.cpu_budget).filter(|share| *share < ALL);
        Ok(DaemonOptions {
            record,
            folder: self.dir,
            interval: self.interval,
            limits: Limits {
                disk: self.max_disk,
                age: self.max_age,
            },
            memory_budget: self.memory_budget.unwrap_or_else(default_budget),
            listen: self.listen,
        })
    }
}

/// An interval of a second at least: a shorter one is mostly overhead.
fn parse_interval(text: &str) -> Result<Duration, String> {
    parse_duration(text).and_then(|interval| {
        if Duration::from_secs(1) <= interval {
            Ok(interval)
        } else {
            Err("expected one second or more".to_owned())
        }
    })
}

/// Parts per million of all CPUs.
const ALL: u32 = 1_000_000;

/// A share of all CPUs in percent, as parts per million.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number from 1 to a million"
)]
fn parse_share(text: &str) -> Result<u32, String> {
    let percent: Option<f64> = text.strip_suffix('%').and_then(|it| it.trim().parse().ok());
    let parts = percent.map(|percent| (percent * f64::from(ALL) / 100.0).round());
    match parts {
        Some(parts) if (1.0..=f64::from(ALL)).contains(&parts) => Ok(parts as u32),
        _ => Err("expected a share such as 0.3%, from 0.0001% to 100%".to_owned()),
    }
}

/// A time, also in days.
fn parse_age(text: &str) -> Result<Duration, String> {
    match text.strip_suffix('d').map(str::parse::<u32>) {
        Some(Ok(days)) => Ok(Duration::from_secs(86_400) * days),
        _ => parse_duration(text),
    }
}

/// Bytes, with binary units.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|it: char| !it.is_ascii_digit());
    let shift = match text.strip_prefix(digits) {
        Some("") => 0,
        Some("K" | "KiB") => 10,
        Some("M" | "MiB") => 20,
        Some("G" | "GiB") => 30,
        Some("T" | "TiB") => 40,
        _ => u32::MAX,
    };
    let size = digits.parse::<u64>().ok().zip(1_u64.checked_shl(shift));
    size.and_then(|(n, unit)| n.checked_mul(unit))
        .ok_or_else(|| "expected a size such as 500M or 20G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_have_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("500M"), Ok(500 << 20));
        assert_eq!(parse_size("20GiB"), Ok(20 << 30));
        for wrong in ["", "M", "1.5G", "20 G", "20X", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_age("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(parse_age("12h"), Ok(Duration::from_secs(12 * 3600)));
        assert_eq!(
            [parse_share("0.3%"), parse_share("100%")],
            [Ok(3_000), Ok(1_000_000)]
        );
        for wrong in ["", "0.3", "0%", "101%", "x%", "-1%", "NaN%"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
        assert!(parse_interval("500ms").is_err() && parse_interval("1").is_ok());
    }
}
