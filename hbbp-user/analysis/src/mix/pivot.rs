//! The pivot: amounts of all instructions of all blocks, summed by rows and columns (paper section V.B).
//!
//! Each block is reduced to its number of instructions in each sum: cells, rows, columns and totals alike; its count is then
//! added to these. So every sum has its own standard error: those of the cells of a row are not independent.
//! Bootstrap replicates of the stacks are pivoted the same way, which gives each sum its variance between stacks.
//! Without filters, each instruction is in one row and one column, so that every pivot of a profile has the same total.

use std::cmp::Ordering;
use std::collections::HashMap;

use hashbrown::DefaultHashBuilder;

use super::error::Sum;
use super::keys::{Addend, Keys, SumOf};
use super::query::{Query, Sort};
use super::{Cell, Column, Dimension, Mix, Row, Value};
use crate::time::Time;
use crate::touched::TouchedSums;
use hbbp_code::blocks::{BlockId, BlockMap};
use hbbp_code::locate::TextIdx;
use hbbp_estimate::{BlockCount, BlockCounts, Method, ring};
use hbbp_model::snapshot::{ProcessIdx, Snapshot};

/// Sums up a mix.
pub(super) fn pivot<'a>(
    snapshot: &'a Snapshot,
    map: &'a BlockMap,
    counts: &'a BlockCounts,
    time: Option<&'a Time>,
    query: &Query,
    keys: Keys<'a>,
) -> Mix {
    let mut table = Table {
        snapshot,
        map,
        counts,
        time,
        keys,
        sums: Vec::new(),
    };
    table.add_parts();
    table.add_stacks();
    table.add_slices();
    table.add_landed();
    if let Some(time) = time {
        table.add_time(time);
    }
    table.sums.resize_with(table.keys.sums().len(), Sum::default);
    table.mix(query)
}

/// The sums of all cells, rows, columns, and totals.
struct Table<'a> {
    snapshot: &'a Snapshot,
    map: &'a BlockMap,
    counts: &'a BlockCounts,
    /// Where it is asked for.
    time: Option<&'a Time>,
    keys: Keys<'a>,
    sums: Vec<Sum>,
}

impl Table<'_> {
    /// Adds the count of each block, by process image.
    fn add_parts(&mut self) {
        for part in &self.counts.parts {
            let Some(block) = self.counts.blocks.get(part.block) else {
                continue;
            };
            for addend in self.keys.addends(block, part) {
                if self.sums.len() <= addend.sum {
                    self.sums.resize_with(addend.sum + 1, Sum::default);
                }
                if let Some(sum) = self.sums.get_mut(addend.sum) {
                    sum.add(part, block, addend, self.counts);
                }
            }
        }
        self.sums.resize_with(self.keys.sums().len(), Sum::default);
    }

    /// Adds the contribution of each resampled stack to the blocks that are counted by LBR.
    fn add_stacks(&mut self) {
        let mut known: HashMap<(usize, ProcessIdx), Vec<Addend>, DefaultHashBuilder> = HashMap::default();
        let mut touched = TouchedSums::new(self.sums.len());
        for replicate in &self.counts.chance.replicates {
            for run in &replicate.runs {
                let blocks = self.counts.blocks.get(run.blocks.clone()).unwrap_or_default();
                let numbered = blocks.iter().zip(run.blocks.clone());
                for (block, number) in numbered.filter(|(block, _)| block.method == Method::Lbr) {
                    let addends = known.entry((number, run.process));
                    let addends =
                        addends.or_insert_with(|| self.keys.addends_of(block, run.process, None).to_vec());
                    for addend in addends {
                        // A replicate executes nothing that no part has.
                        touched.add(addend.sum, run.times * addend.instructions);
                    }
                }
            }
            for (sum, amount) in touched.take() {
                if let Some(sum) = self.sums.get_mut(sum) {
                    sum.add_stack(replicate.phase, amount);
                }
            }
        }
    }

    /// Adds the samples of each time slice, where figures are samples.
    fn add_slices(&mut self) {
        let mut touched = TouchedSums::new(self.sums.len());
        let slices = self.counts.waited.iter().flat_map(|waited| &waited.slices);
        for (nth, slice) in slices.enumerate() {
            for (part, samples) in slice {
                let part = self.counts.parts.get(*part);
                let block = part.and_then(|part| self.counts.blocks.get(part.block));
                if let Some((part, block)) = part.zip(block) {
                    for addend in self.keys.addends(block, part) {
                        touched.add(addend.sum, *samples);
                    }
                }
            }
            for (sum, samples) in touched.take() {
                if let Some(sum) = self.sums.get_mut(sum) {
                    sum.add_slice(self.counts, nth, samples);
                }
            }
        }
    }

    /// Adds the samples where they lie, where figures are samples.
    fn add_landed(&mut self) {
        for ip in self.counts.waited.iter().flat_map(|waited| &waited.landed) {
            let text = self.map.text(ip.location.text);
            if let Some(Ok(at)) = text.map(|text| text.find(ip.location.addr)) {
                let place = (ip.location.text, at);
                self.add_at(place, ip.process, |sum| sum.add_landed(ip.hits));
            }
        }
    }

    /// Adds the time at each instruction, also of blocks that no method saw.
    fn add_time(&mut self, time: &Time) {
        for spent in &time.spent {
            let place = (spent.text, spent.instruction);
            self.add_at(place, spent.process, |sum| sum.add_time(spent));
        }
    }

    /// Adds to all sums that an instruction is in when `process` runs it.
    fn add_at(&mut self, (idx, instruction): (TextIdx, u32), process: ProcessIdx, add: impl Fn(&mut Sum)) {
        let Some(text) = self.map.text(idx) else {
            return;
        };
        let id = BlockId {
            text: idx,
            block: text.block_of(instruction),
        };
        let range = text.block(id.block);
        let found = self.counts.blocks.binary_search_by_key(&id, |count| count.block);
        let found = found
            .ok()
            .and_then(|found| self.counts.blocks.get(found))
            .copied();
        let unseen = || {
            let ring = ring(self.snapshot, self.map, idx);
            BlockCount::unseen(id, ring, range.end - range.start)
        };
        let at = instruction.saturating_sub(range.start) as usize;
        let sums = self.keys.sums_at(&found.unwrap_or_else(unseen), process, at);
        for sum in sums.iter().copied() {
            if self.sums.len() <= sum {
                self.sums.resize_with(sum + 1, Sum::default);
            }
            if let Some(sum) = self.sums.get_mut(sum) {
                add(sum);
            }
        }
    }

    fn mix(self, query: &Query) -> Mix {
        let sums = self.keys.sums().zip(&self.sums);
        let cells: HashMap<SumOf, Cell, DefaultHashBuilder> = sums
            .map(|(of, sum)| (of, sum.cell(self.counts, self.time)))
            .collect();
        let cell = |of: SumOf| cells.get(&of).copied().unwrap_or_default();
        let (rows, columns) = self.keys.into_rows_and_columns();
        let mut columns: Vec<(u32, Column)> = (0..)
            .zip(columns)
            .map(|(number, key)| {
                let column = Column {
                    key,
                    total: cell(SumOf::Column(number)),
                    all: cell(SumOf::AllInColumn(number)).amount,
                };
                (number, column)
            })
            // Columns that the filters leave empty are not shown, except those of the rings.
            .filter(|(_, column)| 0.0 < column.total.amount || is_by_ring(query))
            .collect();
        if !is_by_ring(query) {
            columns.sort_by(|(_, a), (_, b)| {
                falling(a.total.amount, b.total.amount).then_with(|| a.key.cmp(&b.key))
            });
        }
        let mut rows: Vec<Row> = (0..)
            .zip(rows)
            .map(|(number, key)| Row {
                key,
                cells: columns
                    .iter()
                    .map(|(column, _)| cell(SumOf::Cell(number, *column)))
                    .collect(),
                total: cell(SumOf::Row(number)),
            })
            .collect();
        // Samples lie after the instructions that they belong to: rows that have nothing else are shown where samples are.
        if !query.values.contains(&Value::Samples) {
            rows.retain(|row| 0.0 < row.total.amount || row.total.samples <= 0.0);
        }
        let columns: Vec<Column> = columns.into_iter().map(|(_, column)| column).collect();
        sort(&mut rows, &columns, &query.sort);
        Mix {
            rows_by: query.rows.clone(),
            columns_by: query.columns.clone(),
            filters: query.filters.clone(),
            values: query.values.clone(),
            unit: self.counts.assignment.unit,
            time_unit: self.time.map(|time| time.unit),
            columns,
            rows,
            total: cell(SumOf::Total),
            all: cell(SumOf::All),
        }
    }
}

/// Whether the columns are kernel and user, which have an order of their own.
pub(super) fn is_by_ring(query: &Query) -> bool {
    matches!(query.columns.as_slice(), [only] if only.is(Dimension::Ring))
}

fn falling(a: f64, b: f64) -> Ordering {
    b.total_cmp(&a)
}

pub(super) fn sort(rows: &mut [Row], columns: &[Column], sort: &Sort) {
    let named = |name: &str| columns.iter().position(|column| column.name() == name);
    match sort {
        Sort::Key => {
            rows.sort_by_cached_key(|row| row.key.iter().map(|name| numbered(name)).collect::<Vec<_>>());
        }
        Sort::Total => order(rows, |row| row.total.amount),
        Sort::Value(value) => order(rows, |row| row.total.figure(*value)),
        Sort::Column(name) => match named(name) {
            Some(column) => order(rows, |row| row.cells.get(column).map_or(0.0, |cell| cell.amount)),
            None => order(rows, |row| row.total.amount),
        },
    }
}

fn order(rows: &mut [Row], figure: impl Fn(&Row) -> f64) {
    rows.sort_by(|a, b| falling(figure(a), figure(b)).then_with(|| a.key.cmp(&b.key)));
}

/// Names that are numbers, such as widths, come in the order of these, before all others.
fn numbered(name: &str) -> (u64, String) {
    (name.parse().unwrap_or(u64::MAX), name.to_owned())
}
