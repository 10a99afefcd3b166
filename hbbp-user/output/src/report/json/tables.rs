//! The tables of a report, and what became of its requirements, as JSON.

use serde::Serialize;

use super::super::body::{Body, Figure, Figures};
use super::unit::unit_id;
use hbbp_analysis::mix::Verdict;

/// What became of a requirement.
#[derive(Serialize)]
pub(super) struct RequirementJson<'a> {
    /// As the user wrote it.
    text: &'a str,
    /// `passed`, `undecided` or `failed`.
    outcome: &'static str,
    share: f64,
    std_error: Option<f64>,
    /// One-sided confidence bounds of the share.
    at_least: f64,
    at_most: f64,
    /// Samples or branch stacks of the measurement.
    samples: f64,
    /// Level of confidence of each bound, 0 to 1.
    confidence: f64,
}

/// A table.
#[derive(Serialize)]
pub(super) struct MixJson<'a> {
    /// Names of the axes of the rows.
    by: &'a [String],
    /// Names of the axes of the columns.
    columns_by: &'a [String],
    /// What the instructions of the table passed.
    filters: &'a [String],
    /// `executions`, `relative_executions`, `time_weighted_samples` or `event_weighted_samples`.
    unit: &'static str,
    /// What time is counted in, `cycles` or `ns`; missing where no figure needs it, or it was not sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_unit: Option<&'static str>,
    /// The values of each column, one for each of its axes.
    columns: &'a [Vec<String>],
    /// In the order that was requested.
    rows: Vec<RowJson<'a>>,
    /// The sum of the rows after `--top`; null if there are none.
    more: Option<MoreJson<'a>>,
    total: FiguresJson<'a>,
    /// The amount of the total if there were no filters.
    all: f64,
}

#[derive(Serialize)]
struct RowJson<'a> {
    /// One value for each axis of the rows.
    key: &'a [String],
    #[serde(flatten)]
    figures: FiguresJson<'a>,
}

#[derive(Serialize)]
struct MoreJson<'a> {
    n_rows: u64,
    #[serde(flatten)]
    figures: FiguresJson<'a>,
}

/// The figures of a line.
#[derive(Serialize)]
struct FiguresJson<'a> {
    #[serde(flatten)]
    cells: CellsJson<'a>,
    total: &'a Figure,
}

/// The figures of each column; rings have names, as this version had before there were other columns.
#[derive(Serialize)]
#[serde(untagged)]
enum CellsJson<'a> {
    Rings { kernel: &'a Figure, user: &'a Figure },
    Columns { cells: &'a [Figure] },
}

impl<'a> RequirementJson<'a> {
    pub(super) fn new(verdict: &'a Verdict) -> Self {
        Self {
            text: &verdict.text,
            outcome: verdict.outcome.name(),
            share: verdict.share,
            std_error: verdict.std_error,
            at_least: verdict.bounds.0,
            at_most: verdict.bounds.1,
            samples: verdict.samples,
            confidence: verdict.confidence,
        }
    }
}

impl<'a> MixJson<'a> {
    pub(super) fn new(body: &'a Body) -> Self {
        let by_ring = body.columns_by == ["ring"];
        let figures = |figures: &'a Figures| FiguresJson {
            cells: match figures.cells.as_slice() {
                [kernel, user] if by_ring => CellsJson::Rings { kernel, user },
                cells => CellsJson::Columns { cells },
            },
            total: &figures.total,
        };
        Self {
            by: &body.by,
            columns_by: &body.columns_by,
            filters: &body.filters,
            unit: body.unit.id(),
            time_unit: body.time_unit.map(unit_id),
            columns: &body.columns,
            rows: body
                .rows
                .iter()
                .map(|row| RowJson {
                    key: &row.key,
                    figures: figures(&row.figures),
                })
                .collect(),
            more: body.more.as_ref().map(|more| MoreJson {
                n_rows: more.n_rows,
                figures: figures(&more.figures),
            }),
            total: figures(&body.total),
            all: body.all,
        }
    }
}
