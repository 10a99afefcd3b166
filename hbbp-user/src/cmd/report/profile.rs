//! The runs of a profile, estimated, and what the parts of a report ask of them.

use anyhow::bail;

use super::checks::WrongUse;
use super::options::{Extent, ReportOptions};
use crate::cmd::diff::estimated_runs;
use crate::cmd::locations::read_locations;
use crate::cmd::session::DRAIN_EVERY;
use hbbp_analysis::loops::{Loops, loops};
use hbbp_analysis::mix::{
    Dimension, Estimated, Filter, Mix, MixOverTime, OverTime, Query, Requirement, Verdict, sum,
};
use hbbp_estimate::Rule;
use hbbp_estimate::stages::Stage;
use hbbp_model::snapshot::{Snapshot, SourceLocations};
use hbbp_output::report::{Format, Overview};
use hbbp_resolve::source::lines::SourceLines;

/// The runs of a profile, estimated.
pub(super) struct Profile<'a> {
    pub(super) estimated: Vec<Estimated<'a>>,
    /// The same by the clock, where executions are those of bursts: kernel code has time alone.
    by_time: Vec<Estimated<'a>>,
    /// The source locations of the instructions of each run, where a table or requirement asks for them.
    locations: Vec<SourceLocations>,
    /// Notes on locations that are missing in each run.
    pub(super) notes: Vec<Vec<String>>,
}

impl<'a> Profile<'a> {
    pub(super) fn new(runs: &'a [Snapshot], rule: &Rule, options: &ReportOptions) -> Self {
        let estimated = estimated_runs(runs, rule);
        let has_bursts = |it: &Estimated<'_>| it.counts().assignment.is_of_bursts(&it.snapshot.run.events);
        let by_time = match estimated.iter().any(has_bursts) {
            true => estimated_runs(runs, &by_time(rule)),
            false => Vec::new(),
        };
        let asks_source = options.asks(Query::asks_source);
        let asks_loops = options.asks(|query| query.asks(Dimension::Loop));
        let of_run = |(run, estimated): (&Snapshot, &Estimated<'_>)| {
            let (mut locations, notes) = if asks_source {
                read_locations(run, estimated, &options.debug_files)
            } else {
                Default::default()
            };
            if asks_loops {
                loops(estimated).place(&estimated.map, &mut locations);
            }
            (locations, notes)
        };
        let (locations, notes) = runs.iter().zip(&estimated).map(of_run).unzip();
        Self {
            estimated,
            by_time,
            locations,
            notes,
        }
    }

    /// Time of the kernel, where executions are those of user code alone.
    pub(super) fn kernel_time(&self, query: &Query) -> anyhow::Result<Option<Mix>> {
        if self.by_time.is_empty() {
            return Ok(None);
        }
        let mut query = query.clone();
        query.filters.push(Filter::parse("ring=kernel", &[])?);
        query.columns.retain(|axis| !axis.is(Dimension::Ring));
        let runs = self.by_time.iter().zip(&self.locations);
        let mixes = runs.map(|(run, locations)| run.mix(&query, locations));
        Ok(Some(sum(&query, mixes)))
    }

    /// The answers of all runs.
    pub(super) fn mixes(&self, query: &Query) -> Vec<Mix> {
        let runs = self.estimated.iter().zip(&self.locations);
        runs.map(|(run, locations)| run.mix(query, locations)).collect()
    }

    /// The rows of the first table by period, if requested.
    pub(super) fn over_time(
        &self,
        options: &ReportOptions,
    ) -> anyhow::Result<Option<(OverTime, MixOverTime)>> {
        if !options.over_time {
            return Ok(None);
        }
        let tables = options.tables();
        let (Some((query, _)), [run], [locations]) = (tables.first(), &*self.estimated, &*self.locations)
        else {
            bail!(
                "--over-time shows one run, and this profile has several: report one of those that were merged"
            );
        };
        let over_time = OverTime::new(run);
        anyhow::ensure!(
            1 < over_time.periods.len(),
            "--over-time needs counts of several intervals, and this profile has those of {}: record for longer than {} s, \
             the time between two drains",
            over_time.periods.len(),
            DRAIN_EVERY.as_secs()
        );
        let mix = over_time.mix(run, query, locations);
        Ok(Some((over_time, mix)))
    }

    /// The loops of each run, where the view shows them, with the source lines of those that are shown.
    pub(super) fn loops(&self, options: &ReportOptions) -> anyhow::Result<Vec<Loops>> {
        let view = options.view.as_ref();
        let Some(view) = view.filter(|view| view.shows_loops()) else {
            return Ok(Vec::new());
        };
        anyhow::ensure!(
            options.format != Format::Html,
            "a page does not show loops; use --format text, json or csv with --view loops"
        );
        let filtered = view.tables.iter().any(|table| !table.query.filters.is_empty());
        anyhow::ensure!(
            !filtered && !options.over_time,
            "--view loops has all loops of the whole run: leave out --filter and --over-time"
        );
        let of_run = |run: &Estimated<'a>| {
            let mut found = loops(run);
            let n = options.top.unwrap_or(usize::MAX);
            let shown = found.loops.iter().take(n);
            let instructions = shown.flat_map(|it| it.region.instructions(&run.map));
            let instructions = instructions.chain(found.call_addresses(n));
            let mut lines = SourceLines::new(run.snapshot, options.debug_files.clone());
            let locations = lines.read_lines(instructions);
            found.locate(n, &run.map, &locations);
            found
        };
        Ok(self.estimated.iter().map(of_run).collect())
    }

    /// What the first screen shows, if it is requested.
    pub(super) fn overview(&self, options: &ReportOptions) -> anyhow::Result<Option<Overview>> {
        if options.format != Format::Text || options.extent != Extent::Screen {
            return Ok(None);
        }
        let kernel_time = self.kernel_time(&Query::by([Dimension::Function]))?;
        let answer = |query: &Query| sum(query, self.mixes(query).into_iter());
        Ok(Some(Overview::new(answer, kernel_time)))
    }

    /// Refuses requirements that are not on user code alone, where kernel code has no executions.
    fn check_rings(&self, requirements: &[Requirement]) -> anyhow::Result<()> {
        let of_both = |it: &&Requirement| !self.by_time.is_empty() && !is_of_user_code(&it.query());
        match requirements.iter().find(of_both) {
            None => Ok(()),
            Some(requirement) => Err(WrongUse::new(format!(
                "`{}` is a condition on both rings, and this profile has executions of user code and time of the kernel, which have no \
                 sum: put `ring=user &&` before it, or use `--rule time` for a condition on time",
                requirement.text
            ))
            .into()),
        }
    }

    pub(super) fn verdicts(&self, options: &ReportOptions) -> anyhow::Result<Vec<Verdict>> {
        self.check_rings(&options.requirements)?;
        let samples = self.estimated.iter().map(Estimated::samples).sum();
        let verdict = |requirement: &Requirement| {
            let query = requirement.query();
            let mix = sum(&query, self.mixes(&query).into_iter());
            requirement.test(&mix, samples, options.confidence)
        };
        Ok(options.requirements.iter().map(verdict).collect())
    }
}

/// The same rule for samples alone.
fn by_time(rule: &Rule) -> Rule {
    Rule {
        stages: rule.stages.without(Stage::Stacks),
        ..rule.clone()
    }
}

/// Whether kernel code passes no filter.
fn is_of_user_code(query: &Query) -> bool {
    let filters = query.filters.iter();
    let mut of_rings = filters.filter(|filter| filter.axis.is(Dimension::Ring));
    of_rings.any(|filter| filter.passes_alone("user"))
}
