//! The pivot: amounts of all instructions of all blocks, summed by key (paper section V.B).
//!
//! Each block is reduced to how many instructions it has of each key; its count is then added to the rows of these keys.
//! The stacks that were drawn anew go the same way, so that each row knows how much it differs from stack to stack.

use std::collections::HashMap;

use super::error::Sum;
use super::keys::{Keys, RowIdx};
use super::{Cell, Dimension, Mix, Row};
use crate::addr::Ring;
use crate::estimate::{BlockCount, BlockCounts, Ran, Source};
use crate::snapshot::ProcessIdx;

/// Sums up a mix.
pub(super) fn pivot<'a>(counts: &'a BlockCounts, by: &[Dimension], keys: Keys<'a>) -> Mix {
    let mut table = Table {
        counts,
        keys,
        rows: Vec::new(),
        total: [Sum::default(); 2],
    };
    table.add_parts();
    table.add_stacks();
    let cell = |sums: &[Sum; 2], ring: Ring| {
        sums.get(column(ring))
            .map_or(Cell::default(), |sum| sum.cell(counts))
    };
    let row = |(idx, sums): (usize, &[Sum; 2])| Row {
        key: table.keys.values(idx),
        kernel: cell(sums, Ring::Kernel),
        user: cell(sums, Ring::User),
    };
    let mut rows: Vec<Row> = table.rows.iter().enumerate().map(row).collect();
    rows.sort_by(|a, b| {
        b.total()
            .amount
            .total_cmp(&a.total().amount)
            .then_with(|| a.key.cmp(&b.key))
    });
    Mix {
        by: by.to_vec(),
        unit: counts.roles.unit,
        rows,
        kernel: cell(&table.total, Ring::Kernel),
        user: cell(&table.total, Ring::User),
    }
}

/// The sums of all rows, for both rings each.
struct Table<'a> {
    counts: &'a BlockCounts,
    keys: Keys<'a>,
    rows: Vec<[Sum; 2]>,
    total: [Sum; 2],
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
            let (source, column) = (block.source, column(block.ring));
            let design_effect = self.counts.design_effect(source);
            for &(row, instructions) in self.keys.rows_of(block, part.process) {
                if self.rows.len() <= row {
                    self.rows.resize(row + 1, [Sum::default(); 2]);
                }
                if let Some(sum) = self.rows.get_mut(row).and_then(|sums| sums.get_mut(column)) {
                    sum.add(part, source, instructions, design_effect);
                }
            }
            if let Some(total) = self.total.get_mut(column) {
                total.add(part, source, f64::from(block.instructions), design_effect);
            }
        }
    }

    /// Adds what each drawn stack shows of the blocks that are counted by LBR.
    fn add_stacks(&mut self) {
        let mut known: HashMap<(usize, ProcessIdx), Vec<(RowIdx, f64)>> = HashMap::new();
        let mut shown = Shown::new(self.rows.len());
        for stack in &self.counts.resampled.stacks {
            for ran in stack {
                let Some(block) = self.counts.blocks.get(ran.block) else {
                    continue;
                };
                if block.source == Source::Lbr {
                    let rows = known.entry((ran.block, ran.process));
                    let rows = rows.or_insert_with(|| self.keys.rows_of(block, ran.process).to_vec());
                    shown.add(block, ran, rows);
                }
            }
            shown.empty_into(&mut self.rows, &mut self.total);
        }
    }
}

/// What one stack shows of each row and of the totals, in instructions.
struct Shown {
    /// Two for each row, one for each ring.
    amounts: Vec<f64>,
    /// Which of them are not zero.
    touched: Vec<usize>,
    total: [f64; 2],
}

impl Shown {
    fn new(n_rows: usize) -> Self {
        Self {
            amounts: vec![0.0; 2 * n_rows],
            touched: Vec::new(),
            total: [0.0; 2],
        }
    }

    fn add(&mut self, block: &BlockCount, ran: &Ran, rows: &[(RowIdx, f64)]) {
        let column = column(block.ring);
        for (row, instructions) in rows {
            let at = 2 * row + column;
            if let Some(amount) = self.amounts.get_mut(at) {
                if *amount <= 0.0 {
                    self.touched.push(at);
                }
                *amount += ran.times * instructions;
            }
        }
        if let Some(total) = self.total.get_mut(column) {
            *total += ran.times * f64::from(block.instructions);
        }
    }

    fn empty_into(&mut self, rows: &mut [[Sum; 2]], total: &mut [Sum; 2]) {
        for at in self.touched.drain(..) {
            let sum = rows.get_mut(at / 2).and_then(|sums| sums.get_mut(at % 2));
            if let (Some(sum), Some(amount)) = (sum, self.amounts.get_mut(at)) {
                sum.add_stack(*amount);
                *amount = 0.0;
            }
        }
        for (sum, amount) in total.iter_mut().zip(&mut self.total) {
            if 0.0 < *amount {
                sum.add_stack(*amount);
                *amount = 0.0;
            }
        }
    }
}
