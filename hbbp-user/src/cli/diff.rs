//! Options of differences and of merging.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;

use super::format::{DIFF_FORMATS, one_of};
use super::recording::FilesArgs;
use super::report::{LookArgs, RuleArgs, Top, parse_top};
use crate::cmd::diff::DiffOptions;
use crate::cmd::merge::MergeOptions;
use crate::cmd::pager::Paging;
use crate::cmd::report::read_taxonomies;
use hbbp_analysis::diff::{Condition, Measure, Per};
use hbbp_analysis::mix::{Axis, Dimension, Filter, Query, Taxonomy, UnknownAxis, View};
use hbbp_model::segments::{Moment, TimeRange};
use hbbp_output::report::DiffFormat;

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// First profile or recording (A).
    a: PathBuf,
    /// Second profile or recording (B).
    b: PathBuf,
    /// Dimensions of the rows, comma-separated.
    ///
    /// Such as mnemonic, extension, module,function.
    #[arg(
        short,
        long,
        visible_alias = "rows",
        value_name = "DIMENSION",
        value_delimiter = ',',
        default_value = "mnemonic",
        conflicts_with = "view"
    )]
    by: Vec<String>,
    /// Compare by the rows of a view, e.g. isa.
    ///
    /// The views are those of `hbbp-sys report`.
    #[arg(long, value_name = "NAME")]
    view: Option<String>,
    /// Only what matches, e.g. 'extension=AVX*'.
    ///
    /// Instructions whose dimension matches (or, with !=, does not match) a glob; may be repeated.
    #[arg(long, value_name = "DIM=GLOB")]
    filter: Vec<String>,
    /// Compare amounts per unit of work, e.g. second.
    ///
    /// Instead of shares: instructions, second, or count:FUNCTION (per call).
    #[arg(long, value_name = "UNIT")]
    per: Option<Per>,
    /// Exit with status 3 if this changed.
    ///
    /// At 95 % confidence: FILTER:share>+N% (percentage points) or FILTER:amount>+N% (with --per), e.g.
    /// 'extension=AVX512*:share>+1%'; may be repeated.
    #[arg(long, value_name = "CHANGE")]
    fail_if: Vec<String>,
    /// Groups of instructions as further dimensions, a TOML file; may be repeated.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    taxonomy: Vec<PathBuf>,
    #[command(flatten)]
    rule: RuleArgs,
    /// Show the N greatest changes (`all` for every one).
    #[arg(short = 'n', long, value_name = "N", default_value = "40", value_parser = parse_top)]
    top: Top,
    /// Output format.
    #[arg(long, value_parser = one_of(&DIFF_FORMATS), default_value = "text")]
    format: DiffFormat,
    #[command(flatten)]
    look: LookArgs,
    /// Do not show text in a pager.
    ///
    /// The pager is PAGER, or less.
    #[arg(long)]
    no_pager: bool,
    /// For directories of daemons: read from this time on, which is an age (90s, 2h, 3d) or UTC (2026-11-22T15:00). Given twice,
    /// the first is for A and the second for B.
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    since: Vec<Moment>,
    /// For directories of daemons: read up to this time. It may be given twice as well.
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    until: Vec<Moment>,
    #[command(flatten)]
    files: FilesArgs,
}

#[derive(Debug, Args)]
pub(super) struct MergeArgs {
    /// Profiles, and directories of a `hbbp-sys daemon`, to merge; merged ones may be among them.
    #[arg(required = true, num_args = 1.., value_name = "PROFILE")]
    inputs: Vec<PathBuf>,
    /// Save the merged profile to FILE.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// For directories of daemons: read from this time on, which is an age (90s, 2h, 3d) or UTC (2026-11-22T15:00).
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Of the directories of daemons, read the time up to here.
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
}

impl DiffArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> anyhow::Result<DiffOptions> {
        let taxonomies = read_taxonomies(&self.taxonomy)?;
        let filters = self
            .filter
            .iter()
            .map(|filter| Filter::parse(filter, &taxonomies));
        let filters: Vec<Filter> = filters.collect::<Result<_, _>>()?;
        let mut query = match &self.view {
            Some(name) => rows_of_view(name, &taxonomies)?,
            None => {
                let rows = self.by.iter().map(|name| Axis::named(name, &taxonomies));
                Query::by(rows.collect::<Result<Vec<Axis>, UnknownAxis>>()?)
            }
        };
        query.columns = Vec::new();
        query.filters.extend(filters);
        if query.asks_source() {
            bail!("source lines move from build to build: compare by function");
        }
        if query.asks(Dimension::Loop) {
            bail!(
                "loops have their addresses in their names, which move from build to build: compare by function"
            );
        }
        let conditions = self
            .fail_if
            .iter()
            .map(|text| Condition::parse(text, &taxonomies));
        let conditions: Vec<Condition> = conditions.collect::<Result<_, _>>()?;
        let of_amount = |condition: &Condition| condition.measure == Measure::Amount;
        if self.per.is_none() && conditions.iter().any(of_amount) {
            bail!("a condition on an amount needs its unit of work: add --per");
        }
        if 2 < self.since.len().max(self.until.len()) {
            bail!("--since and --until are given twice at most: for A and for B");
        }
        let range = |side: usize| {
            let of_side = |moments: &[Moment]| moments.get(side).or(moments.first()).copied();
            TimeRange {
                since: of_side(&self.since),
                until: of_side(&self.until),
            }
        };
        let (a, b) = (range(0), range(1));
        let inputs = [self.files.clone().input(self.a, a), self.files.input(self.b, b)];
        Ok(DiffOptions {
            inputs,
            query,
            per: self.per,
            conditions,
            rule: self.rule.rule,
            top: self.top.0,
            paging: if self.no_pager || self.format != DiffFormat::Text {
                Paging::Never
            } else {
                Paging::Auto
            },
            format: self.format,
            look: self.look.into_look(),
        })
    }
}

/// Rows and filters of a view with one table: a comparison has one figure for each key.
fn rows_of_view(name: &str, taxonomies: &[Arc<Taxonomy>]) -> anyhow::Result<Query> {
    let view = View::named(name, taxonomies)?;
    match view.tables.as_slice() {
        [table] => Ok(table.query.clone()),
        _ => bail!("a view of several tables cannot be compared: use --by function --filter with its module"),
    }
}

impl MergeArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> MergeOptions {
        MergeOptions {
            inputs: self.inputs,
            range: TimeRange {
                since: self.since,
                until: self.until,
            },
            output: self.output,
        }
    }
}
