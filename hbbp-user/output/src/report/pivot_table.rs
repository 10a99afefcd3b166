//! A mix as a table of text, with as many figures and columns as the page is wide enough for.

mod caption;
mod shown;

use std::io;

use super::body::{Amount, Body, Figure, Figures};
use super::measured::Report;
use super::named::shown_names;
use super::number::{grouped, percent, scaled, several, shortened};
use super::page::Page;
use super::table::{Line, Table};
use caption::Caption;
use hbbp_analysis::mix::Value;
use hbbp_model::printable::harmless;

/// Most columns of a name above figures.
const TITLE: usize = 24;

/// Columns of figures that a page may have at most; more do not fit any terminal.
const MOST_COLUMNS: usize = 24;

/// Writes tables, each under its caption. Those of a view follow its sentence, and what the view finds nothing for is left out.
pub(super) fn write(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let mut said: Vec<Caption> = Vec::new();
    for body in &report.bodies {
        if !said.is_empty() && body.rows.is_empty() {
            continue;
        }
        if !said.is_empty() || report.view.is_some() {
            page.line("")?;
        }
        let body = body.clone().without_filtered_names();
        let caption = Caption::new(&body, report.view, report.wording);
        page.entry("", &caption.beyond(&said))?;
        rows(&body, page)?;
        said.push(caption);
    }
    Ok(())
}

fn rows(body: &Body, page: &mut Page<'_>) -> io::Result<()> {
    if body.rows.is_empty() && !body.filters.is_empty() {
        return page.entry("", "nothing that ran passes the filters");
    }
    let body = &body.without_empty_columns().in_shown_order();
    let keys: Vec<&[String]> = body.rows.iter().map(|row| row.key.as_slice()).collect();
    let by: Vec<&str> = body.by.iter().map(String::as_str).collect();
    let names = shown_names(&by, &keys, page.look.demangle);
    let shares = || body.rows.iter().map(|row| row.figures.total.exact_share);
    let greatest = shares().fold(0.0, f64::max);
    page.table(&fitting(body, &names, page.look.width), |row| {
        Some(shares().nth(row)? / greatest)
    })
}

/// The table with the most detail that fits; where none does, columns are summed.
fn fitting(body: &Body, names: &[Vec<String>], width: usize) -> Table {
    let n_columns = body.columns.len().min(MOST_COLUMNS);
    for n_columns in (0..=n_columns).rev() {
        let narrowed = body.narrowed(n_columns);
        let tables = Detail::levels(body).map(|detail| table(&narrowed, names, &detail));
        if let Some(table) = { tables }.find(|table| table.fits(width)) {
            return table;
        }
        // The rings are always shown.
        if body.columns_by == ["ring"] {
            break;
        }
    }
    let narrowest = Detail::levels(body).last();
    narrowest
        .map(|detail| table(body, names, &detail))
        .unwrap_or_default()
}

/// A column of numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    Amount,
    Error,
    Share,
    Other(Value),
}

/// Which numbers are shown.
struct Detail {
    /// Those of each column.
    column: Vec<Part>,
    /// Those of all columns together.
    total: Vec<Part>,
}

impl Detail {
    /// From all numbers to the fewest.
    fn levels(body: &Body) -> impl Iterator<Item = Self> {
        let has_errors = body.has_errors();
        let known = |value: &&Value| body.time_unit.is_some() || !value.is_of_time();
        let asked = body
            .values
            .iter()
            .filter(known)
            .flat_map(move |value| match value {
                Value::Executions if has_errors => vec![Part::Amount, Part::Error],
                Value::Executions => vec![Part::Amount],
                Value::Share => vec![Part::Share],
                other => vec![Part::Other(*other)],
            });
        let asked: Vec<Part> = asked.collect();
        let without = |dropped: &[Part]| -> Vec<Part> {
            let kept: Vec<Part> = asked
                .iter()
                .copied()
                .filter(|part| !dropped.contains(part))
                .collect();
            // A column of nothing says nothing.
            if kept.is_empty() {
                asked.iter().take(1).copied().collect()
            } else {
                kept
            }
        };
        let others: Vec<Part> = Value::ALL.iter().map(|value| Part::Other(*value)).collect();
        let levels: [(Vec<Part>, Vec<Part>); 6] = [
            (without(&[]), without(&[])),
            (without(&[Part::Error]), without(&[])),
            (without(&[Part::Error]), without(&[Part::Error])),
            (without(&[Part::Error, Part::Share]), without(&[Part::Error])),
            (
                without(&[&others[..], &[Part::Error, Part::Share]].concat()),
                without(&[Part::Error]),
            ),
            (
                without(&[&others[..], &[Part::Error, Part::Share]].concat()),
                without(&[Part::Error, Part::Share]),
            ),
        ];
        levels.into_iter().map(|(column, total)| Self { column, total })
    }
}

/// The mix with some of its numbers.
fn table(body: &Body, names: &[Vec<String>], detail: &Detail) -> Table {
    let titles = |name: &str, parts: &[Part]| -> Vec<String> {
        let name = shortened(&harmless(name), TITLE);
        let title = |(n, part): (usize, &Part)| match (n, part.title()) {
            (_, "") => name.clone(),
            (0, unit) => format!("{name} {unit}"),
            (_, unit) => unit.to_owned(),
        };
        parts.iter().enumerate().map(title).collect()
    };
    let columns = body.columns.iter();
    let columns = columns.flat_map(|key| titles(&key.join(", "), &detail.column));
    let numbers = |figures: &Figures| {
        let cells = figures.cells.iter().map(|figure| (figure, &detail.column));
        cells
            .chain([(&figures.total, &detail.total)])
            .flat_map(|(figure, parts)| parts.iter().map(|part| number(figure, *part)))
            .collect()
    };
    let n_names = body.by.len();
    let across = |name: String| {
        std::iter::once(name)
            .chain(std::iter::repeat(String::new()))
            .take(n_names)
            .collect()
    };
    let rows = body.rows.iter().zip(names);
    let rows = rows.map(|(row, names)| Line::Row(names.clone(), numbers(&row.figures)));
    let more = body.more.as_ref().map(|more| {
        let title = format!("({})", several(more.n_rows, "more row"));
        Line::Row(across(title), numbers(&more.figures))
    });
    let total = [
        Line::Rule,
        Line::Row(across("total".to_owned()), numbers(&body.total)),
    ];
    let mut table = Table {
        names: body.by.clone(),
        numbers: columns.chain(titles(&body.total_name, &detail.total)).collect(),
        lines: rows.chain(more).chain(total).collect(),
    };
    table.drop_numbers("");
    table
}

impl Part {
    /// The text above it; the amount has the name of the column.
    const fn title(self) -> &'static str {
        match self {
            Self::Amount => "",
            Self::Error => "±",
            Self::Share => "%",
            Self::Other(Value::Rate) => "per second",
            Self::Other(Value::TimeShare) => "time %",
            Self::Other(Value::Cpi) => "CPI",
            Self::Other(Value::Ipc) => "IPC",
            Self::Other(value) => value.name(),
        }
    }
}

/// One part of a figure as text.
fn number(figure: &Figure, part: Part) -> String {
    match (part, figure.amount, figure.std_error) {
        (Part::Share, ..) => percent(figure.exact_share),
        // Not nothing, though less than half a sample.
        (Part::Amount, Amount::Samples(0), _) if 0.0 < figure.exact_share => "<1".to_owned(),
        (Part::Amount, Amount::Samples(n), _) => grouped(n),
        (Part::Amount, Amount::Estimate(n), _) => scaled(n, 4),
        (Part::Error, _, None) => String::new(),
        (Part::Error, Amount::Samples(_), Some(error)) => format!("±{error:.0}"),
        (Part::Error, Amount::Estimate(_), Some(error)) => format!("±{}", scaled(error, 2)),
        (Part::Other(value), ..) => other(figure, value).unwrap_or_default(),
    }
}

/// A quotient to three decimals, with its error.
pub(super) fn per(value: f64, error: Option<f64>) -> String {
    match error {
        None => format!("{value:.3}"),
        Some(error) => format!("{value:.3} ±{error:.3}"),
    }
}

/// A count that an estimate made a fraction of.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "samples are counted, and casts saturate"
)]
fn whole(count: f64) -> String {
    grouped(count.round() as u64)
}

fn other(figure: &Figure, value: Value) -> Option<String> {
    Some(match value {
        Value::Executions | Value::Share => return None,
        Value::Samples => whole(figure.samples?),
        Value::Bytes => grouped(figure.bytes?),
        Value::Blocks => grouped(figure.blocks?),
        Value::Rate => scaled(figure.rate?, 4),
        Value::Time => scaled(figure.time?, 4),
        Value::TimeShare => percent(figure.time_share?),
        Value::Cpi => per(figure.cpi?, figure.cpi_std_error),
        Value::Ipc => per(figure.ipc?, None),
        Value::Flops => scaled(figure.flops?, 4),
    })
}
