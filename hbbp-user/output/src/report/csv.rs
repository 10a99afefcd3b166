//! The mix as comma-separated values (RFC 4180, with line feeds), one line of titles first.
//!
//! It has the tables only: header, warnings and accounting are in the text and JSON reports. Several tables are separated
//! by an empty line.
//! Titles: the axes of the rows; for each column and the total `NAME`, `NAME_std_error`, `NAME_share` and the other figures
//! that are requested, `NAME_samples` and so on; `unit`.
//! Rows after `--top` are summed in the last line, so that the columns add up to the same totals.

use std::io::{self, Write};

use super::body::{Amount, Body, Figure, Figures};
use super::number::several;
use hbbp_analysis::mix::Value;
use hbbp_model::printable::csv_name;

/// Writes the tables.
pub(super) fn write(bodies: &[Body], out: &mut dyn Write) -> io::Result<()> {
    for (n, body) in bodies.iter().enumerate() {
        if 0 < n {
            writeln!(out)?;
        }
        table(body, out)?;
    }
    Ok(())
}

fn table(body: &Body, out: &mut dyn Write) -> io::Result<()> {
    let mut lines = csv::Writer::from_writer(out);
    let names = body.columns.iter().map(|key| csv_name(&key.join(", ")));
    let figures = names.chain(["total".to_owned()]).flat_map(|name| {
        let suffixed = FIGURES.iter().filter(|(value, ..)| is_shown(body, *value));
        suffixed.map(move |(_, suffix, _)| format!("{name}{suffix}"))
    });
    lines.write_record(body.by.iter().cloned().chain(figures).chain(["unit".to_owned()]))?;
    let unit = || [body.unit.id().to_owned()];
    for row in &body.rows {
        let keys = row.key.iter().map(|name| csv_name(name));
        lines.write_record(keys.chain(values(body, &row.figures)).chain(unit()))?;
    }
    if let Some(more) = &body.more {
        let title = format!("({})", several(more.n_rows, "more row"));
        let keys = std::iter::once(title)
            .chain(std::iter::repeat(String::new()))
            .take(body.by.len());
        lines.write_record(keys.chain(values(body, &more.figures)).chain(unit()))?;
    }
    lines.flush()
}

/// A column of figures: what asks for it (always there where nothing does), its suffix, and its text.
type FigureColumn = (Option<Value>, &'static str, fn(&Figure) -> String);

const FIGURES: [FigureColumn; 13] = [
    (None, "", |figure| match figure.amount {
        Amount::Samples(n) => n.to_string(),
        Amount::Estimate(n) => n.to_string(),
    }),
    (None, "_std_error", |figure| text(figure.std_error)),
    (None, "_share", |figure| figure.share.to_string()),
    (Some(Value::Samples), "_samples", |figure| text(figure.samples)),
    (Some(Value::Bytes), "_bytes", |figure| text(figure.bytes)),
    (Some(Value::Blocks), "_blocks", |figure| text(figure.blocks)),
    (Some(Value::Rate), "_rate", |figure| text(figure.rate)),
    (Some(Value::Time), "_time", |figure| text(figure.time)),
    (Some(Value::TimeShare), "_time_share", |figure| {
        text(figure.time_share)
    }),
    (Some(Value::Cpi), "_cpi", |figure| text(figure.cpi)),
    (Some(Value::Cpi), "_cpi_std_error", |figure| {
        text(figure.cpi_std_error)
    }),
    (Some(Value::Ipc), "_ipc", |figure| text(figure.ipc)),
    (Some(Value::Flops), "_flops", |figure| text(figure.flops)),
];

fn text(figure: Option<impl ToString>) -> String {
    figure.map(|figure| figure.to_string()).unwrap_or_default()
}

fn is_shown(body: &Body, value: Option<Value>) -> bool {
    value.is_none_or(|value| body.values.contains(&value))
}

fn values(body: &Body, figures: &Figures) -> impl Iterator<Item = String> {
    let figures = figures.cells.iter().chain([&figures.total]);
    figures.flat_map(|figure| {
        let shown = FIGURES.iter().filter(|(value, ..)| is_shown(body, *value));
        shown.map(|(.., text)| text(figure))
    })
}
