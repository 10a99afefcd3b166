//! The columns of figures next to annotated code, limited by the width of the page.

use super::rows::Row;
use crate::report::number::{columns, grouped, scaled};
use hbbp_analysis::annotate::{Block, Predictions};
use hbbp_estimate::Estimate;

const TITLES: [&str; 11] = [
    "count",
    "±",
    "EBS",
    "LBR",
    "by",
    "samples",
    "time",
    "CPI",
    "±",
    "mispred %",
    "%",
];

/// Their number.
const N: usize = TITLES.len();

/// Which of them are shown in which order, from all to the fewest: without both estimates, then without errors.
const DETAILS: [&[usize]; 3] = [
    &[PERCENT, 0, 1, 2, 3, 4, 5],
    &[PERCENT, 0, 1, 4, 5],
    &[PERCENT, 0, 5],
];

/// The same where time was sampled in addition to executions, as OptiWISE's Figure 1 has it.
const TIMED: [&[usize]; 3] = [
    &[PERCENT, 0, 1, 2, 3, 4, 5, 6, 7, 8],
    &[PERCENT, 0, 1, 6, 7, 8],
    &[PERCENT, 0, 6, 7],
];

/// The column of mispredicted branches.
const MISPREDICTED: usize = 9;

/// The column of the share that an instruction has of its function, which comes first.
const PERCENT: usize = 10;

/// Columns of both methods.
const OF_METHODS: [usize; 2] = [2, 3];

/// Columns of the page that the code needs next to the figures.
const CODE: usize = 48;

/// The figures of all rows.
pub(super) struct Figures {
    cells: Vec<[String; N]>,
    widths: [usize; N],
    /// Indices of the columns that are shown.
    shown: Vec<usize>,
    /// Columns of the page that neither figures nor code need.
    pub(super) left: usize,
}

impl Figures {
    /// The figures of these rows of a function with this amount, on a page of this width.
    pub(super) fn new(rows: &[Row<'_>], amount: f64, page_width: usize) -> Self {
        let cells: Vec<[String; N]> = rows.iter().map(|row| figures(row, amount)).collect();
        let mut widths = TITLES.map(columns);
        for cells in &cells {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = columns(cell).max(*width);
            }
        }
        let left = |shown: &[usize]| {
            let widths = shown.iter().filter_map(|nth| widths.get(*nth));
            page_width.checked_sub(widths.map(|width| width + 1).sum::<usize>() + CODE)
        };
        let is_timed = |row: &Row<'_>| matches!(row, Row::Instruction(line) if line.time.is_some());
        let details = if rows.iter().any(is_timed) { TIMED } else { DETAILS };
        let is_empty = |nth: usize| {
            let mut of_column = cells.iter().filter_map(|cells| cells.get(nth));
            of_column.all(String::is_empty)
        };
        // Where one method saw nothing, the other one is what counts.
        let has_both = !OF_METHODS.into_iter().any(is_empty);
        let says = |nth: &usize| !is_empty(*nth) && (has_both || !OF_METHODS.contains(nth));
        let details = details.map(|shown| {
            let shown = shown.iter().copied().chain([MISPREDICTED]);
            shown.filter(says).collect::<Vec<_>>()
        });
        let fitting = details
            .iter()
            .find_map(|shown| left(shown).map(|left| (shown.clone(), left)));
        let (shown, left) = fitting.unwrap_or_else(|| (details[2].clone(), 0));
        Self {
            cells,
            widths,
            shown,
            left,
        }
    }

    /// The titles of the columns.
    pub(super) fn titles(&self) -> String {
        self.aligned(&TITLES.map(str::to_owned))
    }

    /// The figures of a row.
    pub(super) fn of_row(&self, nth: usize) -> String {
        self.cells
            .get(nth)
            .map_or_else(|| self.blank(), |cells| self.aligned(cells))
    }

    /// A row without figures.
    pub(super) fn blank(&self) -> String {
        self.aligned(&[const { String::new() }; N])
    }

    fn aligned(&self, cells: &[String; N]) -> String {
        let shown = self.shown.iter();
        let cells = shown.filter_map(|nth| Some((cells.get(*nth)?, self.widths.get(*nth)?)));
        let cells: Vec<String> = cells
            .map(|(cell, width)| " ".repeat(width.saturating_sub(columns(cell))) + cell)
            .collect();
        cells.join(" ")
    }
}

/// The figures of a row: those of a block at its first instruction, and samples and time of each.
fn figures(row: &Row<'_>, amount: f64) -> [String; N] {
    let mut cells = [const { String::new() }; N];
    let Row::Instruction(line) = row else { return cells };
    if 0.0 < line.executions.value && 0.0 < amount {
        cells[PERCENT] = format!("{:.1}", 100.0 * line.executions.value / amount);
    }
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
    if let Some(time) = line.time.filter(|time| 0.0 < time.value) {
        cells[6] = number(time.value);
    }
    match line.cpi {
        Some(cpi) => {
            cells[7] = format!("{:.2}", cpi.value);
            cells[8] = format!("{:.2}", cpi.std_error);
        }
        // Time at what was executed too rarely to divide by.
        None if !cells[6].is_empty() => "?".clone_into(&mut cells[7]),
        None => {}
    }
    if let Some(Predictions { known, wrong }) = line.predictions.filter(|it| 0 < it.known) {
        cells[MISPREDICTED] = format!("{:.1}", 100.0 * wrong as f64 / known as f64);
    }
    cells
}

fn number(amount: f64) -> String {
    scaled(amount, 3).trim_end().to_owned()
}
