//! The report as text for a terminal: header, warnings, table, accounting; no line is longer than asked.

use std::io;

use super::accounting::{Accounting, InModule};
use super::look::Role;
use super::measured::{Measured, Report, Streams};
use super::number::grouped;
use super::page::Page;
use super::{classes, header, pivot_table};
use hbbp_code::locate::{PerRing, Unresolved};
use hbbp_model::advice::Wording;
use hbbp_model::printable::harmless;

/// Writes the report: the notes of each run, and the tables over all runs.
pub(super) fn write(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    heads(report, page)?;
    page.line("")?;
    write_tables(report, page)?;
    for run in &report.runs {
        // Of several runs each has its own account.
        let of_run = match report.runs.len() {
            0 | 1 => String::new(),
            _ => format!(" of {}", harmless(&run.snapshot.run.host.name)),
        };
        page.heading(&format!("Sample accounting{of_run}:"))?;
        sums(&samples(&run.accounting, report.wording), page)?;
        let streams = streams(&run.streams);
        if !streams.is_empty() {
            page.heading(&format!("Stream accounting{of_run}:"))?;
            sums(&streams, page)?;
        }
        classes::text(&of_run, &run.analysis.counts.classes.estimates, page)?;
    }
    Ok(())
}

/// Writes why there are no executions, the tables, and what became of the requirements.
pub(super) fn write_tables_alone(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    if let Some(warning) = report.runs.first().and_then(Measured::without_executions) {
        page.entry("", &warning.in_words(report.wording))?;
    }
    write_tables(report, page)
}

/// Writes the tables and what became of the requirements.
pub(super) fn write_tables(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    if let Some(view) = report.view {
        page.entry(&format!("{}: ", view.name), &view.sentence)?;
    }
    pivot_table::write(report, page)?;
    for loops in &report.loops {
        loops.text(report.wording, page)?;
    }
    if let Some((_, rows)) = &report.over_time {
        rows.text(page)?;
    }
    let mut passed = report.passed().peekable();
    if passed.peek().is_some() {
        page.heading("Requirements:")?;
    }
    passed.try_for_each(|verdict| page.entry("  - ", &verdict.to_string()))
}

/// Facts and warnings: those that all runs have in common once, and then those of each.
fn heads(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let heads: Vec<Head> = report
        .runs
        .iter()
        .map(|run| Head::new(run, report.wording))
        .collect();
    let Some((first, others)) = heads.split_first() else {
        return Ok(());
    };
    let common = others
        .iter()
        .fold(first.clone(), |common, head| common.shared(head));
    common.write(page)?;
    if others.is_empty() {
        return Ok(());
    }
    for (n, head) in (1_u64..).zip(&heads) {
        page.line("")?;
        page.painted(Role::Title, &format!("Run {n} of {}", heads.len()))?;
        head.beyond(&common).write(page)?;
    }
    Ok(())
}

/// What is printed above the tables.
#[derive(Clone)]
struct Head {
    /// Labels with sentences.
    facts: Vec<(String, String)>,
    warnings: Vec<String>,
}

impl Head {
    fn new(measured: &Measured<'_>, wording: Wording) -> Self {
        let run = &measured.snapshot.run;
        let facts = header::facts(run, measured.analysis, &measured.accounting, &measured.residuals);
        let facts = facts
            .into_iter()
            .map(|(label, fact)| (format!("  {label:<12}  "), fact));
        let version = ("hbbp-sys ".to_owned(), run.tool_version.clone());
        let why = measured.without_executions();
        let why = why.map(|warning| (String::new(), warning.in_words(wording)));
        let warnings = measured.other_warnings();
        Self {
            facts: why.into_iter().chain([version]).chain(facts).collect(),
            warnings: warnings.map(|warning| warning.in_words(wording)).collect(),
        }
    }

    /// What another head says as well.
    fn shared(mut self, other: &Self) -> Self {
        self.facts.retain(|fact| other.facts.contains(fact));
        self.warnings.retain(|warning| other.warnings.contains(warning));
        self
    }

    /// What this one says beyond another.
    fn beyond(&self, other: &Self) -> Self {
        let mut head = self.clone();
        head.facts.retain(|fact| !other.facts.contains(fact));
        head.warnings.retain(|warning| !other.warnings.contains(warning));
        head
    }

    fn write(&self, page: &mut Page<'_>) -> io::Result<()> {
        for (label, sentence) in &self.facts {
            page.entry(label, sentence)?;
        }
        if !self.warnings.is_empty() {
            page.line("")?;
            page.painted(Role::Warning, "Warnings:")?;
            self.warnings
                .iter()
                .try_for_each(|warning| page.entry("  - ", warning))?;
        }
        Ok(())
    }
}

/// Modules that are named where samples lie inside an instruction.
const NAMED: usize = 3;

/// One line of a sum: what happens to the sum, a count, and what it is.
struct Step(Sign, i128, String);

/// What a line does to the sum of those above it.
#[derive(Clone, Copy)]
enum Sign {
    Begin,
    Plus,
    Minus,
    Equals,
}

/// The sample accounting, as a sum that the reader can check.
fn samples(all: &Accounting, wording: Wording) -> Vec<Step> {
    let mut steps = received(all);
    steps.extend(not_counted(all, wording));
    let counted = format!("counted: {}", by_ring(all.counted));
    steps.push(step(Sign::Equals, all.counted.total(), &counted));
    let unresolved = all.unresolved.iter().map(|(reason, n)| {
        let mut why = format!("{} ({})", reason.sentence(), by_ring(*n));
        if *reason == Unresolved::NotOnInstruction {
            why += &inside(&all.inside);
        }
        step(Sign::Minus, n.total(), &why)
    });
    steps.extend(unresolved);
    if 0 < all.other_events.total() {
        let other = format!(
            "of events that the mix does not use, such as time ({})",
            by_ring(all.other_events)
        );
        steps.push(step(Sign::Minus, all.other_events.total(), &other));
    }
    let moved = grouped(all.of_user_code.unsigned_abs());
    let moved = match all.of_user_code {
        0 => String::new(),
        1.. => format!(", with {moved} taken in the kernel that are time of SYSCALL in user code"),
        _ => format!(", with {moved} taken in user code that are time of the kernel"),
    };
    let in_mix = format!("in the figures: {}{moved}", by_ring(all.in_figures()));
    steps.push(step(Sign::Equals, all.in_mix.total(), &in_mix));
    steps
}

/// The modules with samples inside an instruction. Those with the most samples are named, the others are counted.
fn inside(modules: &[InModule]) -> String {
    let (named, others) = modules.split_at(modules.len().min(NAMED));
    let mut places: Vec<String> = named
        .iter()
        .map(|row| format!("{} in {}", row.samples, harmless(&row.module)))
        .collect();
    if !others.is_empty() {
        let samples: u64 = others.iter().map(|row| row.samples).sum();
        places.push(format!("{samples} in {} others", others.len()));
    }
    if places.is_empty() {
        String::new()
    } else {
        format!(": {}", places.join(", "))
    }
}

/// From the expected samples to those that were received.
fn received(all: &Accounting) -> Vec<Step> {
    let Some(due) = all.due else {
        let unknown = "received; expected number unknown";
        return vec![step(Sign::Begin, all.reached, unknown)];
    };
    let expected = "expected: counter values divided by the period";
    let mut steps = vec![step(Sign::Begin, due, expected)];
    steps.extend(missing(all));
    if 0 < all.beyond {
        let late = "taken while the counters were being read";
        steps.push(step(Sign::Plus, all.beyond, late));
    }
    steps.push(step(Sign::Equals, all.reached, "received"));
    steps
}

/// The received samples that are not counted, by cause.
fn not_counted(all: &Accounting, wording: Wording) -> Vec<Step> {
    let refused = all.refused.iter();
    let mut steps: Vec<Step> = refused
        .map(|(loss, n)| step(Sign::Minus, *n, &loss.in_words(wording)))
        .collect();
    if 0 < all.stacks {
        let stacks = "samples used only for their branch stacks";
        steps.push(step(Sign::Minus, all.stacks, stacks));
    }
    if all.unexplained() != 0 {
        let bug = "samples unaccounted for (a bug in hbbp-sys)".to_owned();
        steps.push(Step(Sign::Minus, all.unexplained(), bug));
    }
    steps
}

/// The expected samples that were not received, by cause.
fn missing(all: &Accounting) -> Vec<Step> {
    let missing = all.missing();
    let idle = "missing: idle CPUs (no sample is taken while a CPU sleeps)";
    let stolen = "missing: the hypervisor took the CPU for as many periods (steal time)";
    let unknown = if missing.of_tasks {
        "missing: threads that ended before their period did, or an unknown cause"
    } else {
        "missing: the timer fired late, or the kernel did not run the sampling program"
    };
    let measured = [(missing.idle, idle), (missing.stolen, stolen)];
    let measured = measured.into_iter().filter(|(n, _)| 0 < *n);
    measured
        .chain([(missing.unknown, unknown)])
        .map(|(n, why)| step(Sign::Minus, n, why))
        .collect()
}

/// The stream accounting; empty without streams.
fn streams(streams: &Streams) -> Vec<Step> {
    if streams.counted == 0 {
        return Vec::new();
    }
    let mut steps = vec![step(Sign::Begin, streams.counted, "counted")];
    let discarded = streams.discarded.iter().map(|(reason, n)| {
        step(
            Sign::Minus,
            n.total(),
            &format!("{} ({})", reason.sentence(), by_ring(*n)),
        )
    });
    steps.extend(discarded);
    let mut ended = format!(
        "in the estimate, {} of them ended by an interrupt or exception",
        grouped(streams.interrupted)
    );
    if 0 < streams.made_up {
        ended += &format!(
            "; they carry the weight of {} discarded streams that cannot have been executed",
            grouped(streams.made_up)
        );
    }
    steps.push(step(Sign::Equals, streams.accepted, &ended));
    steps
}

/// Writes a sum, the numbers one below the other.
fn sums(steps: &[Step], page: &mut Page<'_>) -> io::Result<()> {
    let number = |n: i128| match u64::try_from(n) {
        Ok(n) => grouped(n),
        Err(_) => n.to_string(),
    };
    let widest = steps
        .iter()
        .map(|Step(_, n, _)| number(*n).len())
        .max()
        .unwrap_or(0);
    for Step(sign, n, what) in steps {
        let sign = match sign {
            Sign::Begin => ' ',
            Sign::Plus => '+',
            Sign::Minus => '-',
            Sign::Equals => '=',
        };
        page.entry(&format!("  {sign} {:>widest$}  ", number(*n)), what)?;
    }
    Ok(())
}

fn step(sign: Sign, n: u64, what: &str) -> Step {
    Step(sign, n.into(), what.to_owned())
}

fn by_ring(n: PerRing) -> String {
    format!("kernel {}, user {}", grouped(n.kernel), grouped(n.user))
}
