//! The intervals of `hbbp-sys top --batch` as plain lines: one line of facts, the table, an empty line.

use std::io::{self, Write};

use super::draw::row_line;
use super::figures::Facts;
use super::row::Row;
use super::table::Table;
use crate::report::number::{grouped, percent};

/// Writes one interval, with the first `top` rows.
pub fn write_plain(
    facts: &Facts,
    table: &Table,
    top: usize,
    width: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let [kernel, _] = &facts.rings;
    let complete = facts
        .complete
        .map_or_else(String::new, |share| format!(", {} % complete", percent(share)));
    writeln!(
        out,
        "{:.1} s, {} samples{complete}, {} lost, kernel {} % of {}, overhead {} %",
        facts.duration as f64 / 1e9,
        grouped(facts.reached),
        grouped(facts.lost),
        percent(kernel.share),
        facts.unit,
        percent(facts.overhead),
    )?;
    writeln!(out, "{:>8}{:>8}{:>9}", "% share", "+/-", "% kernel")?;
    let rows: Vec<&Row> = table.rows.iter().take(top).collect();
    for (row, names) in rows.iter().zip(table.names(&rows)) {
        writeln!(out, "{}", row_line(row, &names, width))?;
    }
    writeln!(out)?;
    out.flush()
}
