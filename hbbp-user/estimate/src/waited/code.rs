//! The direct control flow of the sampled text.

use std::collections::{BTreeSet, HashSet};

use crate::sources::ebs::Hits;
use hbbp_code::blocks::{BlockId, BlockMap, Flow, Form, TextBlocks, direct_target};
use hbbp_code::locate::TextIdx;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{ModuleIdx, Snapshot};
use iced_x86::Mnemonic;

/// An instruction: its text, and its index there.
pub(crate) type Place = (TextIdx, u32);

/// Blocks of a callee that are searched for its returns.
const MOST_BLOCKS: usize = 1024;

/// The direct branches of the sampled text.
pub(super) struct Code<'a> {
    snapshot: &'a Snapshot,
    pub(super) map: &'a BlockMap,
    /// Each direct branch or call with its target, sorted.
    targets: Vec<(Place, Place)>,
    /// The same by target, sorted.
    sources: Vec<(Place, Place)>,
}

/// Ways into a block.
#[derive(Default)]
pub(super) struct Ways {
    pub(super) from: Vec<Place>,
    /// Whether control can have come from elsewhere, too.
    pub(super) is_open: bool,
}

impl<'a> Code<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, map: &'a BlockMap, hits: &Hits) -> Self {
        let mut code = Self {
            snapshot,
            map,
            targets: Vec::new(),
            sources: Vec::new(),
        };
        let texts: BTreeSet<TextIdx> = hits.keys().map(|(text, _)| *text).collect();
        for text in &texts {
            code.add_branches(*text, &texts);
        }
        code.sources = code.targets.iter().map(|(from, to)| (*to, *from)).collect();
        code.sources.sort_unstable();
        code
    }

    fn add_branches(&mut self, idx: TextIdx, texts: &BTreeSet<TextIdx>) -> Option<()> {
        let blocks = self.map.text(idx)?;
        let bits = self.snapshot.modules.get(blocks.module.0 as usize)?.kind.bits();
        let text = self.snapshot.text.get(idx.0 as usize)?;
        for (instruction, at) in blocks.all_instructions().iter().zip(0..) {
            let is_direct = matches!(
                instruction.flow,
                Flow::Conditional | Flow::Jump | Flow::Call | Flow::CallNext
            );
            let from = instruction.offset as usize;
            let bytes = text.bytes.get(from..from + usize::from(instruction.len));
            let Some(bytes) = bytes.filter(|_| is_direct) else {
                continue;
            };
            let target = direct_target(bits, bytes, blocks.addr(*instruction));
            let place = target.and_then(|target| self.place(idx, blocks, target));
            if let Some(place) = place.filter(|(text, _)| texts.contains(text)) {
                self.targets.push(((idx, at), place));
            }
        }
        Some(())
    }

    /// The instruction at an address: in this text, or else in the last version of another one of its module.
    fn place(&self, idx: TextIdx, text: &TextBlocks, addr: ImageAddr) -> Option<Place> {
        if let Ok(found) = text.find(addr) {
            return Some((idx, found));
        }
        let before = |other: &TextBlocks| (other.module, other.start) <= (text.module, addr);
        let last = self.map.texts.partition_point(before).checked_sub(1)?;
        let other = self.map.texts.get(last)?;
        let found = other.find(addr).ok().filter(|_| other.module == text.module)?;
        Some((TextIdx(u32::try_from(last).ok()?), found))
    }

    pub(super) fn block_of(&self, (text, at): Place) -> Option<BlockId> {
        let block = self.map.text(text)?.block_of(at);
        Some(BlockId { text, block })
    }

    /// Where a direct branch or call leads.
    pub(super) fn target(&self, from: Place) -> Option<Place> {
        let found = self.targets.binary_search_by_key(&from, |(from, _)| *from);
        found
            .ok()
            .and_then(|found| self.targets.get(found))
            .map(|(_, to)| *to)
    }

    pub(super) fn flow(&self, (text, at): Place) -> Option<Flow> {
        Some(self.map.text(text)?.instruction(at)?.flow)
    }

    /// Whether a block begins here.
    pub(super) fn begins_block(&self, (text, at): Place) -> bool {
        let blocks = self.map.text(text);
        blocks.is_some_and(|blocks| blocks.block(blocks.block_of(at)).start == at)
    }

    /// The call that comes back to here.
    pub(super) fn call_before(&self, (text, at): Place) -> Option<Place> {
        let before = (text, at.checked_sub(1)?);
        let flow = self.flow(before)?;
        matches!(flow, Flow::Call | Flow::IndirectCall).then_some(before)
    }

    /// The ways into a block that begins here, without returns.
    pub(super) fn ways(&self, (text, at): Place) -> Ways {
        let mut ways = Ways::default();
        let above = at.checked_sub(1).map(|before| (text, before));
        ways.from.extend(above.filter(|above| self.falls(*above)));
        for (_, from) in self.branches_to((text, at)) {
            ways.is_open |= self.flow(*from) == Some(Flow::Call);
            ways.from.push(*from);
        }
        ways.is_open |= self.is_named(text, at);
        ways
    }

    /// The direct branches and calls to an instruction: itself, and each of them.
    fn branches_to(&self, at: Place) -> impl Iterator<Item = &(Place, Place)> {
        let first = self.sources.partition_point(|(to, _)| *to < at);
        let branches = self.sources.get(first..).unwrap_or_default().iter();
        branches.take_while(move |(to, _)| *to == at)
    }

    /// Whether control comes to a block that begins here from one place alone.
    pub(super) fn is_only_way(&self, from: Place, (text, at): Place) -> bool {
        let above = at.checked_sub(1).map(|before| (text, before));
        let above = above.filter(|above| self.falls(*above));
        let is_other = |way: Place| way != from;
        !above.is_some_and(is_other)
            && !self.branches_to((text, at)).any(|(_, way)| is_other(*way))
            && self.call_before((text, at)).is_none()
            && !self.is_named(text, at)
    }

    /// Whether control goes on behind an instruction. It does not behind the INT3 that fills gaps between functions.
    fn falls(&self, (text, at): Place) -> bool {
        let found = self.map.text(text).and_then(|blocks| blocks.instruction(at));
        found.is_some_and(|found| match found.flow {
            Flow::Next | Flow::Idle | Flow::Conditional => true,
            Flow::SystemCall => {
                let form = self.map.forms.get(usize::from(found.form.0));
                form.and_then(Form::decoded)
                    .is_some_and(|decoded| decoded.mnemonic() != Mnemonic::Int3)
            }
            _ => false,
        })
    }

    /// Whether a symbol begins here: then anything may call it.
    fn is_named(&self, text: TextIdx, at: u32) -> bool {
        let found = self.map.text(text).and_then(|blocks| {
            let ModuleIdx(module) = blocks.module;
            let symbols = &self.snapshot.modules.get(module as usize)?.symbols;
            let addr = blocks.addr(blocks.instruction(at)?);
            symbols.binary_search_by_key(&addr, |symbol| symbol.start).ok()
        });
        found.is_some()
    }

    /// The instructions that return to the caller of a function, as far as blocks may be searched.
    pub(super) fn returns(&self, entry: Place, work_left: &mut usize) -> Vec<Place> {
        let mut seen = HashSet::from([entry]);
        let (mut left, mut returns) = (vec![entry], Vec::new());
        while let Some((text, at)) = left.pop() {
            let Some(blocks) = self.map.text(text) else {
                continue;
            };
            let Some(last) = blocks.block(blocks.block_of(at)).end.checked_sub(1) else {
                continue;
            };
            let (target, next) = (self.target((text, last)), (text, last + 1));
            let onward = match self.flow((text, last)) {
                Some(Flow::Return) => {
                    returns.push((text, last));
                    [None, None]
                }
                Some(Flow::Jump | Flow::CallNext) => [target, None],
                Some(Flow::Conditional) => [target, Some(next)],
                Some(Flow::Next | Flow::Idle | Flow::Call | Flow::IndirectCall | Flow::SystemCall) => {
                    [Some(next), None]
                }
                _ => [None, None],
            };
            for to in onward.into_iter().flatten() {
                if 0 < *work_left && seen.len() < MOST_BLOCKS && seen.insert(to) {
                    left.push(to);
                    *work_left -= 1;
                }
            }
        }
        returns.sort_unstable();
        returns
    }
}

/// Whether an instruction repeats itself by a prefix.
pub(super) fn is_string(map: &BlockMap, blocks: &TextBlocks, at: u32) -> bool {
    let form = blocks.instruction(at).map(|instruction| instruction.form);
    let form = form.and_then(|form| map.forms.get(usize::from(form.0)));
    let decoded = form.and_then(Form::decoded);
    decoded.is_some_and(|it| it.is_string_instruction() && (it.has_rep_prefix() || it.has_repne_prefix()))
}
