//! Gathers what the page shows of the executed blocks: each text, class and kind of instruction once.

use std::collections::HashMap;

use iced_x86::IntelFormatter;

use super::template::Template;
use hbbp_analysis::annotate::{formatter, write_instruction};
use hbbp_analysis::mix::{Analysis, OverTime, block_mitigations};
use hbbp_code::blocks::{BlockId, Flow, FormIdx, Instruction, TextBlocks};
use hbbp_estimate::{BlockCount, BlockCounts};
use hbbp_model::addr::{ImageAddr, Ring};
use hbbp_model::names::Demangle;
use hbbp_model::snapshot::{Module, ModuleIdx, Snapshot, Text};

/// A function that was executed or is called: its module, its start, and whether it has a symbol. Without one it is a
/// text range.
pub(super) type FunctionKey = (ModuleIdx, ImageAddr, bool);

/// A class of instructions, and the mitigation that they belong to.
pub(super) type FormKey = (FormIdx, Flow, &'static str);

/// What instructions have in common: text with marks, class and length in bytes.
pub(super) type Kind = (u32, u32, u8);

/// An executed block.
pub(super) struct PageBlock {
    pub(super) function: u32,
    pub(super) count: BlockCount,
    pub(super) start: ImageAddr,
    /// When its text came to be, in ns from the start of the run.
    pub(super) since: u64,
}

/// Numbers for keys, in the order of their first use.
pub(super) struct Numbers<K> {
    pub(super) numbers: HashMap<K, u32>,
    pub(super) keys: Vec<K>,
}

impl<K: Clone + Eq + std::hash::Hash> Numbers<K> {
    fn new() -> Self {
        Self {
            numbers: HashMap::new(),
            keys: Vec::new(),
        }
    }

    pub(super) fn of(&mut self, key: K) -> u32 {
        let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(key).or_insert_with_key(|key| {
            self.keys.push(key.clone());
            next
        })
    }
}

/// The columns of instructions.
#[derive(Default)]
pub(super) struct PageInstructions {
    /// What each of them is.
    pub(super) kinds: Vec<u32>,
    /// What each of them has, where figures are samples.
    pub(super) samples: Vec<f64>,
    /// The values of their marks for numbers.
    pub(super) numbers: Vec<u64>,
    /// The functions of their marks, each after the one that it is named in.
    pub(super) calls: Vec<(u32, u32)>,
}

/// The page while it is filled.
pub(super) struct Table<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) over_time: Option<&'a OverTime>,
    pub(super) demangle: Demangle,
    pub(super) strings: Numbers<String>,
    pub(super) functions: Numbers<FunctionKey>,
    /// With the name of the mitigation that an instruction belongs to.
    pub(super) forms: Numbers<FormKey>,
    pub(super) kinds: Numbers<Kind>,
    /// One for each module, as it knows the names of branch targets.
    pub(super) formatters: HashMap<ModuleIdx, IntelFormatter>,
    pub(super) blocks: Vec<PageBlock>,
    /// Those of all blocks, one after the other.
    pub(super) instructions: PageInstructions,
    /// Amounts by period, ring and class.
    pub(super) amounts: HashMap<(usize, Ring, u32), f64>,
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
            instructions: PageInstructions::default(),
            amounts: HashMap::new(),
        }
    }

    /// Adds the executed blocks of an analysis.
    pub(super) fn add_blocks(&mut self, analysis: &Analysis) {
        for (number, block) in analysis.counts.blocks.iter().enumerate() {
            let text = self.snapshot.text.get(block.block.text.0 as usize);
            let decoded = analysis.map.text(block.block.text);
            if let (Some(text), Some(decoded)) = (text, decoded)
                && 0.0 < block.chosen().count
            {
                let before = self.instructions.kinds.len();
                self.add(block, text, decoded);
                self.add_samples(number, &analysis.counts, before);
                self.add_periods(number, &analysis.counts, before);
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
        let key = match module.symbol_at(start) {
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
        let end = instructions
            .last()
            .map_or(0, |last| last.offset as usize + usize::from(last.len));
        let mitigations = block_mitigations(module, text, first.offset as usize..end);
        for (at, instruction) in instructions.iter().enumerate() {
            let template = self.template(*instruction, text, module, decoded);
            self.instructions.numbers.extend(template.numbers);
            for start in template.functions {
                let called = self.functions.of((text.module, ImageAddr(start), true));
                self.instructions.calls.push((function, called));
            }
            let mitigation = mitigations.get(at).copied().unwrap_or("none");
            let form = self.forms.of((instruction.form, instruction.flow, mitigation));
            let words = self.strings.of(template.text);
            self.instructions
                .kinds
                .push(self.kinds.of((words, form, instruction.len)));
        }
    }

    /// Adds what each of the instructions from `before` on has, which are those of a block, where figures are samples.
    fn add_samples(&mut self, number: usize, counts: &BlockCounts, before: usize) {
        if counts.waited.is_none() {
            return;
        }
        self.instructions
            .samples
            .resize(self.instructions.kinds.len(), 0.0);
        let samples = self.instructions.samples.get_mut(before..).unwrap_or_default();
        for part in counts.parts_of(number) {
            let at = part.instruction.and_then(|at| samples.get_mut(at as usize));
            at.into_iter().for_each(|sum| *sum += part.count);
        }
    }

    /// Adds the instructions from `before` on, which are those of a block, to the periods in which it was executed.
    fn add_periods(&mut self, number: usize, counts: &BlockCounts, before: usize) {
        let (Some(over_time), Some(block)) = (self.over_time, counts.blocks.get(number)) else {
            return;
        };
        let first = counts.parts.partition_point(|part| part.block < number);
        let parts = counts.parts_of(number);
        let kinds = self.instructions.kinds.get(before..).unwrap_or_default();
        for (part, index) in parts.iter().zip(first..) {
            let kinds = kinds.iter().zip(0..).filter(|(_, at)| part.is_of(*at));
            for (kind, _) in kinds {
                let kind = self.kinds.keys.get(*kind as usize);
                let form = kind.map_or(0, |(_, form, _)| *form);
                for (period, share) in over_time.shares(index, part) {
                    let amount = self.amounts.entry((*period, block.ring, form));
                    *amount.or_default() += part.count * share;
                }
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
