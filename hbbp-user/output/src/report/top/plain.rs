//! The intervals of `hbbp-sys top --batch` as plain lines: why there are no executions, one line of facts, the table, an
//! empty line.

use std::io::{self, Write};

use super::figures::Facts;
use super::lines::{name_width, row_line, titles};
use super::row::Row;
use super::table::Table;
use crate::report::look::Look;
use crate::report::number::{grouped, percent};
use crate::report::page::Page;

/// Writes one interval, with the first `top` rows.
pub fn write_plain(
    facts: &Facts,
    table: &Table,
    top: usize,
    look: Look,
    out: &mut dyn Write,
) -> io::Result<()> {
    let page = &mut Page { look, out };
    let [kernel, _] = &facts.rings;
    let complete = facts
        .complete
        .map_or_else(String::new, |share| format!(", {} % complete", percent(share)));
    if let Some(sentence) = &facts.without_executions {
        page.entry("", sentence)?;
    }
    let facts_in_a_line = format!(
        "{:.1} s, {} samples{complete}, {} lost, kernel {} % of {}, overhead {} %",
        facts.duration as f64 / 1e9,
        grouped(facts.reached),
        grouped(facts.lost),
        percent(kernel.share),
        facts.unit.noun(),
        percent(facts.overhead),
    );
    page.print(&facts_in_a_line)?;
    page.print(&titles(facts.unit))?;
    let rows: Vec<&Row> = table.rows.iter().take(top).collect();
    let names = table.names(&rows);
    let name_width = name_width(&names, look.width);
    for (row, names) in rows.iter().zip(&names) {
        page.print(&row_line(row, names, name_width, look.width))?;
    }
    page.print("")?;
    page.out.flush()
}
