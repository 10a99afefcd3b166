//! Annotated code for a terminal: figures on the left, at the first instruction of each block, and the code on the right.

use std::io::{self, Write};
use std::ops::Range;

use super::arrows::drawn;
use super::figures::Figures;
use super::rows::{Row, loops, rows};
use super::shown::{AnnotatedReport, Shown, share};
use crate::report::look::{Look, Role};
use crate::report::number::{columns, grouped, percent, scaled, seconds, several};
use crate::report::page::Page;
use hbbp_analysis::annotate::{Annotated, Line, SourceLine, Version};
use hbbp_estimate::Unit;
use hbbp_model::names::file_name;
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::hex;

/// Writes the functions one after the other.
pub(super) fn write(
    report: &AnnotatedReport<'_>,
    look: Look,
    shown: Shown,
    out: &mut dyn Write,
) -> io::Result<()> {
    let page = &mut Page { look, out };
    for note in report.notes {
        page.entry("note: ", note)?;
    }
    for (nth, function) in report.functions.iter().enumerate() {
        if 0 < nth || !report.notes.is_empty() {
            page.line("")?;
        }
        head(report, function, page)?;
        for (number, version) in (1_u64..).zip(&function.versions) {
            if 1 < function.versions.len() {
                page.line("")?;
                let title = version_in_words(version, number, function);
                page.painted(Role::Title, &title)?;
            }
            code(report, function, version, shown, page)?;
        }
    }
    Ok(())
}

/// What the function is, and how much of all it executed.
fn head(report: &AnnotatedReport<'_>, function: &Annotated, page: &mut Page<'_>) -> io::Result<()> {
    let code = &function.code;
    let name = hbbp_model::names::function(&code.name, page.look.demangle);
    let module = report.module(function).map_or("", |module| module.name.as_str());
    let len = code.end.since(code.start).unwrap_or(0);
    let title = format!(
        "{name}  {}  {}, {}",
        harmless(module),
        code.start,
        several(len, "byte")
    );
    page.painted(Role::Title, &title)?;
    let amount = match report.unit {
        Unit::Executions | Unit::RelativeExecutions => format!("{} of instructions", report.unit.noun()),
        Unit::TimeWeightedSamples | Unit::EventWeightedSamples => report.unit.noun().to_owned(),
    };
    let sentence = format!(
        "{} {amount}, {} % of all; {}",
        scaled(function.amount, 4).trim_end(),
        percent(share(function.amount, function.total)),
        several(function.samples, "sample"),
    );
    page.entry("", &sentence)
}

/// `Text version 2 of 3: 12.3 % of the function's instructions, valid 0.000 to 1.250 s`.
fn version_in_words(version: &Version, number: u64, function: &Annotated) -> String {
    /// Times to show; a key may be switched thousands of times.
    const MOST: usize = 3;

    let time = |time: &Range<u64>| format!("{} to {} s", seconds(time.start, 3), seconds(time.end, 3));
    let times: Vec<String> = version.valid.iter().take(MOST).map(time).collect();
    let more = version.valid.len().saturating_sub(MOST);
    let more = if 0 < more {
        format!(" and {} times more", grouped(more as u64))
    } else {
        String::new()
    };
    format!(
        "Text version {number} of {}: {} % of the function, valid {}{more}",
        function.versions.len(),
        percent(share(version.amount, function.amount)),
        times.join(", "),
    )
}

/// Columns of the bytes: eight of them, and a mark for more.
const BYTES: usize = 17;

fn code(
    report: &AnnotatedReport<'_>,
    function: &Annotated,
    version: &Version,
    shown: Shown,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let rows = rows(version, shown);
    let arrows = drawn(loops(version, &rows), rows.len());
    let counts = version.instructions.iter().map(|line| line.executions.value);
    let hottest = counts.fold(0.0, f64::max);
    let figures = Figures::new(&rows, function.amount, page.look.width);
    let is_kernel = report
        .module(function)
        .is_some_and(|module| module.kind.is_kernel());
    let has_bytes = is_kernel && BYTES < figures.left;
    page.painted(Role::Title, &figures.titles())?;
    let mut source = None;
    for (nth, (row, arrows)) in rows.iter().zip(&arrows).enumerate() {
        let cells = figures.of_row(nth);
        let line = match row {
            Row::Instruction(line) => line,
            Row::LeftOut(n) => {
                let n = several(*n as u64, "instruction");
                let lacking = if report.unit.is_samples() {
                    "without samples"
                } else {
                    "not executed"
                };
                page.painted(Role::Faint, &format!("{cells} {arrows} ⋮ {n} {lacking}"))?;
                continue;
            }
        };
        if line.source.is_some() && line.source != source {
            source.clone_from(&line.source);
            let at = source_line(line);
            page.painted(Role::Source, &format!("{}   {at}", figures.blank()))?;
        }
        let bytes = if has_bytes {
            first_bytes(&line.bytes)
        } else {
            String::new()
        };
        let pieces = [
            (heat(line, hottest), cells),
            (
                Some(Role::Faint),
                format!(" {}{arrows} ", bracket(line, rows.get(nth + 1))),
            ),
            (Some(Role::Faint), format!("{:>6}  ", offset(line, function))),
            (Some(Role::Faint), bytes),
            (None, harmless(&line.text)),
            (Some(Role::Warning), in_the_image(line)),
        ];
        pieces_of_a_line(page, &pieces)?;
    }
    Ok(())
}

/// Which part of a block the line is.
fn bracket(line: &Line, next: Option<&Row<'_>>) -> char {
    let ends = line.flow.ends_block()
        || match next {
            Some(Row::Instruction(next)) => next.block.is_some(),
            Some(Row::LeftOut(_)) => false,
            None => true,
        };
    match (line.block.is_some(), ends) {
        (true, true) => '╶',
        (true, false) => '┌',
        (false, true) => '└',
        (false, false) => '│',
    }
}

/// Half of the hottest count and more is hot, a tenth of it is warm, and what did not run is faint.
fn heat(line: &Line, hottest: f64) -> Option<Role> {
    match line.executions.value / hottest {
        share if 0.5 <= share => Some(Role::Hot),
        share if 0.1 <= share => Some(Role::Warm),
        share if 0.0 < share => None,
        _ => Some(Role::Faint),
    }
}

/// Where the line is in the source, with its text where that is known: then its folders say less.
fn source_line(line: &Line) -> String {
    let Some(SourceLine { place, text }) = &line.source else {
        return String::new();
    };
    match text {
        Some(text) => format!("{}  {}", harmless(file_name(place)), harmless(text.trim())),
        None => harmless(place),
    }
}

/// The distance from the start of the function.
fn offset(line: &Line, function: &Annotated) -> String {
    line.addr
        .since(function.code.start)
        .map_or_else(String::new, |offset| format!("+{offset:#x}"))
}

/// The first bytes of an instruction, as wide as their column.
fn first_bytes(bytes: &[u8]) -> String {
    const MOST: usize = 7;

    let shown = hex(bytes.get(..MOST).unwrap_or(bytes));
    let more = if MOST < bytes.len() { "…" } else { "" };
    format!("{:<BYTES$}", shown + more)
}

/// What the static image has instead of an instruction.
fn in_the_image(line: &Line) -> String {
    match line.linked.as_slice() {
        [] => String::new(),
        linked => format!("  ◄ image: {}", harmless(&linked.join("; "))),
    }
}

/// Writes a line of pieces in their colours, up to the width of the page.
fn pieces_of_a_line(page: &mut Page<'_>, pieces: &[(Option<Role>, String)]) -> io::Result<()> {
    let mut left = page.look.width;
    let mut line = String::new();
    for (role, piece) in pieces {
        let mut fitting = String::new();
        for c in piece.chars() {
            let width = columns(c.encode_utf8(&mut [0; 4]));
            if left < width {
                left = 0;
                break;
            }
            left -= width;
            fitting.push(c);
        }
        match role {
            Some(role) => line += &page.look.colours.paint(*role, &fitting),
            None => line += &fitting,
        }
    }
    page.print(line.trim_end())
}
