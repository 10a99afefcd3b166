//! The table behind the page: every block with its executions, and its instructions with their classes.
//!
//! Columns in place of rows, and each text once, so that it compresses well and a browser reads it at once. Indices count
//! from 0; addresses are hexadecimal strings, as numbers of a script end at 2^53. The sums that the page shows are sums of
//! `count` over instructions, so that they equal those of the other formats.

use std::collections::HashMap;

use iced_x86::IntelFormatter;
use serde::Serialize;

use crate::addr::{ImageAddr, Ring};
use crate::annotate::{formatter, instruction};
use crate::blocks::{BlockId, Flow, FormIdx, TextBlocks};
use crate::estimate::{BlockCount, Estimate, Method};
use crate::mix::{Analysis, Axis, Class, DependsOn, Dimension, Taxonomy, function};
use crate::names::Demangle;
use crate::printable::harmless;
use crate::snapshot::{Module, ModuleIdx, Snapshot, Text};

/// The page's content.
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
    /// Their names.
    modules: Vec<u32>,
    /// Module, and name.
    functions: Vec<(u32, u32)>,
    blocks: Blocks,
    instructions: Instructions,
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

/// The blocks that ran.
#[derive(Default, Serialize)]
struct Blocks {
    function: Vec<u32>,
    /// 0 for the kernel, 1 for user code.
    ring: Vec<u8>,
    start: Vec<String>,
    /// When its text came to be, in ns from the start of the run.
    since: Vec<u64>,
    /// 0 for EBS, 1 for LBR.
    method: Vec<u8>,
    /// Executions, in the unit of the report, with their standard error.
    count: Vec<f64>,
    error: Vec<f64>,
    /// What each method counted.
    ebs: Vec<Option<f64>>,
    lbr: Vec<Option<f64>>,
    /// Its first instruction; one more at the end.
    first: Vec<u32>,
}

/// The instructions of all blocks, one after the other.
#[derive(Default, Serialize)]
struct Instructions {
    form: Vec<u32>,
    len: Vec<u8>,
    /// Disassembly.
    text: Vec<u32>,
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

impl Page {
    /// The blocks of an analysis that ran.
    pub(super) fn new(snapshot: &Snapshot, analysis: &Analysis, head: Head) -> Self {
        let mut table = Table {
            snapshot,
            strings: Numbers::new(),
            modules: Numbers::new(),
            functions: Numbers::new(),
            forms: Numbers::new(),
            formatters: HashMap::new(),
            blocks: Blocks::default(),
            instructions: Instructions::default(),
        };
        for block in &analysis.counts.blocks {
            let text = snapshot.text.get(block.block.text.0 as usize);
            let decoded = analysis.map.text(block.block.text);
            if let (Some(text), Some(decoded)) = (text, decoded)
                && 0.0 < block.chosen().count
            {
                table.add(block, text, decoded);
            }
        }
        table.blocks.first.push(len(&table.instructions.form));
        table.finish(analysis, head)
    }
}

/// The page while it is filled.
struct Table<'a> {
    snapshot: &'a Snapshot,
    strings: Numbers<String>,
    modules: Numbers<ModuleIdx>,
    functions: Numbers<(u32, u32)>,
    forms: Numbers<(FormIdx, Flow)>,
    /// One for each module, as it knows the names of branch targets.
    formatters: HashMap<ModuleIdx, IntelFormatter>,
    blocks: Blocks,
    instructions: Instructions,
}

impl Table<'_> {
    fn add(&mut self, block: &BlockCount, text: &Text, decoded: &TextBlocks) {
        let BlockId { block: number, .. } = block.block;
        let instructions = decoded.instructions(decoded.block(number));
        let Some(first) = instructions.first() else {
            return;
        };
        let start = decoded.addr(*first);
        let function = self.function(text.module, start);
        let chosen = block.chosen();
        let count = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.count);
        let blocks = &mut self.blocks;
        blocks.function.push(function);
        blocks.ring.push(u8::from(block.ring == Ring::User));
        blocks.start.push(format!("{:x}", start.0));
        blocks.since.push(since(self.snapshot, text.since));
        blocks.method.push(u8::from(block.method == Method::Lbr));
        blocks.count.push(chosen.count);
        blocks.error.push(chosen.std_error);
        blocks.ebs.push(count(block.ebs));
        blocks.lbr.push(count(block.lbr));
        blocks.first.push(len(&self.instructions.form));
        let Some(module) = self.snapshot.modules.get(text.module.0 as usize) else {
            return;
        };
        let formatter = self.formatters.entry(text.module);
        let formatter = formatter.or_insert_with(|| formatter_of(module));
        for decoded_one in instructions {
            let at = decoded.addr(*decoded_one);
            let bytes = usize::try_from(decoded_one.offset).ok();
            let bytes = bytes.and_then(|from| text.bytes.get(from..)?.get(..decoded_one.len.into()));
            let words = instruction(formatter, module.kind.bits(), at, bytes.unwrap_or_default());
            let form = self.forms.of((decoded_one.form, decoded_one.flow));
            self.instructions.form.push(form);
            self.instructions.len.push(decoded_one.len);
            self.instructions.text.push(self.strings.of(harmless(&words)));
        }
    }

    fn function(&mut self, idx: ModuleIdx, start: ImageAddr) -> u32 {
        let module = self.snapshot.modules.get(idx.0 as usize);
        let name = module.and_then(|module| function(module, start));
        let name = name.unwrap_or_else(|| format!("[{}]", module.map_or("", |module| &module.name)));
        let name = self.strings.of(harmless(&name));
        let module = self.modules.of(idx);
        self.functions.of((module, name))
    }

    fn finish(mut self, analysis: &Analysis, head: Head) -> Page {
        let dimensions = Dimension::ALL.iter().copied();
        let of_forms = dimensions.filter(|dimension| dimension.depends_on() == DependsOn::Form);
        let taxonomies = Taxonomy::built_in().into_iter().map(Axis::Taxonomy);
        let attributes: Vec<Axis> = of_forms.map(Axis::Dimension).chain(taxonomies).collect();
        let class = |(idx, flow): &(FormIdx, Flow)| {
            let form = analysis.map.forms.get(usize::from(idx.0));
            form.and_then(|form| Class::of(form, *flow))
        };
        let classes: Vec<Option<Class>> = self.forms.keys.iter().map(class).collect();
        let value = |class: &Option<Class>, attribute: &Axis| {
            let values = class.as_ref().map(|class| class.values(attribute));
            values.unwrap_or_default().join(" + ")
        };
        let mut forms = Vec::with_capacity(classes.len());
        for class in &classes {
            let values = attributes.iter().map(|attribute| value(class, attribute));
            forms.push(values.map(|value| self.strings.of(value)).collect());
        }
        let name = |idx: &ModuleIdx| {
            let module = self.snapshot.modules.get(idx.0 as usize);
            harmless(module.map_or("", |module| &module.name))
        };
        let names: Vec<String> = self.modules.keys.iter().map(name).collect();
        Page {
            format: "hbbp-sys.page/1",
            head,
            modules: names.into_iter().map(|name| self.strings.of(name)).collect(),
            attributes: attributes
                .iter()
                .map(|attribute| attribute.name().to_owned())
                .collect(),
            forms,
            functions: self.functions.keys,
            blocks: self.blocks,
            instructions: self.instructions,
            strings: self.strings.keys,
        }
    }
}

/// When an interval began, in ns from the start of the run.
fn since(snapshot: &Snapshot, interval: u32) -> u64 {
    let start = |n: usize| snapshot.intervals.get(n).map_or(0, |interval| interval.start);
    start(interval as usize).saturating_sub(start(0))
}

fn len<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

fn formatter_of(module: &Module) -> IntelFormatter {
    formatter(module, Demangle::On)
}
