//! The lines of annotated text: the instructions of a version, without long runs of those that were not executed.

use super::arrows::Span;
use super::shown::Shown;
use hbbp_analysis::annotate::{Line, Version};
use hbbp_model::addr::ImageAddr;

/// A line of text: an instruction, or a number of instructions that are not shown.
pub(super) enum Row<'a> {
    Instruction(&'a Line),
    LeftOut(usize),
}

/// The instructions that are shown.
pub(super) fn rows(version: &Version, shown: Shown) -> Vec<Row<'_>> {
    /// Instructions around those that were executed, and the least number that is worth a line of its own.
    const AROUND: usize = 2;
    const WORTH_IT: usize = 4;

    let lines = &version.instructions;
    let is_hot = |line: &Line| has_run(line) || 0 < line.samples;
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

/// Whether the instruction was executed. Time within a block may be that of others than the first one, which has the
/// figures of the block.
fn has_run(line: &Line) -> bool {
    let chosen = line.block.as_ref().and_then(|block| block.chosen.as_ref());
    0.0 < line.executions.value || chosen.is_some_and(|(chosen, ..)| 0.0 < chosen.count)
}

/// The loops of an executed version, by the rows of their first and last instruction.
pub(super) fn loops(version: &Version, rows: &[Row<'_>]) -> Vec<Span> {
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
            .is_some_and(has_run)
    };
    let back = version.branches.iter().filter(|branch| branch.to <= branch.from);
    let taken = back.filter(|branch| ran(branch.from) && ran(branch.to) && branch.taken != Some(0));
    taken
        .filter_map(|branch| Some((row_of(branch.to)?, row_of(branch.from)?)))
        .collect()
}
