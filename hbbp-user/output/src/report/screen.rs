//! The first screen: what was measured, the executed code and its kinds, and what may be wrong with it, in 24 lines.
//!
//! Each line answers a question that people ask first; the remainder of a report follows with `--details`
//! ([`super::text`]).

mod hottest;
mod kinds;
mod line;
mod overview;

use std::io;

use super::accounting::Accounting;
use super::completeness::share;
use super::header::{facts_in_a_line, guests_in_words, of_all_cpus, of_guests};
use super::look::Role;
use super::measured::{Measured, Report};
use super::number::{grouped, percent, several};
use super::page::{Page, entry_lines};
use super::warning::{Claim, heaviest};
use hbbp_analysis::mix::Unit;
use hbbp_model::advice::Advice;
use hbbp_model::snapshot::Loss;
use line::Line;
pub use overview::Overview;

/// Lines of a terminal of the default size (VT100).
const LINES: usize = 24;

/// Rows that the hottest functions have at least.
const FEWEST_ROWS: usize = 3;

/// Warnings on the screen: those of the largest weight.
const WARNINGS: usize = 2;

/// Most lines of a warning or a requirement. The full sentence is in the details.
const LINES_OF_A_SENTENCE: usize = 3;

/// Writes the screen. Where it is narrow, warnings make room for the executed code.
pub(super) fn write(report: &Report<'_>, overview: &Overview, page: &mut Page<'_>) -> io::Result<()> {
    let width = page.look.width;
    let mut above = without_executions(report, width);
    above.extend(plain(measured(report, overview, width)));
    above.extend(plain(kinds::lines(overview, &guests(report), width)));
    let screen = |warnings: usize| {
        let below = below(report, warnings, width);
        let left = LINES.saturating_sub(above.len() + below.len() + 2);
        let code = hottest::lines(overview, page.look.demangle, left.max(FEWEST_ROWS), width);
        above
            .iter()
            .cloned()
            .chain(code)
            .chain(below)
            .collect::<Vec<Line>>()
    };
    let mut screens = (0..=WARNINGS).rev().map(screen);
    let fitting = screens.find(|lines| lines.len() <= LINES);
    let lines = fitting.unwrap_or_else(|| screen(0));
    for (role, line) in lines.iter().take(LINES) {
        match role {
            Some(role) => page.painted(*role, line)?,
            None => page.line(line)?,
        }
    }
    Ok(())
}

/// Why there are no executions, and what gives them.
fn without_executions(report: &Report<'_>, width: usize) -> Vec<Line> {
    let warning = report.runs.first().and_then(Measured::without_executions);
    let sentence = warning.map(|warning| warning.in_words(report.wording));
    let lines = sentence.map_or_else(Vec::new, |sentence| entry_lines("", &sentence, width));
    let lines = shortened_to(lines, LINES_OF_A_SENTENCE).into_iter();
    lines.map(|line| (Some(Role::Warning), line)).collect()
}

fn plain(lines: Vec<String>) -> Vec<Line> {
    lines.into_iter().map(|line| (None, line)).collect()
}

/// What was measured, in which unit, and how much of it is in the figures.
fn measured(report: &Report<'_>, overview: &Overview, width: usize) -> Vec<String> {
    let Some(first) = report.runs.first() else {
        return Vec::new();
    };
    let others = match report.runs.len() {
        0 | 1 => String::new(),
        n => format!(", and {} more", several(n as u64 - 1, "run")),
    };
    let what = format!("{}{others}", facts_in_a_line(&first.snapshot.run));
    let sum = |of: fn(&super::measured::Measured<'_>) -> u64| {
        report.runs.iter().map(of).fold(0, u64::saturating_add)
    };
    let received = sum(|run| run.accounting.reached);
    let expected = report
        .runs
        .iter()
        .map(|run| {
            let all = &run.accounting;
            Some(all.due?.saturating_sub(all.missing().idle))
        })
        .try_fold(0, |sum: u64, due| Some(sum.saturating_add(due?)));
    let used = sum(|run| {
        let all = &run.accounting;
        all.in_mix
            .total()
            .saturating_add(all.stacks)
            .saturating_add(all.other_events.total())
            .saturating_add(halted(all))
    });
    let complete = expected.and_then(|expected| share(received.min(expected), expected));
    let complete = complete.map_or_else(
        || "expected number unknown".to_owned(),
        |complete| format!("{} % complete", percent(complete)),
    );
    let used = share(used, received).map_or_else(String::new, |used| {
        format!(", {} % accounted for", percent(used.min(1.0)))
    });
    let unit = match overview.unit() {
        Unit::Executions => "estimated executions",
        Unit::RelativeExecutions => "relative executions",
        Unit::TimeWeightedSamples => "time, not executions",
        Unit::EventWeightedSamples => "samples of an event, not executions",
    };
    let unit = match overview.kernel_time {
        Some(_) => format!("{unit} of user code"),
        None => unit.to_owned(),
    };
    let samples = match received {
        0 => format!("{unit}: recorded branch stacks alone"),
        n => format!("{unit}: {} samples{}, {complete}{used}", grouped(n), idle(report)),
    };
    let mut lines = shortened_to(entry_lines("", &what, width), 2);
    lines.extend(shortened_to(entry_lines("", &samples, width), 2));
    lines
}

/// Samples of virtual machines, which are in no figure; nothing if there are none.
fn guests(report: &Report<'_>) -> String {
    let sum = |of: fn(&super::measured::Measured<'_>) -> u64| {
        report.runs.iter().map(of).fold(0, u64::saturating_add)
    };
    let guests = sum(|run| run.snapshot.losses.get(Loss::GuestSample));
    let all = sum(|run| run.accounting.reached).saturating_add(guests);
    let time = sum(|run| of_guests(&run.snapshot.run));
    let machine = sum(|run| of_all_cpus(&run.snapshot.run));
    match share(guests, all).filter(|_| 0 < guests) {
        Some(part) => format!(
            "{} of {} samples ({} %), in no figure",
            grouped(guests),
            grouped(all),
            percent(part)
        ),
        None => guests_in_words(time, machine).unwrap_or_default(),
    }
}

/// How many of these samples are of code, where others found an idle CPU; else nothing.
fn idle(report: &Report<'_>) -> String {
    let sum = |of: fn(&Accounting) -> u64| {
        let of_runs = report.runs.iter().map(|run| of(&run.accounting));
        of_runs.fold(0, u64::saturating_add)
    };
    match sum(halted) {
        0 => String::new(),
        idle => format!(
            " ({} of code, {} idle)",
            grouped(sum(|all| all.resolved().total())),
            grouped(idle)
        ),
    }
}

/// Samples of halted CPUs, where nothing was executed.
fn halted(all: &Accounting) -> u64 {
    all.counted.total().saturating_sub(all.asked().total())
}

/// The heaviest warnings up to a number, requirements, and what to ask next.
fn below(report: &Report<'_>, warnings: usize, width: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let claims: Vec<Claim<'_>> = heaviest(&report.runs);
    if !claims.is_empty() {
        let title = match claims.len().min(warnings) {
            0 => format!("{} among the details", several(claims.len() as u64, "warning")),
            shown => format!(
                "Warnings ({shown} of {}), by the share of the figures that they may bend:",
                claims.len()
            ),
        };
        let title = entry_lines("", &title, width).into_iter();
        lines.extend(title.map(|line| (Some(Role::Warning), line)));
    }
    for claim in claims.iter().take(warnings) {
        let label = format!("{:>5.0} %  ", 100.0 * claim.weight);
        let sentence = claim.in_words(report.wording);
        let wrapped = entry_lines(&label, &sentence, width);
        lines.extend(plain(shortened_to(wrapped, LINES_OF_A_SENTENCE)));
    }
    for verdict in report.passed() {
        let wrapped = entry_lines("Requirement ", &verdict.to_string(), width);
        lines.extend(plain(shortened_to(wrapped, LINES_OF_A_SENTENCE)));
    }
    let next = (report.wording)(Advice::LookCloser);
    let faint = entry_lines("Next: ", next, width)
        .into_iter()
        .map(|line| (Some(Role::Faint), line));
    lines.extend(faint);
    lines
}

/// The first lines of a sentence; that there are more is said by an ellipsis.
fn shortened_to(mut lines: Vec<String>, most: usize) -> Vec<String> {
    if most < lines.len() {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            // Replaces the last word, so that the line is not longer than before.
            let cut = last.rfind(' ').unwrap_or(0);
            last.truncate(cut);
            last.push_str(" …");
        }
    }
    lines
}
