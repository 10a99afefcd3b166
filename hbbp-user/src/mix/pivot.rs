//! The pivot: amounts of all instructions of all blocks, summed by key (paper section V.B).
//!
//! Each block is reduced to its number of instructions of each key; its count is then added to the rows of these keys.
//! Bootstrap replicates of the stacks are pivoted the same way, which gives each row its variance between stacks.

use std::collections::HashMap;

use super::error::Sum;
use super::keys::{Keys, RowIdx};
use super::{Dimension, Mix, Row};
use crate::addr::Ring;
use crate::estimate::{BlockCount, BlockCounts, Method, Part};
use crate::snapshot::ProcessIdx;

/// Sums up a mix.
pub(super) fn pivot<'a>(counts: &'a BlockCounts, by: &[Dimension], keys: Keys<'a>) -> Mix {
    let mut table = Table {
        counts,
        keys,
        rows: Vec::new(),
        total: Default::default(),
    };
    table.add_parts();
    table.add_stacks();
    let cells = |sums: &Sums| sums.each_ref().map(|sum| sum.cell(counts));
    let row = |(idx, sums): (usize, &Sums)| {
        let [kernel, user, both] = cells(sums);
        Row {
            key: table.keys.values(idx),
            kernel,
            user,
            both,
        }
    };
    let mut rows: Vec<Row> = table.rows.iter().enumerate().map(row).collect();
    rows.sort_by(|a, b| {
        b.both
            .amount
            .total_cmp(&a.both.amount)
            .then_with(|| a.key.cmp(&b.key))
    });
    let [kernel, user, both] = cells(&table.total);
    Mix {
        by: by.to_vec(),
        unit: counts.assignment.unit,
        rows,
        kernel,
        user,
        both,
    }
}

/// The sums of a row: kernel, user, and both; the error of the last is not that of two independent sums.
type Sums = [Sum; 3];

/// The column of both rings together.
const BOTH: usize = 2;

/// The sums of all rows.
struct Table<'a> {
    counts: &'a BlockCounts,
    keys: Keys<'a>,
    rows: Vec<Sums>,
    total: Sums,
}

const fn column(ring: Ring) -> usize {
    match ring {
        Ring::Kernel => 0,
        Ring::User => 1,
    }
}

impl Table<'_> {
    /// Adds the count of each block, by process image.
    fn add_parts(&mut self) {
        for part in &self.counts.parts {
            let Some(block) = self.counts.blocks.get(part.block) else {
                continue;
            };
            let (method, column) = (block.method, column(block.ring));
            for &(row, instructions) in self.keys.rows_of(block, part.process) {
                if self.rows.len() <= row {
                    self.rows.resize_with(row + 1, Sums::default);
                }
                if let Some(sums) = self.rows.get_mut(row) {
                    add(sums, column, part, method, instructions, self.counts);
                }
            }
            let instructions = f64::from(block.instructions);
            add(&mut self.total, column, part, method, instructions, self.counts);
        }
    }

    /// Adds the contribution of each resampled stack to the blocks that are counted by LBR.
    fn add_stacks(&mut self) {
        let mut known: HashMap<(usize, ProcessIdx), Vec<(RowIdx, f64)>> = HashMap::new();
        let mut shown = Shown::new(self.rows.len());
        for replicate in &self.counts.replicates {
            for run in &replicate.runs {
                let blocks = self.counts.blocks.get(run.blocks.clone()).unwrap_or_default();
                let numbered = blocks.iter().zip(run.blocks.clone());
                for (block, number) in numbered.filter(|(block, _)| block.method == Method::Lbr) {
                    let rows = known.entry((number, run.process));
                    let rows = rows.or_insert_with(|| self.keys.rows_of(block, run.process).to_vec());
                    shown.add(block, run.times, rows);
                }
            }
            shown.empty_into(replicate.phase, &mut self.rows, &mut self.total);
        }
    }
}

fn add(sums: &mut Sums, column: usize, part: &Part, method: Method, instructions: f64, counts: &BlockCounts) {
    for column in [column, BOTH] {
        if let Some(sum) = sums.get_mut(column) {
            sum.add(part, method, instructions, counts);
        }
    }
}

/// The contribution of one stack to each row and to the totals, in instructions.
struct Shown {
    /// Three for each row, as in [`Sums`].
    amounts: Vec<f64>,
    /// Which of them are not zero.
    touched: Vec<usize>,
    total: [f64; 3],
}

impl Shown {
    fn new(n_rows: usize) -> Self {
        Self {
            amounts: vec![0.0; 3 * n_rows],
            touched: Vec::new(),
            total: [0.0; 3],
        }
    }

    fn add(&mut self, block: &BlockCount, times: f64, rows: &[(RowIdx, f64)]) {
        for column in [column(block.ring), BOTH] {
            for (row, instructions) in rows {
                let at = 3 * row + column;
                if let Some(amount) = self.amounts.get_mut(at) {
                    if *amount <= 0.0 {
                        self.touched.push(at);
                    }
                    *amount += times * instructions;
                }
            }
            if let Some(total) = self.total.get_mut(column) {
                *total += times * f64::from(block.instructions);
            }
        }
    }

    fn empty_into(&mut self, phase: usize, rows: &mut [Sums], total: &mut Sums) {
        for at in self.touched.drain(..) {
            let sum = rows.get_mut(at / 3).and_then(|sums| sums.get_mut(at % 3));
            if let (Some(sum), Some(amount)) = (sum, self.amounts.get_mut(at)) {
                sum.add_stack(phase, *amount);
                *amount = 0.0;
            }
        }
        for (sum, amount) in total.iter_mut().zip(&mut self.total) {
            if 0.0 < *amount {
                sum.add_stack(phase, *amount);
                *amount = 0.0;
            }
        }
    }
}
