//! `hbbp-sys diff`: what changed from one profile to another.

use std::collections::BTreeSet;
use std::io::{BufWriter, Write};

use anyhow::{Context as _, bail};

use super::import::ImportOptions;
use super::pager::{Paging, paged};
use super::report::check_one_unit_of;
use super::runs::read_runs;
use hbbp_analysis::diff::{Condition, Diff, Gate, Measure, Modules, Per, Side, Work, diff};
use hbbp_analysis::mix::{Dimension, Estimated, Mix, Query, sum};
use hbbp_estimate::{Rule, Unit};
use hbbp_model::advice::Advised;
use hbbp_model::segments::{TimeRange, is_folder_of_segments};
use hbbp_model::snapshot::{Snapshot, SourceLocations};
use hbbp_output::report::{Comparison, DiffFormat, DiffReport, Look, described};

/// What to compare, and how to show it.
#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// The two profiles or recordings.
    pub inputs: [ImportOptions; 2],
    /// Rows and filters.
    pub query: Query,
    /// What amounts are counted per; shares are compared without it.
    pub per: Option<Per>,
    /// What must not happen.
    pub conditions: Vec<Condition>,
    /// Name or file of the rule that chooses between EBS and LBR.
    pub rule: String,
    /// Most rows; `None` for all.
    pub top: Option<usize>,
    /// The form of the report.
    pub format: DiffFormat,
    /// How text looks.
    pub look: Look,
    /// Whether a pager shows text.
    pub paging: Paging,
}

/// Prints the difference, and returns the conditions with their outcomes. A closed pipe is not an error.
pub fn compare(options: &DiffOptions, out: &mut dyn Write) -> anyhow::Result<Vec<Gate>> {
    let inputs = ranges_of_folders(&options.inputs);
    let [a, b] = &inputs;
    let runs = [read_runs(a)?, read_runs(b)?];
    let rule = super::rule::read(&options.rule)?;
    let [first, second] = &runs;
    let (of_first, of_second) = (estimated_runs(first, &rule), estimated_runs(second, &rule));
    let estimated = [Profile { runs: &of_first }, Profile { runs: &of_second }];
    let notes = notes(&estimated[0].snapshots(), &estimated[1].snapshots());
    check_units(&estimated)?;
    let modules = estimated_modules(&estimated);
    let work = work(&estimated, options)?;
    let compared = difference(&estimated, &modules, &work, &options.query);
    let gates: Vec<Gate> = options
        .conditions
        .iter()
        .map(|condition| test(condition, &estimated, &modules, &work))
        .collect();
    let names = [a, b].map(|input| input.file.display().to_string());
    let [a_name, b_name] = &names;
    let report = DiffReport {
        sides: [(a_name, first), (b_name, second)],
        totals: estimated
            .each_ref()
            .map(|profile| profile.mix(&Query::share_of(&[])).total.amount),
        diff: &compared,
        per: options.per.as_ref(),
        gates: &gates,
        notes: &notes,
        top: options.top,
    };
    paged(options.paging, out, &mut |out| {
        let mut out = BufWriter::new(out);
        report.write(options.format, options.look, &mut out)?;
        out.flush()
    })
    .context("failed to print the difference")?;
    Ok(gates)
}

/// The inputs, where a range of time is that of folders of segments alone: one side may be a profile.
fn ranges_of_folders(inputs: &[ImportOptions; 2]) -> [ImportOptions; 2] {
    let mut inputs = inputs.clone();
    if inputs.iter().any(|input| is_folder_of_segments(&input.file)) {
        let others = inputs
            .iter_mut()
            .filter(|input| !is_folder_of_segments(&input.file));
        others.for_each(|input| input.range = TimeRange::default());
    }
    inputs
}

/// The runs of a profile, estimated one by one.
pub(super) fn estimated_runs<'a>(runs: &'a [Snapshot], rule: &Rule) -> Vec<Estimated<'a>> {
    runs.iter().map(|run| Estimated::new(run, rule)).collect()
}

/// What a page shows the changes by.
const PAGE: [&[Dimension]; 6] = [
    &[Dimension::Mnemonic],
    &[Dimension::Extension],
    &[Dimension::Category],
    &[Dimension::Module],
    &[Dimension::Module, Dimension::Function],
    &[Dimension::Mitigation],
];

/// What changed from another profile to this one, for a page.
pub(super) fn comparison(
    other: &ImportOptions,
    this: &[Estimated<'_>],
    rule: &Rule,
) -> anyhow::Result<Comparison> {
    let others = read_runs(other)?;
    let others = estimated_runs(&others, rule);
    let profiles = [Profile { runs: &others }, Profile { runs: this }];
    check_units(&profiles)?;
    let modules = estimated_modules(&profiles);
    let diffs = PAGE.map(|by| {
        let query = Query {
            columns: Vec::new(),
            ..Query::by(by.iter().copied())
        };
        difference(&profiles, &modules, &[None, None], &query)
    });
    let [first, second] = profiles.each_ref().map(Profile::snapshots);
    let name = other.file.display().to_string();
    Ok(Comparison {
        sides: [described(&name, &first), described("this profile", &second)],
        diffs: diffs.into(),
        notes: notes(&first, &second),
    })
}

/// The runs of a profile, whose blocks were counted.
struct Profile<'a> {
    runs: &'a [Estimated<'a>],
}

impl<'a> Profile<'a> {
    fn snapshots(&self) -> Vec<&'a Snapshot> {
        self.runs.iter().map(|run| run.snapshot).collect()
    }

    fn unit(&self) -> Option<Unit> {
        self.runs.first().map(|run| run.counts().assignment.unit)
    }

    fn mix(&self, query: &Query) -> Mix {
        sum(
            query,
            self.runs
                .iter()
                .map(|run| run.mix(query, &SourceLocations::new())),
        )
    }

    fn samples(&self) -> f64 {
        self.runs.iter().map(Estimated::samples).sum()
    }
}

/// What the modules of both profiles are called.
fn estimated_modules(profiles: &[Profile<'_>; 2]) -> [Modules; 2] {
    let [first, second] = profiles.each_ref().map(Profile::snapshots);
    Modules::of_both(&first, &second)
}

/// Refuses profiles whose figures cannot be compared.
fn check_units([a, b]: &[Profile<'_>; 2]) -> anyhow::Result<()> {
    check_one_unit_of(a.runs).context("profile A")?;
    check_one_unit_of(b.runs).context("profile B")?;
    let (Some(a), Some(b)) = (a.unit(), b.unit()) else {
        bail!("a profile holds no run");
    };
    if a != b {
        bail!(
            "A has {}, B has {}: profiles of different units cannot be compared; record both with the same --event",
            a.noun(),
            b.noun()
        );
    }
    Ok(())
}

/// The work of both profiles, where amounts are asked for.
fn work([a, b]: &[Profile<'_>; 2], options: &DiffOptions) -> anyhow::Result<[Option<Work>; 2]> {
    let Some(per) = &options.per else {
        return Ok([None, None]);
    };
    let of = |profile: &Profile<'_>, letter| {
        let work = Work::of(per, profile.runs).map_err(Advised::from);
        work.with_context(|| format!("profile {letter} has no unit of work"))
    };
    Ok([Some(of(a, "A")?), Some(of(b, "B")?)])
}

fn difference(
    [a, b]: &[Profile<'_>; 2],
    [a_modules, b_modules]: &[Modules; 2],
    [a_work, b_work]: &[Option<Work>; 2],
    query: &Query,
) -> Diff {
    let (a_mix, b_mix) = (a.mix(query), b.mix(query));
    let side = |mix, profile: &Profile<'_>, modules, work: &Option<Work>| Side {
        mix,
        samples: profile.samples(),
        modules,
        work: *work,
    };
    diff([
        side(&a_mix, a, a_modules, a_work),
        side(&b_mix, b, b_modules, b_work),
    ])
}

/// Tests a condition on the instructions that it is about.
fn test(
    condition: &Condition,
    [a, b]: &[Profile<'_>; 2],
    [a_modules, b_modules]: &[Modules; 2],
    [a_work, b_work]: &[Option<Work>; 2],
) -> Gate {
    let query = condition.query();
    let figure = |profile: &Profile<'_>, modules, work: &Option<Work>| {
        let mix = profile.mix(&query);
        let side = Side {
            mix: &mix,
            samples: profile.samples(),
            modules,
            work: *work,
        };
        let total = Some(mix.total);
        match condition.measure {
            Measure::Share => side.share(total),
            Measure::Amount => side.amount(total).unwrap_or_else(|| side.share(total)),
        }
    };
    condition.test([figure(a, a_modules, a_work), figure(b, b_modules, b_work)])
}

/// What makes the profiles hard to compare.
fn notes(a: &[&Snapshot], b: &[&Snapshot]) -> Vec<String> {
    let values = |runs: &[&Snapshot], value: fn(&Snapshot) -> &str| {
        runs.iter()
            .map(|run| value(run))
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .collect::<BTreeSet<String>>()
    };
    let mut notes = Vec::new();
    let mut compare = |what: &str, consequence: &str, value: fn(&Snapshot) -> &str| {
        let (a, b) = (values(a, value), values(b, value));
        if a != b && !a.is_empty() && !b.is_empty() {
            let list = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(", ");
            notes.push(format!(
                "{what} differ: A {}, B {}; {consequence}",
                list(&a),
                list(&b)
            ));
        }
    };
    compare(
        "processors",
        "what changed may be the choice of code by processor features",
        |run| &run.run.host.cpu_model,
    );
    compare("kernels", "their functions are matched by name", |run| {
        &run.run.host.kernel_release
    });
    compare("measurements", "their loads may differ", |run| &run.run.scope);
    notes
}
