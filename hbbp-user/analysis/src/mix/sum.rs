//! Mixes of several runs added up: runs are independent, so their errors add up in squares. What corrections may have left is
//! alike in all of them, and adds up as it is.

use std::collections::BTreeMap;

use super::pivot::{is_by_ring, sort};
use super::{Cell, Column, Mix, Query, Row};

/// A key: one value for each axis.
type Key = Vec<String>;

/// The sum of the answers of several runs to one query; they have one unit.
///
/// Code of several runs is not matched, so bytes and blocks of distinct code are those of the run with most.
pub fn sum(query: &Query, mixes: impl Iterator<Item = Mix>) -> Mix {
    let mut mixes = mixes.peekable();
    let Some(first) = mixes.next() else {
        return Mix::empty(query);
    };
    if mixes.peek().is_none() {
        return first;
    }
    let (unit, time_unit) = (first.unit, first.time_unit);
    let mut sums = Sums::default();
    for mix in [first].into_iter().chain(mixes) {
        sums.add(mix);
    }
    let mut columns: Vec<Column> = sums.columns.into_values().collect();
    if !is_by_ring(query) {
        columns.sort_by(|a, b| {
            let falling = b.total.amount.total_cmp(&a.total.amount);
            falling.then_with(|| a.key.cmp(&b.key))
        });
    }
    let row = |(key, (cells, total)): (Key, (BTreeMap<Key, Cell>, Cell))| Row {
        key,
        cells: columns
            .iter()
            .map(|column| cells.get(&column.key).copied().unwrap_or_default())
            .collect(),
        total,
    };
    let mut rows: Vec<Row> = sums.rows.into_iter().map(row).collect();
    sort(&mut rows, &columns, &query.sort);
    Mix {
        unit,
        time_unit,
        columns,
        rows,
        total: sums.total,
        all: sums.all,
        ..Mix::empty(query)
    }
}

/// The sums by key.
#[derive(Default)]
struct Sums {
    columns: BTreeMap<Key, Column>,
    /// The cells of each row by column, and their total.
    rows: BTreeMap<Key, (BTreeMap<Key, Cell>, Cell)>,
    total: Cell,
    all: Cell,
}

impl Sums {
    fn add(&mut self, mix: Mix) {
        self.total = self.total.plus(mix.total);
        self.all = self.all.plus(mix.all);
        let keys: Vec<Key> = mix.columns.iter().map(|column| column.key.clone()).collect();
        for column in mix.columns {
            let sum = self.columns.entry(column.key.clone()).or_insert_with(|| Column {
                key: column.key,
                total: Cell::default(),
                all: 0.0,
            });
            sum.total = sum.total.plus(column.total);
            sum.all += column.all;
        }
        for row in mix.rows {
            let (cells, total) = self.rows.entry(row.key).or_default();
            *total = total.plus(row.total);
            for (key, cell) in keys.iter().zip(row.cells) {
                let sum = cells.entry(key.clone()).or_default();
                *sum = sum.plus(cell);
            }
        }
    }
}

impl Cell {
    /// The sum of two cells of different runs.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        let errors = [self, other].map(|cell| cell.std_error.zip(cell.by_chance));
        let (std_error, by_chance) = match errors {
            [Some(a), Some(b)] => {
                let left = |(all, by_chance): (f64, f64)| (all * all - by_chance * by_chance).max(0.0).sqrt();
                let by_chance = a.1.hypot(b.1);
                Some((by_chance.hypot(left(a) + left(b)), by_chance))
            }
            [a, b] => a.or(b),
        }
        .unzip();
        Self {
            amount: self.amount + other.amount,
            std_error,
            by_chance,
            samples: self.samples + other.samples,
            flops: self.flops + other.flops,
            time: match (self.time, other.time) {
                (Some(a), Some(b)) => Some(a.plus(b)),
                (a, b) => a.or(b),
            },
            bytes: self.bytes.max(other.bytes),
            blocks: self.blocks.max(other.blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sampling error of two runs adds up in squares, and what corrections leave as it is.
    #[test]
    fn sampling_errors_add_in_squares_and_biases_linearly() {
        let cell = |std_error, by_chance| Cell {
            std_error: Some(std_error),
            by_chance: Some(by_chance),
            ..Cell::default()
        };
        let sum = cell(5.0, 3.0).plus(cell(13.0, 12.0)).plus(Cell::default());
        assert_eq!(sum.by_chance, Some(3.0_f64.hypot(12.0)));
        assert_eq!(sum.std_error, Some(3.0_f64.hypot(12.0).hypot(4.0 + 5.0)));
    }
}
