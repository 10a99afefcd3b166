//! The keys of a mix: which row an instruction of a block belongs to.
//!
//! A key has two halves: one depends on the instruction form, and is computed once for each form; the other depends on
//! the location of the block and its process image, and is computed once for each pair of these.
//! Both are interned as numbers until the rows are complete. With debug information, the second half is computed for
//! each instruction, since lines and inlined functions change within a block.

use std::collections::HashMap;

use super::class::Class;
use super::dimension::Dimension;
use crate::addr::ImageAddr;
use crate::blocks::{BlockId, BlockMap, Flow, FormIdx, Instruction};
use crate::estimate::BlockCount;
use crate::snapshot::{Module, ProcessIdx, Snapshot, SourceLocation, SourceLocations, Symbol};

/// Number of a row, in the order of first use.
pub(super) type RowIdx = usize;

/// All keys so far.
pub(super) struct Keys<'a> {
    snapshot: &'a Snapshot,
    map: &'a BlockMap,
    by: &'a [Dimension],
    locations: &'a SourceLocations,
    forms: Labels,
    places: Labels,
    /// The label of each form, once it is known.
    of_form: HashMap<FormIdx, u32>,
    rows: HashMap<(u32, u32), RowIdx>,
    /// The halves of the key of each row: location, form.
    halves: Vec<(u32, u32)>,
    /// The rows of the last lookup; parts are sorted by block.
    last: Option<(BlockId, ProcessIdx)>,
    answer: Vec<(RowIdx, f64)>,
}

/// Numbers for lists of strings.
#[derive(Default)]
struct Labels {
    numbers: HashMap<Vec<String>, u32>,
    labels: Vec<Vec<String>>,
}

impl Labels {
    fn number(&mut self, label: Vec<String>) -> u32 {
        let next = u32::try_from(self.labels.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(label).or_insert_with_key(|label| {
            self.labels.push(label.clone());
            next
        })
    }

    fn values(&self, number: u32) -> impl Iterator<Item = String> {
        self.labels.get(number as usize).into_iter().flatten().cloned()
    }
}

impl<'a> Keys<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        map: &'a BlockMap,
        by: &'a [Dimension],
        locations: &'a SourceLocations,
    ) -> Self {
        Self {
            snapshot,
            map,
            by,
            locations,
            forms: Labels::default(),
            places: Labels::default(),
            of_form: HashMap::new(),
            rows: HashMap::new(),
            halves: Vec::new(),
            last: None,
            answer: Vec::new(),
        }
    }

    /// The rows that a block belongs to when `process` runs it, with the number of its instructions in each.
    pub(super) fn rows_of(&mut self, block: &BlockCount, process: ProcessIdx) -> &[(RowIdx, f64)] {
        // Without the process in the key, the parts of one block have the same rows.
        let process = if self.by.contains(&Dimension::Process) {
            process
        } else {
            ProcessIdx::KERNEL
        };
        if self.last != Some((block.block, process)) {
            self.last = Some((block.block, process));
            self.answer = self.find(block, process);
        }
        &self.answer
    }

    fn find(&mut self, block: &BlockCount, process: ProcessIdx) -> Vec<(RowIdx, f64)> {
        let asks_source = self.by.iter().any(|d| d.is_in_source());
        let map = self.map;
        let mut place = None;
        let mut found: Vec<(RowIdx, f64)> = Vec::new();
        for instruction in map.instructions(block.block) {
            let known = place.filter(|_| !asks_source);
            let here = known.unwrap_or_else(|| self.place(*instruction, block, process));
            place = Some(here);
            let form = self.form(*instruction);
            let row = *self.rows.entry((here, form)).or_insert_with(|| {
                self.halves.push((here, form));
                self.halves.len() - 1
            });
            found.push((row, 1.0));
        }
        found.sort_unstable_by_key(|(row, _)| *row);
        found.dedup_by(|next, kept| {
            let equal = next.0 == kept.0;
            if equal {
                kept.1 += next.1;
            }
            equal
        });
        found
    }

    fn form(&mut self, instruction: Instruction) -> u32 {
        let Self {
            map,
            by,
            forms,
            of_form,
            ..
        } = self;
        *of_form.entry(instruction.form).or_insert_with(|| {
            let form = map.forms.get(usize::from(instruction.form.0));
            let class = form.and_then(|form| Class::of(form, instruction.flow));
            let value = |d: &Dimension| {
                class
                    .as_ref()
                    .and_then(|class| class.value(*d))
                    .unwrap_or_default()
            };
            forms.number(by.iter().filter(|d| d.is_static()).map(value).collect())
        })
    }

    /// The number of the location of an instruction of a block.
    fn place(&mut self, instruction: Instruction, block: &BlockCount, process: ProcessIdx) -> u32 {
        let source = self.map.text(block.block.text).and_then(|text| {
            let asks_source = self.by.iter().any(|d| d.is_in_source());
            asks_source.then(|| self.locations.get(&(text.module, text.addr(instruction))))?
        });
        let source = source.cloned().unwrap_or_default();
        let dimensions = self.by.iter().filter(|d| !d.is_static());
        let label = dimensions
            .map(|d| match (d, &source) {
                (Dimension::Line, SourceLocation { line: Some(line), .. }) => line.clone(),
                (
                    Dimension::Inlined,
                    SourceLocation {
                        function: Some(function),
                        ..
                    },
                ) => function.clone(),
                _ => self.describe(*d, block, process),
            })
            .collect();
        self.places.number(label)
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
            Dimension::Function | Dimension::Line | Dimension::Inlined => module
                .and_then(|m| function(m, start))
                .unwrap_or_else(|| format!("[{name}]")),
            Dimension::Process => self.process(process),
            Dimension::Source => block.method.name().to_owned(),
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

    /// The key of a row: one value for each dimension of the mix.
    pub(super) fn values(&self, row: RowIdx) -> Vec<String> {
        let (place, form) = self.halves.get(row).copied().unwrap_or_default();
        let (mut place, mut form) = (self.places.values(place), self.forms.values(form));
        let value = |d: &Dimension| if d.is_static() { form.next() } else { place.next() };
        self.by.iter().map(value).map(Option::unwrap_or_default).collect()
    }
}

/// The mnemonic of each form of a map, by its index; empty for bytes that are no instruction.
pub fn mnemonics(map: &BlockMap) -> Vec<String> {
    // The control flow does not affect the mnemonic.
    let class = |form| Class::of(form, Flow::Next);
    let mnemonic = |form| class(form).map(|class| class.mnemonic).unwrap_or_default();
    map.forms.iter().map(mnemonic).collect()
}

/// The function that covers an address: its name, or the module's with the function's start (`/bin/gzip+0x4290`).
pub fn function(module: &Module, addr: ImageAddr) -> Option<String> {
    let symbol = symbol_at(module, addr)?;
    Some(match symbol.name.as_str() {
        "" => format!("{}+{}", module.name, symbol.start),
        name => name.to_owned(),
    })
}

/// The symbol that covers an address. One without a length reaches to the next one.
pub fn symbol_at(module: &Module, addr: ImageAddr) -> Option<&Symbol> {
    let n_before = module.symbols.partition_point(|s| s.start <= addr);
    let symbol = module.symbols.get(n_before.checked_sub(1)?)?;
    let inside = symbol.len == 0 || addr.since(symbol.start)? < symbol.len;
    inside.then_some(symbol)
}
