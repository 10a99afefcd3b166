//! The pivot: amounts of all instructions of all blocks, summed by key (paper section V.B).
//!
//! Each block is reduced to how many instructions it has of each static key; each part of its count is then added to a
//! row for each of these keys. Keys are numbers until the rows are complete.

use std::collections::HashMap;

use super::class::Class;
use super::error::Sum;
use super::{Cell, Dimension, Mix, Row};
use crate::addr::{ImageAddr, Ring};
use crate::blocks::{BlockId, BlockMap, FormIdx};
use crate::estimate::{BlockCount, BlockCounts};
use crate::snapshot::{Module, ProcessIdx, Snapshot};

/// Sums up a mix.
pub(super) fn pivot(snapshot: &Snapshot, map: &BlockMap, counts: &BlockCounts, by: &[Dimension]) -> Mix {
    let mut statics = Statics::new(map, by);
    let mut places = Places::new(snapshot, map, by);
    let mut rows: HashMap<(u32, u32), [Sum; 2]> = HashMap::new();
    let mut totals = [Sum::default(); 2];
    let mut composition: Vec<(u32, u32)> = Vec::new();
    let mut composed = None;
    for part in &counts.parts {
        let Some(block) = counts.blocks.get(part.block) else {
            continue;
        };
        if composed != Some(part.block) {
            statics.compose(block.block, &mut composition);
            composed = Some(part.block);
        }
        let place = places.key(block, part.process);
        let design_effect = counts.design_effect(block.source);
        let ring = usize::from(block.ring == Ring::User);
        for &(key, instructions) in &composition {
            let sums = rows.entry((place, key)).or_default();
            if let Some(sum) = sums.get_mut(ring) {
                sum.add(part, block.source, f64::from(instructions), design_effect);
            }
        }
        if let Some(total) = totals.get_mut(ring) {
            total.add(part, block.source, f64::from(block.instructions), design_effect);
        }
    }
    let cell = |sums: &[Sum; 2], ring: usize| sums.get(ring).map_or(Cell::default(), |sum| sum.cell(counts));
    let line = |((place, key), sums): (&(u32, u32), &[Sum; 2])| Row {
        key: by
            .iter()
            .map(|d| {
                statics
                    .value(*key, *d)
                    .or_else(|| places.value(*place, *d))
                    .unwrap_or_default()
            })
            .collect(),
        kernel: cell(sums, 0),
        user: cell(sums, 1),
    };
    let mut rows: Vec<Row> = rows.iter().map(line).collect();
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
        kernel: cell(&totals, 0),
        user: cell(&totals, 1),
    }
}

/// Numbers for lists of strings, in the order of their first use.
#[derive(Default)]
struct Keys {
    numbers: HashMap<Vec<String>, u32>,
    keys: Vec<Vec<String>>,
}

impl Keys {
    fn number(&mut self, key: Vec<String>) -> u32 {
        let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(key).or_insert_with_key(|key| {
            self.keys.push(key.clone());
            next
        })
    }

    fn value(&self, number: u32, position: usize) -> Option<String> {
        self.keys.get(number as usize)?.get(position).cloned()
    }
}

/// The dimensions that follow from an instruction's form.
struct Statics<'a> {
    map: &'a BlockMap,
    dimensions: Vec<Dimension>,
    keys: Keys,
    /// The key of each form, once it is known.
    of_form: HashMap<FormIdx, u32>,
}

impl<'a> Statics<'a> {
    fn new(map: &'a BlockMap, by: &[Dimension]) -> Self {
        let dimensions = by.iter().copied().filter(|d| d.is_static()).collect();
        Self {
            map,
            dimensions,
            keys: Keys::default(),
            of_form: HashMap::new(),
        }
    }

    /// How many instructions a block has of each key, sorted by key.
    fn compose(&mut self, block: BlockId, composition: &mut Vec<(u32, u32)>) {
        composition.clear();
        let Self {
            map,
            dimensions,
            keys,
            of_form,
        } = self;
        for instruction in map.instructions(block) {
            let key = *of_form.entry(instruction.form).or_insert_with(|| {
                let form = map.forms.get(usize::from(instruction.form.0));
                let class = form.and_then(|form| Class::of(form, instruction.flow));
                let value = |d: &Dimension| {
                    class
                        .as_ref()
                        .and_then(|class| class.value(*d))
                        .unwrap_or_default()
                };
                keys.number(dimensions.iter().map(value).collect())
            });
            composition.push((key, 1));
        }
        composition.sort_unstable();
        composition.dedup_by(|next, kept| {
            let equal = next.0 == kept.0;
            if equal {
                kept.1 += next.1;
            }
            equal
        });
    }

    fn value(&self, key: u32, dimension: Dimension) -> Option<String> {
        let position = self.dimensions.iter().position(|d| *d == dimension)?;
        self.keys.value(key, position)
    }
}

/// The dimensions that follow from where a block stands and who ran it.
struct Places<'a> {
    snapshot: &'a Snapshot,
    map: &'a BlockMap,
    dimensions: Vec<Dimension>,
    keys: Keys,
    /// The block and process of the last key: parts come sorted by block.
    last: Option<((BlockId, ProcessIdx), u32)>,
}

impl<'a> Places<'a> {
    fn new(snapshot: &'a Snapshot, map: &'a BlockMap, by: &[Dimension]) -> Self {
        let dimensions = by.iter().copied().filter(|d| !d.is_static()).collect();
        Self {
            snapshot,
            map,
            dimensions,
            keys: Keys::default(),
            last: None,
        }
    }

    fn key(&mut self, block: &BlockCount, process: ProcessIdx) -> u32 {
        // Without the process in the key, the next part of the same block has the same key.
        let by_process = self.dimensions.contains(&Dimension::Process);
        let who = (block.block, if by_process { process } else { ProcessIdx::KERNEL });
        match self.last {
            Some((last, key)) if last == who => key,
            _ => {
                let values = self
                    .dimensions
                    .iter()
                    .map(|d| self.describe(*d, block, process))
                    .collect();
                let key = self.keys.number(values);
                self.last = Some((who, key));
                key
            }
        }
    }

    fn describe(&self, dimension: Dimension, block: &BlockCount, process: ProcessIdx) -> String {
        let text = self.map.text(block.block.text);
        let module = text.and_then(|text| self.snapshot.modules.get(text.module.0 as usize));
        let name = module.map_or("", |m| m.name.as_str());
        let first = self.map.instructions(block.block).first();
        let start = text
            .zip(first)
            .map(|(text, first)| text.addr(*first))
            .unwrap_or_default();
        match dimension {
            Dimension::Ring => block.ring.to_string(),
            Dimension::Module => name.to_owned(),
            Dimension::Function => module
                .and_then(|m| function(m, start))
                .unwrap_or_else(|| format!("[{name}]")),
            Dimension::Process => self.process(process),
            Dimension::Source => block.source.name().to_owned(),
            Dimension::Block => format!("{name}+{start}"),
            _ => String::new(),
        }
    }

    fn process(&self, idx: ProcessIdx) -> String {
        match self.snapshot.processes.get(idx.0 as usize) {
            _ if idx == ProcessIdx::KERNEL => "[kernel]".to_owned(),
            Some(process) => format!("{} ({})", process.comm, process.tgid),
            None => String::new(),
        }
    }

    fn value(&self, key: u32, dimension: Dimension) -> Option<String> {
        let position = self.dimensions.iter().position(|d| *d == dimension)?;
        self.keys.value(key, position)
    }
}

/// The function that covers an address. A symbol without a length reaches to the next one.
fn function(module: &Module, addr: ImageAddr) -> Option<String> {
    let behind = module.symbols.partition_point(|s| s.start <= addr);
    let symbol = module.symbols.get(behind.checked_sub(1)?)?;
    let inside = symbol.len == 0 || addr.since(symbol.start)? < symbol.len;
    inside.then(|| symbol.name.clone())
}
