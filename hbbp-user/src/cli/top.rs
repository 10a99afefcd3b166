//! Options of `hbbp-sys top`.

use std::time::Duration;

use clap::Args;

use super::format::{TABS, one_of};
use super::record::{RecordArgs, parse_duration};
use super::report::{LookArgs, RuleArgs};
use crate::cmd::top::TopOptions;
use hbbp_output::report::top::{Screen, Tab};

/// The keys, in the long help.
pub(super) const HELP: &str = "\
Keys: f m p i c e choose the table (functions, modules, processes, instructions, categories, extensions),
r the rings, s the order, / a filter, Enter the code of a function, Space freezes, w saves the last minute
as a profile, h shows all keys, q quits. Each figure is that of the last interval.";

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Length of an interval in seconds, or with a unit.
    #[arg(short, long, value_name = "TIME", default_value = "1", value_parser = parse_duration)]
    interval: Duration,
    /// Number of intervals. Default: until q or Ctrl-C.
    #[arg(short = 'n', value_name = "TIMES")]
    times: Option<u32>,
    /// Print plain lines instead of a screen.
    #[arg(long)]
    batch: bool,
    /// Rows of each interval, with --batch.
    #[arg(long, value_name = "N", default_value = "20", requires = "batch")]
    top: u32,
    /// Table to begin with.
    #[arg(long, value_parser = one_of(&TABS), default_value = "functions")]
    table: Tab,
    #[command(flatten)]
    look: LookArgs,
    #[command(flatten)]
    rule: RuleArgs,
    #[command(flatten)]
    record: RecordArgs,
}

impl TopArgs {
    pub(super) fn into_options(self) -> anyhow::Result<TopOptions> {
        let mut record = self.record.into_options()?;
        // The period is chosen for what one interval shows.
        record.choice.duration = Some(self.interval);
        Ok(TopOptions {
            record,
            interval: self.interval,
            times: self.times.map(|times| times as usize),
            rule: self.rule.rule,
            screen: Screen::with(self.table),
            look: self.look.into_look(),
            batch: self.batch.then_some(self.top as usize),
        })
    }
}
