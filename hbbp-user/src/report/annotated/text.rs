//! Annotated code for a terminal: figures on the left, at the first instruction of each block, and the code on the right.

use std::io::{self, Write};
use std::ops::Range;

use super::arrows::{Span, drawn};
use super::{AnnotatedReport, Shown, share};
use crate::addr::ImageAddr;
use crate::annotate::{Annotated, Block, Line, Version};
use crate::estimate::{Estimate, Unit};
use crate::printable::harmless;
use crate::report::look::{Look, Role};
use crate::report::number::{columns, grouped, percent, scaled, seconds, several};
use crate::report::page::Page;

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
    let name = crate::names::function(&code.name, page.look.demangle);
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

/// A line of text: an instruction, or a number of instructions that are not shown.
enum Row<'a> {
    Instruction(&'a Line),
    LeftOut(usize),
}

/// The instructions that are shown.
fn rows(version: &Version, shown: Shown) -> Vec<Row<'_>> {
    /// Instructions around those that were executed, and the least number that is worth a line of its own.
    const AROUND: usize = 2;
    const WORTH_IT: usize = 4;

    let lines = &version.instructions;
    let is_hot = |line: &Line| 0.0 < line.count || 0 < line.samples;
    let near = |at: usize| {
        let around = lines.get(at.saturating_sub(AROUND)..lines.len().min(at + AROUND + 1));
        around.is_some_and(|around| around.iter().any(is_hot))
    };
    let nothing_ran = !lines.iter().any(is_hot);
    let mut rows = Vec::new();
    let mut left_out: &[Line] = &[];
    let mut from = 0;
    for at in 0..=lines.len() {
        let is_shown = at == lines.len() || shown == Shown::All || nothing_ran || near(at);
        if !is_shown {
            left_out = lines.get(from..=at).unwrap_or(&[]);
            continue;
        }
        match left_out.len() {
            n if WORTH_IT <= n => rows.push(Row::LeftOut(n)),
            _ => rows.extend(left_out.iter().map(Row::Instruction)),
        }
        left_out = &[];
        from = at + 1;
        rows.extend(lines.get(at).map(Row::Instruction));
    }
    rows
}

/// The loops of a version that ran, by the rows of their first and last instruction.
fn loops(version: &Version, rows: &[Row<'_>]) -> Vec<Span> {
    let row_of = |addr: ImageAddr| {
        rows.iter()
            .position(|row| matches!(row, Row::Instruction(line) if line.addr == addr))
    };
    let ran = |addr: ImageAddr| {
        let found = version
            .instructions
            .binary_search_by_key(&addr, |line| line.addr)
            .ok();
        found
            .and_then(|at| version.instructions.get(at))
            .is_some_and(|line| 0.0 < line.count)
    };
    let back = version.branches.iter().filter(|branch| branch.to <= branch.from);
    let taken = back.filter(|branch| ran(branch.from) && ran(branch.to) && branch.taken != Some(0));
    taken
        .filter_map(|branch| Some((row_of(branch.to)?, row_of(branch.from)?)))
        .collect()
}

/// The columns of figures.
const TITLES: [&str; 6] = ["count", "±", "EBS", "LBR", "by", "samples"];

/// Which of them are shown, from all to the fewest: without both estimates, then without errors.
const DETAILS: [&[usize]; 3] = [&[0, 1, 2, 3, 4, 5], &[0, 1, 4, 5], &[0, 5]];

/// Columns that the code needs beside the figures.
const CODE: usize = 48;
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
    let hottest = version
        .instructions
        .iter()
        .map(|line| line.count)
        .fold(0.0, f64::max);
    let cells: Vec<[String; 6]> = rows.iter().map(figures).collect();
    let width = |nth: usize| {
        let title = TITLES.get(nth).map_or(0, |title| columns(title));
        cells
            .iter()
            .filter_map(|cells| cells.get(nth))
            .map(|cell| columns(cell))
            .fold(title, usize::max)
    };
    let widths: Vec<usize> = (0..TITLES.len()).map(width).collect();
    let needed = |detail: &[usize]| {
        detail
            .iter()
            .filter_map(|nth| widths.get(*nth))
            .map(|width| width + 1)
            .sum::<usize>()
    };
    let left = |detail: &[usize]| page.look.width.checked_sub(needed(detail) + CODE);
    let detail = DETAILS
        .into_iter()
        .find(|detail| left(detail).is_some())
        .unwrap_or(DETAILS[2]);
    let is_kernel = report
        .module(function)
        .is_some_and(|module| module.kind.is_kernel());
    let bytes = is_kernel && left(detail).is_some_and(|left| BYTES < left);
    let aligned = |cells: &[String]| {
        let cells = detail
            .iter()
            .filter_map(|nth| Some((cells.get(*nth)?, widths.get(*nth)?)));
        let cells: Vec<String> = cells
            .map(|(cell, width)| " ".repeat(width - columns(cell)) + cell)
            .collect();
        cells.join(" ")
    };
    page.painted(Role::Title, &aligned(&TITLES.map(str::to_owned)))?;
    let mut source = None;
    for (nth, ((row, cells), arrows)) in rows.iter().zip(&cells).zip(&arrows).enumerate() {
        let Row::Instruction(line) = row else {
            let Row::LeftOut(n) = row else { continue };
            let text = format!(
                "{} {arrows} ⋮ {} not executed",
                aligned(cells),
                several(*n as u64, "instruction")
            );
            page.painted(Role::Faint, &text)?;
            continue;
        };
        if line.source.is_some() && line.source != source {
            source.clone_from(&line.source);
            let at = harmless(line.source.as_deref().unwrap_or(""));
            page.painted(
                Role::Source,
                &format!("{}   {at}", aligned(&[const { String::new() }; 6])),
            )?;
        }
        let next = rows.get(nth + 1);
        let pieces = [
            (heat(line, hottest), aligned(cells)),
            (Some(Role::Faint), format!(" {}{arrows} ", bracket(line, next))),
            (Some(Role::Faint), format!("{:>6}  ", offset(line, function))),
            (
                Some(Role::Faint),
                if bytes { hex(&line.bytes) } else { String::new() },
            ),
            (None, harmless(&line.text)),
            (Some(Role::Warning), in_the_image(line)),
        ];
        pieces_of_a_line(page, &pieces)?;
    }
    Ok(())
}

/// The figures of a row: those of a block at its first instruction, and the samples of each.
fn figures(row: &Row<'_>) -> [String; 6] {
    let mut cells = [const { String::new() }; 6];
    let Row::Instruction(line) = row else { return cells };
    let amount = |estimate: Option<Estimate>| estimate.map_or_else(String::new, |it| number(it.count));
    if let Some(Block {
        chosen,
        ebs,
        lbr,
        biased,
    }) = line.block
    {
        if let Some((chosen, method, _)) = chosen {
            cells[0] = number(chosen.count);
            cells[1] = number(chosen.std_error);
            cells[4] = method.name().to_owned();
        }
        cells[2] = amount(ebs);
        cells[3] = amount(lbr) + if biased { "!" } else { "" };
    }
    if 0 < line.samples {
        cells[5] = grouped(line.samples);
    }
    cells
}

fn number(amount: f64) -> String {
    scaled(amount, 3).trim_end().to_owned()
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

/// Half of the hottest count and more is hot.
fn heat(line: &Line, hottest: f64) -> Option<Role> {
    (0.0 < line.count && hottest <= 2.0 * line.count).then_some(Role::Hot)
}

/// The distance from the start of the function.
fn offset(line: &Line, function: &Annotated) -> String {
    line.addr
        .since(function.code.start)
        .map_or_else(String::new, |offset| format!("+{offset:#x}"))
}

fn hex(bytes: &[u8]) -> String {
    const MOST: usize = 7;

    let shown: String = bytes
        .iter()
        .take(MOST)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let more = if MOST < bytes.len() { "…" } else { "" };
    format!("{:<BYTES$}", shown + more)
}

/// What the static image has in place of an instruction.
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
    writeln!(page.out, "{}", line.trim_end())
}
