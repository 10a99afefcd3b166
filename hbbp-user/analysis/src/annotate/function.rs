//! Puts the annotated code of one function together.

use std::collections::BTreeMap;

use iced_x86::IntelFormatter;

use super::annotated::{Annotated, Block, Branch, Line, SourceLine, Version};
use super::code::Code;
use super::disassembly::{formatter, instruction};
use super::hottest::amount;
use super::patched::{StaticText, mark};
use super::versions::{SameBytes, versions};
use crate::mix::Estimated;
use crate::time::cpi;
use hbbp_code::blocks::{BlockId, Flow, TextBlocks, direct_target};
use hbbp_code::locate::{LocatedBranch, TextIdx};
use hbbp_estimate::{BlockCount, BlockCounts, Estimate, Figure, Method, Sum};
use hbbp_model::addr::ImageAddr;
use hbbp_model::names::Demangle;
use hbbp_model::snapshot::{EventIdx, Module, ModuleIdx, Snapshot};

/// The annotated code of a function; `None` if its module or its text is not in the profile.
///
/// `source` says where an instruction is in the source, and `linked` what a static image has instead of the bytes of a
/// version, where these are known.
pub fn annotated(
    estimated: &Estimated<'_>,
    code: &Code,
    demangle: Demangle,
    source: &mut dyn FnMut(ModuleIdx, ImageAddr) -> Option<String>,
    linked: &mut dyn FnMut(ImageAddr, &[u8]) -> Option<StaticText>,
) -> Option<Annotated> {
    let snapshot = estimated.snapshot;
    let module = snapshot.modules.get(code.module.0 as usize)?;
    let found = versions(snapshot, code);
    let mut all = Vec::with_capacity(found.len());
    for same in &found {
        let mut version = Building::new(estimated, module, demangle).version(same, code);
        for (start, bytes) in runs(&version.instructions) {
            if let Some(linked) = linked(start, &bytes) {
                mark(&mut version.instructions, &linked, module, demangle);
            }
        }
        for line in &mut version.instructions {
            line.source = source(code.module, line.addr).map(|place| SourceLine { place, text: None });
        }
        all.push(version);
    }
    let counts = estimated.counts();
    let total = counts.blocks.iter().map(amount).sum();
    (!all.is_empty()).then(|| Annotated {
        code: code.clone(),
        amount: all.iter().map(|version| version.amount).sum(),
        total,
        samples: all
            .iter()
            .flat_map(|version| &version.instructions)
            .map(|line| line.samples)
            .sum(),
        versions: all,
    })
}

/// The bytes of a version that lie side by side, with the address of the first.
pub fn bytes_of(version: &Version) -> Vec<(ImageAddr, Vec<u8>)> {
    runs(&version.instructions)
}

fn runs(lines: &[Line]) -> Vec<(ImageAddr, Vec<u8>)> {
    let end = |line: &Line| line.addr.checked_add(line.bytes.len() as u64);
    let runs = lines.chunk_by(|a, b| end(a) == Some(b.addr));
    let run = |run: &[Line]| {
        let bytes = run.iter().flat_map(|line| line.bytes.iter().copied()).collect();
        Some((run.first()?.addr, bytes))
    };
    runs.filter_map(run).collect()
}

/// What a version is made of.
struct Building<'a> {
    estimated: &'a Estimated<'a>,
    module: &'a Module,
    formatter: IntelFormatter,
    lines: BTreeMap<ImageAddr, Line>,
}

impl<'a> Building<'a> {
    fn new(estimated: &'a Estimated<'a>, module: &'a Module, demangle: Demangle) -> Self {
        Self {
            estimated,
            module,
            formatter: formatter(module, demangle),
            lines: BTreeMap::new(),
        }
    }

    fn version(mut self, same: &SameBytes, code: &Code) -> Version {
        for (text, _) in &same.texts {
            self.add_instructions(*text, code);
            self.add_blocks(*text, code);
            self.add_samples(*text);
            self.add_time(*text);
            self.add_predictions(*text);
        }
        self.divide();
        let branches = self.branches(same);
        let instructions: Vec<Line> = self.lines.into_values().collect();
        Version {
            valid: same.valid.clone(),
            amount: instructions.iter().map(|line| line.executions.value).sum(),
            instructions,
            branches,
        }
    }

    /// Adds the instructions of a text that lie in the code; of texts with the same bytes, each once.
    fn add_instructions(&mut self, idx: TextIdx, code: &Code) {
        let Some((blocks, text)) = self.text(idx) else {
            return;
        };
        for found in blocks.all_instructions() {
            let addr = blocks.addr(*found);
            let at = found.offset as usize;
            let bytes = text.get(at..at + usize::from(found.len)).unwrap_or(&[]);
            if addr < code.start || code.end <= addr || self.lines.contains_key(&addr) {
                continue;
            }
            let text = match found.flow {
                Flow::Invalid => "(bad)".to_owned(),
                _ => instruction(&mut self.formatter, self.module.kind.bits(), addr, bytes),
            };
            let line = Line {
                addr,
                bytes: bytes.to_vec(),
                text,
                flow: found.flow,
                block: None,
                executions: Figure::default(),
                samples: 0,
                time: None,
                cpi: None,
                predictions: None,
                source: None,
                linked: Vec::new(),
            };
            self.lines.insert(addr, line);
        }
    }

    /// Adds the counts of the blocks of a text to their instructions.
    fn add_blocks(&mut self, idx: TextIdx, code: &Code) {
        let map = &self.estimated.map;
        let estimated = self.estimated.counts();
        let counts = &estimated.blocks;
        let Some(blocks) = map.text(idx) else { return };
        for nth in (0..blocks.n_blocks()).filter_map(|nth| u32::try_from(nth).ok()) {
            let id = BlockId {
                text: idx,
                block: nth,
            };
            let instructions = map.instructions(id);
            let starts = instructions.first().map(|first| blocks.addr(*first));
            let Some(start) = starts.filter(|start| code.start <= *start && *start < code.end) else {
                continue;
            };
            let found = counts.binary_search_by_key(&id, |count| count.block).ok();
            let count = found.and_then(|found| counts.get(found));
            if let Some(line) = self.lines.get_mut(&start) {
                let block = line.block.get_or_insert_default();
                count.into_iter().for_each(|count| add(block, count));
            }
            for (instruction, at) in instructions.iter().zip(0..) {
                let figure = found.map(|found| of_instruction(estimated, found, at));
                if let Some((line, figure)) = self.lines.get_mut(&blocks.addr(*instruction)).zip(figure) {
                    line.executions = line.executions.plus(figure);
                }
            }
        }
    }

    /// Adds the samples of the events that serve, or of all where none does.
    fn add_samples(&mut self, idx: TextIdx) {
        let served = &self.estimated.counts().assignment.ebs;
        let serves = |event: &EventIdx| served.is_empty() || served.contains(event);
        let ips = &self.estimated.located.ips;
        let Some(blocks) = self.estimated.map.text(idx) else {
            return;
        };
        let first = ips.partition_point(|ip| ip.location.text < idx);
        let of_text = ips.get(first..).unwrap_or(&[]).iter();
        for ip in of_text
            .take_while(|ip| ip.location.text == idx)
            .filter(|ip| serves(&ip.event))
        {
            // An address after a prefix belongs to the instruction with it.
            let at = blocks
                .find(ip.location.addr)
                .ok()
                .and_then(|at| blocks.instruction(at));
            if let Some(line) = at.and_then(|at| self.lines.get_mut(&blocks.addr(at))) {
                line.samples = line.samples.saturating_add(ip.hits);
            }
        }
    }

    /// Adds the time at the instructions of a text, where time was sampled as well.
    fn add_time(&mut self, idx: TextIdx) {
        let (Some(time), Some(blocks)) = (self.estimated.time(), self.estimated.map.text(idx)) else {
            return;
        };
        for (nth, instruction) in (0..).zip(blocks.all_instructions()) {
            if let Some(line) = self.lines.get_mut(&blocks.addr(*instruction)) {
                let spent = time.figure(time.at(idx, &(nth..nth + 1)));
                line.time = Some(line.time.map_or(spent, |before| before.plus(spent)));
            }
        }
    }

    /// Adds the predictions of the branches of a text, wherever they led to.
    fn add_predictions(&mut self, idx: TextIdx) {
        for branch in self.branches_of(idx) {
            if let Some((line, wrong)) = self.lines.get_mut(&branch.from.addr).zip(branch.mispredicted) {
                let sum = line.predictions.get_or_insert_default();
                sum.known = sum.known.saturating_add(branch.hits);
                sum.wrong = sum.wrong.saturating_add(wrong);
            }
        }
    }

    /// The recorded branches of a text.
    fn branches_of(&self, idx: TextIdx) -> impl Iterator<Item = &'a LocatedBranch> + use<'a> {
        let recorded = &self.estimated.located.branches;
        let first = recorded.partition_point(|branch| branch.from.text < idx);
        let from_first = recorded.get(first..).unwrap_or(&[]).iter();
        from_first.take_while(move |branch| branch.from.text == idx)
    }

    /// Divides the time of each line by its executions.
    fn divide(&mut self) {
        for line in self.lines.values_mut() {
            line.cpi = line.time.and_then(|time| cpi(time, line.executions));
        }
    }

    /// The branches within the version: those that were recorded, and direct ones in the code.
    fn branches(&self, same: &SameBytes) -> Vec<Branch> {
        let mut branches: BTreeMap<(ImageAddr, ImageAddr), Option<u64>> = BTreeMap::new();
        for line in self
            .lines
            .values()
            .filter(|line| matches!(line.flow, Flow::Jump | Flow::Conditional))
        {
            let target = direct_target(self.module.kind.bits(), &line.bytes, line.addr);
            if let Some(target) = target.filter(|target| self.lines.contains_key(target)) {
                branches.insert((line.addr, target), None);
            }
        }
        for (text, _) in &same.texts {
            for branch in self.branches_of(*text) {
                let inside = |addr: &ImageAddr| self.lines.contains_key(addr);
                let to = branch
                    .to
                    .filter(|to| same.texts.iter().any(|(text, _)| *text == to.text));
                let Some(to) = to.filter(|to| inside(&branch.from.addr) && inside(&to.addr)) else {
                    continue;
                };
                let taken = branches.entry((branch.from.addr, to.addr)).or_default();
                *taken = Some(taken.unwrap_or(0).saturating_add(branch.hits));
            }
        }
        let branch = |((from, to), taken)| Branch { from, to, taken };
        branches.into_iter().map(branch).collect()
    }

    fn text(&self, idx: TextIdx) -> Option<(&'a TextBlocks, &'a [u8])> {
        let snapshot: &Snapshot = self.estimated.snapshot;
        let text = snapshot.text.get(idx.0 as usize)?;
        Some((self.estimated.map.text(idx)?, &text.bytes))
    }
}

/// What is estimated of one instruction of a block, by their indices: of executions, as of all others of the block.
fn of_instruction(counts: &BlockCounts, block: usize, instruction: u32) -> Figure {
    let Some(count) = counts.blocks.get(block) else {
        return Figure::default();
    };
    if counts.waited.is_none() {
        let Estimate { count, std_error, .. } = count.chosen();
        return Figure {
            value: count,
            std_error,
        };
    }
    let mut sum = Sum::default();
    let parts = counts.parts_of(block).iter();
    parts
        .filter(|part| part.is_of(instruction))
        .for_each(|part| sum.add(part, count, 1.0, counts));
    match sum.amount() {
        amount if 0.0 < amount => Figure::new(amount, sum.variance(counts)),
        _ => Figure::default(),
    }
}

/// Adds the counts of a block to those of the same block in another text with the same bytes. The method with the greater
/// count names the sum.
fn add(sum: &mut Block, count: &BlockCount) {
    sum.ebs = both(sum.ebs, count.ebs);
    sum.lbr = both(sum.lbr, count.lbr);
    sum.biased |= count.biased;
    let chosen = count.chosen();
    sum.chosen = Some(match sum.chosen {
        None => (chosen, count.method, count.reason),
        Some((before, method, reason)) => {
            let (method, reason): (Method, _) = if before.count < chosen.count {
                (count.method, count.reason)
            } else {
                (method, reason)
            };
            (plus(before, chosen), method, reason)
        }
    });
}

fn both(a: Option<Estimate>, b: Option<Estimate>) -> Option<Estimate> {
    match (a, b) {
        (Some(a), Some(b)) => Some(plus(a, b)),
        (a, b) => a.or(b),
    }
}

/// The sum of two estimates from different times of the run, whose samples are independent.
fn plus(a: Estimate, b: Estimate) -> Estimate {
    Estimate {
        hits: a.hits + b.hits,
        count: a.count + b.count,
        std_error: a.std_error.hypot(b.std_error),
    }
}
