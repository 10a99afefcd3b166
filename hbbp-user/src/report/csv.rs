//! The mix as comma-separated values (RFC 4180, with line feeds), one line of titles first.
//!
//! It has the table only: header, warnings and accounting are in the text and JSON reports.
//! Rows after `--top` are summed in the last line, so that the columns add up to the same totals.

use std::io::{self, Write};

use super::body::{Amount, Body, Figures};
use super::number::several;
use crate::printable::harmless;

/// Writes the mix.
pub(super) fn write(body: &Body, out: &mut dyn Write) -> io::Result<()> {
    const FIGURES: [&str; 9] = [
        "kernel",
        "kernel_std_error",
        "kernel_share",
        "user",
        "user_std_error",
        "user_share",
        "total",
        "total_std_error",
        "total_share",
    ];

    let mut lines = csv::Writer::from_writer(out);
    let keys = body.by.iter().map(|dimension| dimension.name().to_owned());
    lines.write_record(keys.chain(FIGURES.map(str::to_owned)).chain(["unit".to_owned()]))?;
    let unit = || [body.unit.id().to_owned()];
    for row in &body.rows {
        let keys = row.key.iter().map(|name| harmless(name));
        lines.write_record(keys.chain(values(&row.figures)).chain(unit()))?;
    }
    if let Some(more) = &body.more {
        let title = format!("({})", several(more.n_rows, "more row"));
        let keys = std::iter::once(title)
            .chain(std::iter::repeat(String::new()))
            .take(body.by.len());
        lines.write_record(keys.chain(values(&more.figures)).chain(unit()))?;
    }
    lines.flush()
}

fn values(figures: &Figures) -> impl Iterator<Item = String> {
    [figures.kernel, figures.user, figures.total]
        .into_iter()
        .flat_map(|figure| {
            let amount = match figure.amount {
                Amount::Samples(n) => n.to_string(),
                Amount::Estimate(n) => n.to_string(),
            };
            let std_error = figure
                .std_error
                .map(|error| error.to_string())
                .unwrap_or_default();
            [amount, std_error, figure.share.to_string()]
        })
}
