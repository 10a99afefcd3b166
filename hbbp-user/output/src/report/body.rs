//! The printed table of a mix, the same in every format: figures of each cell, the limit of `--top`, whole samples.
//!
//! Samples are whole numbers, and over all rows and columns they add up exactly to the samples in the mix.
//! Estimated executions are not rounded.

use serde::Serialize;

use hbbp_analysis::mix::{Cell, Filter, Mix, Unit, Value};
use hbbp_model::snapshot::EventUnit;

/// The printed mix.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Body {
    /// Names of the axes of the rows.
    pub(super) by: Vec<String>,
    /// Names of the axes of the columns.
    pub(super) columns_by: Vec<String>,
    /// What the instructions of the table passed.
    pub(super) filters: Vec<String>,
    /// Figures of each cell.
    pub(super) values: Vec<Value>,
    /// What the amounts are.
    pub(super) unit: Unit,
    /// What time is counted in, if it is requested and was sampled.
    pub(super) time_unit: Option<EventUnit>,
    /// The values of each column, one for each of its axes.
    pub(super) columns: Vec<Vec<String>>,
    /// What the column of all columns is called.
    pub(super) total_name: String,
    /// The rows within the limit.
    pub(super) rows: Vec<BodyRow>,
    /// The remainder, as one row.
    pub(super) more: Option<More>,
    /// The sum of all rows, including the remainder.
    pub(super) total: Figures,
    /// The amount of the total if there were no filters.
    pub(super) all: f64,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BodyRow {
    /// One value for each axis of the rows.
    pub(super) key: Vec<String>,
    /// Its figures.
    pub(super) figures: Figures,
}

/// The rows after the limit, summed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct More {
    /// Number of lines.
    pub(super) n_rows: u64,
    /// Their sum, without errors, and without bytes and blocks, which rows can share.
    pub(super) figures: Figures,
}

/// The figures of one line: by column, and all columns together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figures {
    pub(super) cells: Vec<Figure>,
    pub(super) total: Figure,
}

/// The figures of one cell. Figures that were not requested are `None`, and are left out of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    /// The amount.
    pub(super) amount: Amount,
    /// Its standard error in the same unit, where there is one.
    pub(super) std_error: Option<f64>,
    /// Its share of the column without filters, 0 to 1; 0 in an empty column.
    pub(super) share: f64,
    /// The same of the estimate before it was rounded to whole samples. Text shows it, so that shares do not depend on rounding.
    #[serde(skip)]
    pub(super) exact_share: f64,
    /// Samples or streams that it rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) samples: Option<f64>,
    /// Bytes of executed distinct instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    /// Distinct executed blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) blocks: Option<u64>,
    /// Amount per second of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<f64>,
    /// Time, in the unit of the table's time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<f64>,
    /// Its share of all time, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time_share: Option<f64>,
    /// Time for each execution; missing where executions are too few to divide by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpi: Option<f64>,
    /// Its standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpi_std_error: Option<f64>,
    /// Executions for each unit of time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ipc: Option<f64>,
    /// Floating-point operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flops: Option<f64>,
}

/// An amount in the unit of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Amount {
    /// Whole samples.
    Samples(u64),
    /// An estimate: executions, or the weight of an event.
    Estimate(f64),
}

/// One cell: the estimate, and its whole samples where samples are the unit.
#[derive(Clone, Copy, Debug)]
struct Part {
    cell: Cell,
    samples: Option<u64>,
}

/// The cells of a line, and all of them together.
#[derive(Clone, Debug)]
struct Parts {
    cells: Vec<Part>,
    total: Part,
}

/// What figures are computed with.
struct Scale<'a> {
    mix: &'a Mix,
    /// Estimates of whole columns without filters.
    exact_columns: Vec<f64>,
    /// Amounts of whole columns: without filters those that are printed, else estimates.
    columns: Vec<f64>,
    total: f64,
    /// Length of the run in ns.
    duration: u64,
}

impl Body {
    /// The first `top` rows of a mix (all if `None`), and the sum of the remainder; the run took `duration` ns.
    pub(super) fn new(mix: &Mix, top: Option<usize>, duration: u64) -> Self {
        let rows = rows(mix);
        let nothing = Parts::nothing(mix);
        let sum = |rows: &[Parts]| rows.iter().fold(nothing.clone(), |sum, row| sum.plus(row));
        let mut total = sum(&rows);
        total.total.cell = mix.total;
        for (part, column) in total.cells.iter_mut().zip(&mix.columns) {
            part.cell = column.total;
        }
        let all = |part: &Part, all: f64| {
            if mix.filters.is_empty() {
                part.amount().value()
            } else {
                all
            }
        };
        let scale = Scale {
            mix,
            columns: total
                .cells
                .iter()
                .zip(&mix.columns)
                .map(|(part, it)| all(part, it.all))
                .collect(),
            total: all(&total.total, mix.all.amount),
            exact_columns: mix.columns.iter().map(|column| column.all).collect(),
            duration,
        };
        let (first, remainder) = rows.split_at(top.unwrap_or(usize::MAX).min(rows.len()));
        let keys = mix.rows.iter().map(|row| row.key.clone());
        let shown = keys.zip(first).map(|(key, parts)| BodyRow {
            key,
            figures: scale.figures(parts),
        });
        let more = Some(remainder).filter(|rows| !rows.is_empty());
        let more = more.map(|rows| More {
            n_rows: rows.len() as u64,
            figures: scale.figures(&sum(rows)).without_distinct(),
        });
        let mut body = Self {
            by: mix.rows_by.iter().map(ToString::to_string).collect(),
            columns_by: mix.columns_by.iter().map(ToString::to_string).collect(),
            filters: mix.filters.iter().map(Filter::to_string).collect(),
            values: mix.values.clone(),
            unit: mix.unit,
            time_unit: mix.time_unit,
            columns: mix.columns.iter().map(|column| column.key.clone()).collect(),
            total_name: "total".to_owned(),
            rows: shown.collect(),
            more,
            total: scale.figures(&total),
            all: scale.total,
        };
        // Without axes the only column is the total.
        if mix.columns_by.is_empty() {
            body.keep_columns(0);
        }
        body
    }

    /// Whether any line has a standard error.
    pub(super) fn has_errors(&self) -> bool {
        self.rows.iter().any(|row| row.figures.total.std_error.is_some())
    }

    pub(super) fn keep_columns(&mut self, n_columns: usize) {
        self.columns.truncate(n_columns);
        self.lines_mut()
            .for_each(|figures| figures.cells.truncate(n_columns));
    }

    pub(super) fn lines_mut(&mut self) -> impl Iterator<Item = &mut Figures> {
        let rows = self.rows.iter_mut().map(|row| &mut row.figures);
        let more = self.more.iter_mut().map(|more| &mut more.figures);
        rows.chain(more).chain([&mut self.total])
    }
}

/// All lines of a mix, with whole samples where these are its unit.
fn rows(mix: &Mix) -> Vec<Parts> {
    let samples = mix.whole_samples();
    let of_row = |at: usize| samples.as_ref().and_then(|samples| samples.get(at));
    let row = |(at, row): (usize, &hbbp_analysis::mix::Row)| {
        let whole = of_row(at);
        let cells = row.cells.iter().enumerate().map(|(column, cell)| Part {
            cell: *cell,
            samples: whole.map(|whole| whole.get(column).copied().unwrap_or(0)),
        });
        Parts {
            cells: cells.collect(),
            total: Part {
                cell: row.total,
                samples: whole.map(|whole| whole.iter().sum()),
            },
        }
    };
    mix.rows.iter().enumerate().map(row).collect()
}

/// An error to four digits: more are not significant, and the last ones depend on the machine.
fn significant(error: f64) -> f64 {
    format!("{error:.3e}").parse().unwrap_or(error)
}

impl Scale<'_> {
    fn figures(&self, parts: &Parts) -> Figures {
        let cells = parts
            .cells
            .iter()
            .zip(self.columns.iter().zip(&self.exact_columns));
        let cells =
            cells.map(|(part, (whole, exact))| self.figure(part, *whole).with_exact_share(part, *exact));
        let total = self.figure(&parts.total, self.total);
        Figures {
            cells: cells.collect(),
            total: total.with_exact_share(&parts.total, self.mix.all.amount),
        }
    }

    /// The figures of a cell in a column with this amount.
    fn figure(&self, part: &Part, whole: f64) -> Figure {
        /// ns in a second.
        const SECOND: f64 = 1e9;

        let asked = |value| self.mix.values.contains(&value);
        let cell = &part.cell;
        let (amount, cpi) = (part.amount(), cell.cpi());
        // What is left of a column by filters is not a whole number of samples.
        let of_whole = if self.mix.filters.is_empty() {
            amount.value()
        } else {
            cell.amount
        };
        Figure {
            amount,
            std_error: cell.std_error.map(significant),
            share: if 0.0 < whole { of_whole / whole } else { 0.0 },
            exact_share: 0.0,
            samples: asked(Value::Samples).then_some(cell.samples),
            bytes: asked(Value::Bytes).then_some(cell.bytes),
            blocks: asked(Value::Blocks).then_some(cell.blocks),
            rate: asked(Value::Rate).then(|| amount.value() * SECOND / (self.duration.max(1) as f64)),
            time: cell.time.filter(|_| asked(Value::Time)).map(|time| time.value),
            time_share: cell.time.filter(|_| asked(Value::TimeShare)).map(|time| {
                let all = self.mix.all.time.map_or(0.0, |all| all.value);
                if 0.0 < all { time.value / all } else { 0.0 }
            }),
            cpi: cpi.filter(|_| asked(Value::Cpi)).map(|cpi| cpi.value),
            cpi_std_error: cpi
                .filter(|_| asked(Value::Cpi))
                .map(|cpi| significant(cpi.std_error)),
            ipc: cpi
                .filter(|_| asked(Value::Ipc))
                .map(|cpi| 1.0 / cpi.value)
                .filter(|ipc| ipc.is_finite()),
            flops: asked(Value::Flops).then_some(cell.flops),
        }
    }
}

impl Figures {
    /// Without what rows can share.
    fn without_distinct(mut self) -> Self {
        for figure in self.cells.iter_mut().chain([&mut self.total]) {
            (figure.bytes, figure.blocks) = (None, None);
        }
        self
    }
}

impl Figure {
    /// The same with the share that an estimate has of a whole.
    fn with_exact_share(mut self, part: &Part, whole: f64) -> Self {
        self.exact_share = if 0.0 < whole {
            part.cell.amount / whole
        } else {
            0.0
        };
        self
    }

    /// Two columns of a row as one.
    pub(super) fn plus(self, other: Self) -> Self {
        let both = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
        Self {
            amount: match (self.amount, other.amount) {
                (Amount::Samples(a), Amount::Samples(b)) => Amount::Samples(a.saturating_add(b)),
                (a, b) => Amount::Estimate(a.value() + b.value()),
            },
            std_error: None,
            share: 0.0,
            exact_share: 0.0,
            samples: both(self.samples, other.samples),
            bytes: None,
            blocks: None,
            rate: both(self.rate, other.rate),
            time: both(self.time, other.time),
            time_share: both(self.time_share, other.time_share),
            cpi: None,
            cpi_std_error: None,
            ipc: None,
            flops: both(self.flops, other.flops),
        }
    }
}

impl Part {
    fn plus(self, other: Self) -> Self {
        let samples = self.samples.zip(other.samples).map(|(a, b)| a.saturating_add(b));
        let (a, b) = (self.cell, other.cell);
        let cell = Cell {
            amount: a.amount + b.amount,
            // Rows can share blocks, so their errors are not independent; only the mix can compute that of a sum.
            std_error: None,
            by_chance: None,
            samples: a.samples + b.samples,
            flops: a.flops + b.flops,
            time: a.time.zip(b.time).map(|(a, b)| a.plus(b)).or(a.time).or(b.time),
            bytes: 0,
            blocks: 0,
        };
        Self { cell, samples }
    }

    fn amount(&self) -> Amount {
        self.samples
            .map_or(Amount::Estimate(self.cell.amount), Amount::Samples)
    }
}

impl Parts {
    /// Zero in every column. Samples are an integer if they are the unit.
    fn nothing(mix: &Mix) -> Self {
        let nothing = Part {
            cell: Cell::default(),
            samples: mix.unit.is_samples().then_some(0),
        };
        Self {
            cells: vec![nothing; mix.columns.len()],
            total: nothing,
        }
    }

    fn plus(self, other: &Self) -> Self {
        let cells = self.cells.into_iter().zip(&other.cells);
        Self {
            cells: cells.map(|(a, b)| a.plus(*b)).collect(),
            total: self.total.plus(other.total),
        }
    }
}

impl Amount {
    /// The amount as a number to compute with.
    pub(super) const fn value(self) -> f64 {
        match self {
            Self::Samples(n) => n as f64,
            Self::Estimate(n) => n,
        }
    }
}
