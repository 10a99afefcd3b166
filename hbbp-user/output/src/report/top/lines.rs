//! The lines of the table as text, on the screen and without one: figures, and one or two names next to them.

use super::row::Row;
use crate::report::number::{columns, percent, shortened};
use hbbp_analysis::mix::Unit;
use hbbp_model::names::file_name;

/// The columns of figures: share, error, kernel's part.
const FIGURES: usize = 29;

/// Columns that a second name has at least.
const SECOND_NAME: usize = 12;

/// The titles of the figures; the first one says what the shares are of.
pub(super) fn titles(unit: Unit) -> String {
    let share = match unit {
        Unit::Executions | Unit::RelativeExecutions => "% of instr",
        Unit::TimeWeightedSamples => "% of time",
        Unit::EventWeightedSamples => "% of event",
    };
    format!("{share:>10}{:>8}{:>9}", "+/-", "% kernel")
}

/// Columns of the first of two names on a line of `width`: the number that the widest needs, so that the second one is next to it.
pub(super) fn name_width(names: &[Vec<String>], width: usize) -> usize {
    let room = width.saturating_sub(FIGURES);
    let first = names.iter().filter_map(|names| names.first());
    let first = first.map(|name| columns(name)).max().unwrap_or(0);
    let second = names.iter().filter_map(|names| names.get(1));
    let second = second.map(|name| columns(file_name(name))).max().unwrap_or(0);
    // The second name is the shorter one as a rule.
    let second = second.min(SECOND_NAME.max(room * 2 / 5));
    first.min(room.saturating_sub(second + GAP))
}

/// Blanks between two names.
const GAP: usize = 2;

/// A row as text of at most `width` columns, the first of two names in `name_width` of them.
pub(super) fn row_line(row: &Row, names: &[String], name_width: usize, width: usize) -> String {
    let figures = format!(
        "{:>10}{:>8}{:>9}  ",
        percent(row.share),
        percent(row.error),
        percent(row.kernel)
    );
    let room = width.saturating_sub(FIGURES);
    let line = match names {
        [name, of] => {
            let name = shortened(name, name_width);
            let gap = name_width.saturating_sub(columns(&name)) + GAP;
            let of = shortened(file_name(of), room.saturating_sub(name_width + GAP));
            format!("{figures}{name}{}{of}", " ".repeat(gap))
        }
        names => figures + &shortened(&names.join("  "), room),
    };
    cut(&line, width)
}

/// The beginning of a text, at most `width` columns of it.
pub(super) fn cut(text: &str, width: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += columns(c.encode_utf8(&mut [0; 4]));
        used <= width
    };
    text.chars().take_while(fits).collect()
}
