//! The keys of a mix: which sums an instruction of a block adds to.
//!
//! A key has two halves. One depends on the instruction form, and is computed once for each form. The other depends on the
//! location and the process image: it is cached by block, function or instruction, whichever the finest axis needs.
//! Both halves are interned as numbers, and so are the sums of each pair of halves.

use std::collections::HashMap;
use std::hash::Hash;

use hashbrown::DefaultHashBuilder;
use indexmap::IndexSet;

use super::axis::Axis;
use super::class::Class;
use super::dimension::{DependsOn, Dimension};
use super::query::Query;
use super::sites::{FunctionAt, Sites};
use hbbp_code::blocks::{BlockId, BlockMap, Flow, Instruction};
use hbbp_estimate::{BlockCount, Part};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{ProcessIdx, Snapshot, SourceLocations};

/// Number of a sum, in the order of first use.
pub(super) type SumIdx = usize;

/// What a sum is the sum of; rows and columns are numbers in the order of first use.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum SumOf {
    /// Everything, also what filters exclude.
    All,
    /// Everything in a column, also what filters exclude.
    AllInColumn(u32),
    /// What passes the filters.
    Total,
    /// What passes in a column.
    Column(u32),
    /// What passes in a row.
    Row(u32),
    /// What passes in a row and a column.
    Cell(u32, u32),
}

/// What one execution of a block adds to a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Addend {
    pub(super) sum: SumIdx,
    pub(super) instructions: f64,
    pub(super) flops: f64,
    /// Bytes of these instructions.
    pub(super) bytes: u64,
}

/// All keys so far.
pub(super) struct Keys<'a> {
    map: &'a BlockMap,
    query: &'a Query,
    /// Whether the parts of a block can add to different sums.
    asks_process: bool,
    /// What the values of the axes depend on in addition to the form.
    depends_on: DependsOn,
    /// The last function, and the number of its half.
    last_function: Option<(FunctionAt, u32)>,
    sites: Sites<'a>,
    forms: Interned<Half>,
    locations: Interned<Half>,
    sums: Sums,
    /// The half of each form by its index, once it is known, and its floating-point operations.
    of_form: Vec<Option<(u32, f64)>>,
    pairs: Pairs,
    /// That of the last lookup; parts are sorted by block.
    answer: Answer,
}

/// The sums so far, by their numbers.
#[derive(Default)]
struct Sums {
    of: Interned<SumOf>,
    rows: Interned<Vec<String>>,
    columns: Interned<Vec<String>>,
}

/// What a block adds to which sums.
#[derive(Default)]
struct Answer {
    of: Option<(BlockId, ProcessIdx, Option<u32>)>,
    addends: Vec<Addend>,
    places: Places,
}

/// The pairs of halves so far, by numbers.
#[derive(Default)]
struct Pairs {
    numbers: HashMap<(u32, u32), usize, DefaultHashBuilder>,
    /// The sums of each.
    sums: Vec<Vec<SumIdx>>,
    /// The location that each half of a form was last seen at, with the number of the pair.
    last: Vec<Option<(u32, usize)>>,
}

/// Where each sum is among the addends of a block.
#[derive(Default)]
struct Places {
    block: u64,
    /// The last block that added to each sum, and its index there.
    of_sum: Vec<(u64, usize)>,
}

/// The values of half of the axes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Half {
    rows: Vec<String>,
    columns: Vec<String>,
    /// Whether the filters on these axes are passed.
    passes: bool,
}

/// Values by their numbers, in the order of first use.
type Interned<T> = IndexSet<T, DefaultHashBuilder>;

impl<'a> Keys<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        map: &'a BlockMap,
        query: &'a Query,
        locations: &'a SourceLocations,
    ) -> Self {
        let mut keys = Self {
            map,
            query,
            asks_process: query.asks_process(),
            depends_on: query
                .axes()
                .map(Axis::depends_on)
                .max()
                .unwrap_or(DependsOn::Form),
            last_function: None,
            sites: Sites::new(snapshot, map, query, locations),
            forms: Interned::default(),
            locations: Interned::default(),
            sums: Sums::default(),
            of_form: vec![None; map.forms.len()],
            pairs: Pairs::default(),
            answer: Answer::default(),
        };
        number(&mut keys.sums.of, SumOf::All);
        number(&mut keys.sums.of, SumOf::Total);
        if let [only] = query.columns.as_slice()
            && only.is(Dimension::Ring)
        {
            for ring in [Ring::Kernel, Ring::User] {
                let column = number(&mut keys.sums.columns, vec![ring.to_string()]);
                number(&mut keys.sums.of, SumOf::AllInColumn(column));
                number(&mut keys.sums.of, SumOf::Column(column));
            }
        }
        keys
    }

    /// The sums so far, by their numbers.
    pub(super) fn sums(&self) -> impl ExactSizeIterator<Item = SumOf> {
        self.sums.of.iter().copied()
    }

    /// The keys of the rows and of the columns, by their numbers.
    pub(super) fn into_rows_and_columns(
        self,
    ) -> (
        impl Iterator<Item = Vec<String>>,
        impl Iterator<Item = Vec<String>>,
    ) {
        (self.sums.rows.into_iter(), self.sums.columns.into_iter())
    }

    /// What one execution of a part of a block adds to which sums.
    pub(super) fn addends(&mut self, block: &BlockCount, part: &Part) -> &[Addend] {
        self.addends_of(block, part.process, part.instruction)
    }

    /// The same of a block when `process` runs it: of one of its instructions, or of all.
    pub(super) fn addends_of(
        &mut self,
        block: &BlockCount,
        process: ProcessIdx,
        instruction: Option<u32>,
    ) -> &[Addend] {
        // Without the process in the query, the parts of one block add to the same sums.
        let process = if self.asks_process {
            process
        } else {
            ProcessIdx::KERNEL
        };
        let of = (block.block, process, instruction);
        if self.answer.of != Some(of) {
            self.answer.of = Some(of);
            self.find(block, process, instruction);
        }
        &self.answer.addends
    }

    /// The sums that one instruction of a block adds to when `process` runs it.
    pub(super) fn sums_at(&mut self, block: &BlockCount, process: ProcessIdx, at: usize) -> &[SumIdx] {
        let Some(instruction) = self.map.instructions(block.block).get(at).copied() else {
            return &[];
        };
        self.sites.enter(block, process);
        let location = self.location(at, instruction);
        let (form, _) = self.form(instruction);
        let pair = self.pair(location, form);
        self.pairs.sums.get(pair).map_or(&[], Vec::as_slice)
    }

    fn find(&mut self, block: &BlockCount, process: ProcessIdx, only: Option<u32>) {
        let by_instruction = self.depends_on == DependsOn::Instruction;
        let map = self.map;
        self.sites.enter(block, process);
        self.answer.addends.clear();
        self.answer.places.block += 1;
        let mut known = self.location_of_function();
        let instructions = map.instructions(block.block).iter().enumerate();
        let wanted = instructions.filter(|(at, _)| only.is_none_or(|only| only as usize == *at));
        for (at, instruction) in wanted {
            let location = match known {
                Some(location) if !by_instruction => location,
                _ => self.location(at, *instruction),
            };
            known = Some(location);
            let (form, flops) = self.form(*instruction);
            let pair = self.pair(location, form);
            for sum in self.pairs.sums.get(pair).into_iter().flatten() {
                let addend = Addend {
                    sum: *sum,
                    instructions: 1.0,
                    flops,
                    bytes: instruction.len.into(),
                };
                self.answer.places.add(addend, &mut self.answer.addends);
            }
        }
    }

    /// The cached half-key of the function, if the block is in the same function as the last one and no finer key is requested.
    fn location_of_function(&self) -> Option<u32> {
        let (last, location) = self.last_function?;
        (self.depends_on <= DependsOn::Function && self.sites.function() == Some(last)).then_some(location)
    }

    /// The number of a pair of a location and a form.
    fn pair(&mut self, location: u32, form: u32) -> usize {
        if let Some(Some((last, pair))) = self.pairs.last.get(form as usize)
            && *last == location
        {
            return *pair;
        }
        let pair = match self.pairs.numbers.get(&(location, form)) {
            Some(pair) => *pair,
            None => {
                let sums = self.find_sums(location, form);
                self.pairs.add(location, form, sums)
            }
        };
        if let Some(last) = self.pairs.last.get_mut(form as usize) {
            *last = Some((location, pair));
        }
        pair
    }

    fn find_sums(&mut self, location: u32, form: u32) -> Vec<SumIdx> {
        let (Some(location), Some(form)) = (
            self.locations.get_index(location as usize),
            self.forms.get_index(form as usize),
        ) else {
            return Vec::new();
        };
        let row = joined(&self.query.rows, &form.rows, &location.rows);
        let column = joined(&self.query.columns, &form.columns, &location.columns);
        let passes = location.passes && form.passes;
        let column = number(&mut self.sums.columns, column);
        let mut sums = vec![SumOf::All, SumOf::AllInColumn(column)];
        if passes {
            let row = number(&mut self.sums.rows, row);
            sums.extend([
                SumOf::Total,
                SumOf::Column(column),
                SumOf::Row(row),
                SumOf::Cell(row, column),
            ]);
        }
        sums.into_iter()
            .map(|sum| number(&mut self.sums.of, sum) as SumIdx)
            .collect()
    }

    fn form(&mut self, instruction: Instruction) -> (u32, f64) {
        let index = usize::from(instruction.form.0);
        if let Some(Some(known)) = self.of_form.get(index) {
            return *known;
        }
        let form = self.map.forms.get(index);
        let class = form.and_then(|form| Class::of(form, instruction.flow));
        let flops = class.as_ref().map_or(0.0, |class| f64::from(class.flops));
        let half = self.half(|axis| {
            let is_here = axis.depends_on() == DependsOn::Form;
            is_here.then(|| {
                class
                    .as_ref()
                    .map_or(vec![String::new()], |class| class.values(axis))
            })
        });
        let known = (number(&mut self.forms, half), flops);
        if let Some(slot) = self.of_form.get_mut(index) {
            *slot = Some(known);
        }
        known
    }

    fn location(&mut self, at: usize, instruction: Instruction) -> u32 {
        let half = self.half(|axis| {
            let dimension = axis.dimension()?;
            (dimension.depends_on() != DependsOn::Form)
                .then(|| vec![self.sites.value(dimension, at, instruction)])
        });
        let location = number(&mut self.locations, half);
        self.last_function = self.sites.function().map(|function| (function, location));
        location
    }

    /// The half of the axes that `values` has values of.
    fn half(&self, values: impl Fn(&Axis) -> Option<Vec<String>>) -> Half {
        let labels = |axes: &[Axis]| {
            let values = axes.iter().filter_map(&values);
            values.map(|values| values.join(" + ")).collect()
        };
        let filters = self.query.filters.iter();
        let mut checked = filters.filter_map(|filter| Some(filter.passes(&values(&filter.axis)?)));
        Half {
            rows: labels(&self.query.rows),
            columns: labels(&self.query.columns),
            passes: checked.all(|passes| passes),
        }
    }
}

/// The number of a value, a new one where it has none.
fn number<T: Eq + Hash>(values: &mut Interned<T>, value: T) -> u32 {
    u32::try_from(values.insert_full(value).0).unwrap_or(u32::MAX)
}

impl Pairs {
    fn add(&mut self, location: u32, form: u32, sums: Vec<SumIdx>) -> usize {
        let pair = self.sums.len();
        self.sums.push(sums);
        self.numbers.insert((location, form), pair);
        if self.last.len() <= form as usize {
            self.last.resize(form as usize + 1, None);
        }
        pair
    }
}

impl Places {
    /// Adds to the addends of the block, each sum once.
    fn add(&mut self, addend: Addend, addends: &mut Vec<Addend>) {
        if self.of_sum.len() <= addend.sum {
            self.of_sum.resize(addend.sum + 1, (0, 0));
        }
        let Some((block, place)) = self.of_sum.get_mut(addend.sum) else {
            return;
        };
        match addends.get_mut(*place) {
            Some(known) if *block == self.block => {
                known.instructions += addend.instructions;
                known.flops += addend.flops;
                known.bytes += addend.bytes;
            }
            _ => {
                (*block, *place) = (self.block, addends.len());
                addends.push(addend);
            }
        }
    }
}

/// The values of axes in their order, each taken from the half that it depends on.
fn joined(axes: &[Axis], form: &[String], location: &[String]) -> Vec<String> {
    let (mut form, mut location) = (form.iter(), location.iter());
    let values = axes.iter().map(|axis| match axis.depends_on() {
        DependsOn::Form => form.next(),
        DependsOn::Function | DependsOn::Block | DependsOn::Instruction => location.next(),
    });
    values.map(|value| value.cloned().unwrap_or_default()).collect()
}

/// The mnemonic of each form of a map, by its index; empty for bytes that are no instruction.
pub(crate) fn mnemonics(map: &BlockMap) -> Vec<String> {
    // The control flow does not affect the mnemonic.
    let class = |form| Class::of(form, Flow::Next);
    let mnemonic = |form| class(form).map(|class| class.mnemonic).unwrap_or_default();
    map.forms.iter().map(mnemonic).collect()
}
