//! The table behind the page: every block with its executions, and its instructions with their classes.
//!
//! A document of JSON names what occurs: strings, classes of instructions, functions and modules. Numbers follow it in
//! columns ([`super::columns`]). Each text stands once, and disassembly in parts ([`super::template`]), so that the code of a
//! whole system fits into a page. Indices count from 0; an index into `strings` stands for every text.
//! The sums that the page shows are sums of `block.count` over instructions, so that they equal those of the other formats.

use std::collections::HashMap;

use iced_x86::IntelFormatter;
use serde::Serialize;

use super::changes::Changes;
use super::columns::{Column, Columns, zigzag};
use super::template::Template;
use crate::addr::{ImageAddr, Ring};
use crate::annotate::{formatter, write_instruction};
use crate::blocks::{BlockId, Flow, FormIdx, Instruction, TextBlocks};
use crate::estimate::{BlockCount, Method};
use crate::mix::{Analysis, Axis, Class, DependsOn, Dimension, OverTime, Taxonomy, function, symbol_at};
use crate::names::{self, Demangle};
use crate::printable::harmless;
use crate::snapshot::{Module, ModuleIdx, Snapshot, Text};

/// The page's content, without its columns.
#[derive(Serialize)]
pub(super) struct Page {
    /// Name and version of this table.
    format: &'static str,
    head: Head,
    strings: Vec<String>,
    /// Names of the classes of an instruction.
    attributes: Vec<String>,
    /// For each class of instructions, the string of each attribute.
    forms: Vec<Vec<u32>>,
    modules: Vec<PageModule>,
    /// What changed against another profile.
    changes: Option<Changes>,
    /// When instructions ran.
    time: Option<Time>,
    /// The columns that follow.
    columns: Vec<Column>,
}

/// What stands above the views.
#[derive(Serialize)]
pub(super) struct Head {
    pub(super) run: String,
    pub(super) unit: String,
    #[serde(rename = "unitWords")]
    pub(super) unit_words: &'static str,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) warnings: Vec<String>,
    pub(super) made: String,
}

/// The periods of the run; `time.amount` has a number for each class in each ring in each period.
#[derive(Serialize)]
struct Time {
    /// Start and end in seconds from the start of the run.
    periods: Vec<[f64; 2]>,
}

#[derive(Serialize)]
struct PageModule {
    name: u32,
    /// Lowest address of its functions, in hexadecimal, as numbers of a script end at 2^53. Other addresses are relative to it.
    start: String,
}

/// A function that ran or is called: its module, its start, and whether it has a symbol. Without one it is a text range.
type FunctionKey = (ModuleIdx, ImageAddr, bool);

/// What instructions have in common: text with marks, class and length in bytes.
type Kind = (u32, u32, u8);

/// A block that ran.
struct PageBlock {
    function: u32,
    count: BlockCount,
    start: ImageAddr,
    /// When its text came to be, in ns from the start of the run.
    since: u64,
}

/// Numbers for keys, in the order of their first use.
struct Numbers<K> {
    numbers: HashMap<K, u32>,
    keys: Vec<K>,
}

impl<K: Clone + Eq + std::hash::Hash> Numbers<K> {
    fn new() -> Self {
        Self {
            numbers: HashMap::new(),
            keys: Vec::new(),
        }
    }

    fn of(&mut self, key: K) -> u32 {
        let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(key).or_insert_with_key(|key| {
            self.keys.push(key.clone());
            next
        })
    }
}

/// The page while it is filled.
pub(super) struct Table<'a> {
    snapshot: &'a Snapshot,
    over_time: Option<&'a OverTime>,
    demangle: Demangle,
    strings: Numbers<String>,
    functions: Numbers<FunctionKey>,
    forms: Numbers<(FormIdx, Flow)>,
    kinds: Numbers<Kind>,
    /// One for each module, as it knows the names of branch targets.
    formatters: HashMap<ModuleIdx, IntelFormatter>,
    blocks: Vec<PageBlock>,
    /// The kinds of all instructions of all blocks, one after the other.
    instructions: Vec<u32>,
    /// What their marks for numbers stand for.
    numbers: Vec<u64>,
    /// The functions that their marks for functions stand for, each after the one that it is named in.
    calls: Vec<(u32, u32)>,
    /// Amounts by period, ring and class.
    amounts: HashMap<(usize, Ring, u32), f64>,
}

impl<'a> Table<'a> {
    /// Nothing yet.
    pub(super) fn new(snapshot: &'a Snapshot, over_time: Option<&'a OverTime>, demangle: Demangle) -> Self {
        Self {
            snapshot,
            over_time,
            demangle,
            strings: Numbers::new(),
            functions: Numbers::new(),
            forms: Numbers::new(),
            kinds: Numbers::new(),
            formatters: HashMap::new(),
            blocks: Vec::new(),
            instructions: Vec::new(),
            numbers: Vec::new(),
            calls: Vec::new(),
            amounts: HashMap::new(),
        }
    }

    /// Adds the blocks of an analysis that ran.
    pub(super) fn add_blocks(&mut self, analysis: &Analysis) {
        for (number, block) in analysis.counts.blocks.iter().enumerate() {
            let text = self.snapshot.text.get(block.block.text.0 as usize);
            let decoded = analysis.map.text(block.block.text);
            if let (Some(text), Some(decoded)) = (text, decoded)
                && 0.0 < block.chosen().count
            {
                let before = self.instructions.len();
                self.add(block, text, decoded);
                self.add_periods(number, block, before);
            }
        }
    }

    fn add(&mut self, block: &BlockCount, text: &Text, decoded: &TextBlocks) {
        let BlockId { block: number, .. } = block.block;
        let instructions = decoded.instructions(decoded.block(number));
        let module = self.snapshot.modules.get(text.module.0 as usize);
        let (Some(first), Some(module)) = (instructions.first(), module) else {
            return;
        };
        let start = decoded.addr(*first);
        let key = match symbol_at(module, start) {
            Some(symbol) => (text.module, symbol.start, true),
            None => (text.module, text.start, false),
        };
        let function = self.functions.of(key);
        self.blocks.push(PageBlock {
            function,
            count: *block,
            start,
            since: since(self.snapshot, text.since),
        });
        for instruction in instructions {
            let template = self.template(*instruction, text, module, decoded);
            self.numbers.extend(template.numbers);
            for start in template.functions {
                let called = self.functions.of((text.module, ImageAddr(start), true));
                self.calls.push((function, called));
            }
            let form = self.forms.of((instruction.form, instruction.flow));
            let words = self.strings.of(template.text);
            self.instructions
                .push(self.kinds.of((words, form, instruction.len)));
        }
    }

    /// Adds the instructions from `before` on, which are those of a block, to the periods in which it ran.
    fn add_periods(&mut self, number: usize, block: &BlockCount, before: usize) {
        let Some(over_time) = self.over_time else {
            return;
        };
        for kind in self.instructions.get(before..).unwrap_or_default() {
            let form = self
                .kinds
                .keys
                .get(*kind as usize)
                .map_or(0, |(_, form, _)| *form);
            for (period, part) in over_time.parts(number) {
                let amount = self.amounts.entry((*period, block.ring, form));
                *amount.or_default() += block.chosen().count * part;
            }
        }
    }

    fn template(
        &mut self,
        instruction: Instruction,
        text: &Text,
        module: &Module,
        decoded: &TextBlocks,
    ) -> Template {
        let formatter = self.formatters.entry(text.module);
        let formatter = formatter.or_insert_with(|| formatter_of(module));
        let bytes = usize::try_from(instruction.offset).ok();
        let bytes = bytes.and_then(|from| text.bytes.get(from..)?.get(..instruction.len.into()));
        let mut template = Template::default();
        let bytes = bytes.unwrap_or_default();
        write_instruction(
            formatter,
            module.kind.bits(),
            decoded.addr(instruction),
            bytes,
            &mut template,
        );
        template
    }

    /// The page, and the bytes of its columns.
    pub(super) fn finish(
        mut self,
        analysis: &Analysis,
        head: Head,
        changes: Option<Changes>,
    ) -> (Page, Vec<u8>) {
        let attributes = attributes();
        let forms = self.forms_by(&attributes, analysis);
        let (modules, mut columns) = self.columns();
        let time = self.over_time.map(|over_time| self.time(over_time, &mut columns));
        let page = Page {
            format: "hbbp-sys.page/2",
            head,
            attributes: attributes.iter().map(|axis| axis.name().to_owned()).collect(),
            forms,
            modules,
            changes,
            time,
            columns: columns.index,
            strings: self.strings.keys,
        };
        (page, columns.bytes)
    }

    /// The values of the attributes of each class.
    fn forms_by(&mut self, attributes: &[Axis], analysis: &Analysis) -> Vec<Vec<u32>> {
        let class = |(idx, flow): &(FormIdx, Flow)| {
            let form = analysis.map.forms.get(usize::from(idx.0));
            form.and_then(|form| Class::of(form, *flow))
        };
        let classes: Vec<Option<Class>> = self.forms.keys.iter().map(class).collect();
        let mut forms = Vec::with_capacity(classes.len());
        for class in &classes {
            let values = attributes.iter().map(|attribute| {
                let values = class.as_ref().map(|class| class.values(attribute));
                values.unwrap_or_default().join(" + ")
            });
            forms.push(values.map(|value| self.strings.of(value)).collect());
        }
        forms
    }

    /// Modules, and all that is numbers. Functions are in the order of their addresses, so that numbers are close to their
    /// neighbours.
    fn columns(&mut self) -> (Vec<PageModule>, Columns) {
        let mut functions: Vec<(FunctionKey, u32)> = self.functions.keys.iter().copied().zip(0..).collect();
        functions.sort_unstable();
        let mut place = vec![0_u32; functions.len()];
        for ((_, number), at) in functions.iter().zip(0_u32..) {
            if let Some(place) = place.get_mut(*number as usize) {
                *place = at;
            }
        }
        let place = |number: u32| place.get(number as usize).copied().map_or(0, u64::from);
        let mut modules: Vec<(ModuleIdx, ImageAddr)> = Vec::new();
        // Of each function, the number of its module.
        let mut numbers = Vec::with_capacity(functions.len());
        for ((module, start, _), _) in &functions {
            if modules.last().is_none_or(|(last, _)| last != module) {
                modules.push((*module, *start));
            }
            numbers.push(modules.len() as u64 - 1);
        }
        let base: HashMap<ModuleIdx, ImageAddr> = modules.iter().copied().collect();
        let relative =
            |module, addr: ImageAddr| addr.0.wrapping_sub(base.get(module).map_or(0, |base| base.0));
        let starts = functions
            .iter()
            .map(|((module, start, _), _)| relative(module, *start));
        let block_start = |block: &PageBlock| {
            let function = self.functions.keys.get(block.function as usize);
            function.map_or(0, |(module, ..)| relative(module, block.start))
        };
        let mut columns = Columns::default();
        columns.delta("function.module", numbers);
        columns.delta("function.start", starts);
        columns.delta(
            "block.function",
            self.blocks.iter().map(|block| place(block.function)),
        );
        columns.delta("block.start", self.blocks.iter().map(block_start));
        columns.delta("block.since", self.blocks.iter().map(|block| block.since));
        self.add_counts(&mut columns);
        columns.unsigned("kind.text", self.kinds.keys.iter().map(|kind| u64::from(kind.0)));
        columns.unsigned("kind.form", self.kinds.keys.iter().map(|kind| u64::from(kind.1)));
        columns.unsigned("kind.len", self.kinds.keys.iter().map(|kind| u64::from(kind.2)));
        columns.unsigned(
            "instruction.kind",
            self.instructions.iter().copied().map(u64::from),
        );
        columns.unsigned("instruction.numbers", self.numbers.iter().copied());
        // Most branches stay in their function, and callees are often neighbours.
        let calls = self.calls.iter();
        let calls = calls.map(|(from, to)| zigzag(place(*from), place(*to)));
        columns.unsigned("instruction.functions", calls);
        let keys: Vec<FunctionKey> = functions.into_iter().map(|(key, _)| key).collect();
        let names = self.function_names(&keys);
        let names: Vec<u32> = names.into_iter().map(|name| self.strings.of(name)).collect();
        columns.delta("function.name", names.into_iter().map(u64::from));
        let modules = modules.into_iter().map(|(idx, start)| {
            let module = self.snapshot.modules.get(idx.0 as usize);
            let name = harmless(module.map_or("", |module| &module.name));
            PageModule {
                name: self.strings.of(name),
                start: format!("{:x}", start.0),
            }
        });
        (modules.collect(), columns)
    }

    fn time(&self, over_time: &OverTime, columns: &mut Columns) -> Time {
        let forms = (0_u32..).zip(&self.forms.keys).map(|(form, _)| form);
        let rings = [Ring::Kernel, Ring::User].into_iter();
        let cells = rings.flat_map(|ring| forms.clone().map(move |form| (ring, form)));
        let periods = 0..over_time.periods.len();
        let keys = periods.flat_map(|period| cells.clone().map(move |(ring, form)| (period, ring, form)));
        columns.single(
            "time.amount",
            keys.map(|key| Some(self.amounts.get(&key).copied().unwrap_or(0.0))),
        );
        let seconds = |ns: u64| ns as f64 / 1e9;
        let periods = over_time.periods.iter();
        Time {
            periods: periods
                .map(|period| [seconds(period.start), seconds(period.end)])
                .collect(),
        }
    }

    /// What was counted of each block.
    fn add_counts(&self, columns: &mut Columns) {
        let counts = || self.blocks.iter().map(|block| &block.count);
        columns.unsigned("block.ring", counts().map(|it| u64::from(it.ring == Ring::User)));
        columns.unsigned(
            "block.method",
            counts().map(|it| u64::from(it.method == Method::Lbr)),
        );
        columns.unsigned("block.size", counts().map(|it| u64::from(it.instructions)));
        columns.double("block.count", counts().map(|it| it.chosen().count));
        columns.single("block.error", counts().map(|it| Some(it.chosen().std_error)));
        let other = |count: &BlockCount| match count.method {
            Method::Ebs => count.lbr,
            Method::Lbr => count.ebs,
        };
        columns.single("block.other", counts().map(|it| other(it).map(|it| it.count)));
    }

    /// How the functions are shown; different ones with one name in the symbol tables share it.
    fn function_names(&self, keys: &[FunctionKey]) -> Vec<String> {
        let name = |(idx, start, is_named): &FunctionKey| {
            let module = self.snapshot.modules.get(idx.0 as usize);
            let name = module.and_then(|module| function(module, *start));
            name.filter(|_| *is_named)
                .unwrap_or_else(|| format!("[{}]", module.map_or("", |module| &module.name)))
        };
        let names: Vec<String> = keys.iter().map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let shown = names::functions(&names, self.demangle);
        shown.iter().map(|name| harmless(name)).collect()
    }
}

/// What instructions can be told apart by on the page.
fn attributes() -> Vec<Axis> {
    let dimensions = Dimension::ALL.iter().copied();
    let of_forms = dimensions.filter(|dimension| dimension.depends_on() == DependsOn::Form);
    let taxonomies = Taxonomy::built_in().into_iter().map(Axis::Taxonomy);
    of_forms.map(Axis::Dimension).chain(taxonomies).collect()
}

/// When an interval began, in ns from the start of the run.
fn since(snapshot: &Snapshot, interval: u32) -> u64 {
    let start = |n: usize| snapshot.intervals.get(n).map_or(0, |interval| interval.start);
    start(interval as usize).saturating_sub(start(0))
}

/// Functions are named by their addresses.
fn formatter_of(module: &Module) -> IntelFormatter {
    formatter(module, Demangle::Off)
}
