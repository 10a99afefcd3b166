//! What can have run before a block, as the code alone tells: without branch stacks nothing else does.
//!
//! The ways into a block are the block above, direct branches and calls to it, and after a direct call the returns of its
//! callee. A single way was taken each time. Several divide the samples by those in the blocks that they come from. If none of these
//! has any, or control came by an indirect branch or call, the predecessor is not known.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

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

/// Blocks that are looked back over where a block has no samples of its own, such as one that is a single jump.
const FARTHEST: usize = 3;

/// Ways into each of them that are followed.
const MOST_WAYS: usize = 8;

/// The predecessors of all blocks whose first instruction was sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WaysIn {
    of: BTreeMap<Place, Vec<(Place, f64)>>,
}

impl WaysIn {
    /// Of blocks with these samples.
    pub(crate) fn new(snapshot: &Snapshot, map: &BlockMap, hits: &Hits) -> Self {
        let code = Code::new(snapshot, map, hits);
        let mut returns = HashMap::new();
        let starts = hits.keys().filter(|(text, at)| {
            let blocks = map.text(*text);
            blocks.is_some_and(|blocks| blocks.block(blocks.block_of(*at)).start == *at)
        });
        let of = starts.map(|at| (*at, code.predecessors(*at, &mut returns)));
        Self {
            of: of.filter(|(_, from)| !from.is_empty()).collect(),
        }
    }

    /// The predecessors of the block that begins here, each with its share; none where they are not known.
    pub(crate) fn of(&self, at: Place) -> &[(Place, f64)] {
        self.of.get(&at).map_or(&[], Vec::as_slice)
    }
}

/// The direct branches of the sampled text, and the samples of its blocks.
struct Code<'a> {
    snapshot: &'a Snapshot,
    map: &'a BlockMap,
    samples: HashMap<BlockId, f64>,
    /// Each direct branch or call with its target, sorted.
    targets: Vec<(Place, Place)>,
    /// The same by target, sorted.
    sources: Vec<(Place, Place)>,
}

/// Ways into a block.
#[derive(Default)]
struct Ways {
    from: Vec<Place>,
    /// Whether control can have come from elsewhere, too.
    is_open: bool,
}

impl<'a> Code<'a> {
    fn new(snapshot: &'a Snapshot, map: &'a BlockMap, hits: &Hits) -> Self {
        let mut code = Self {
            snapshot,
            map,
            samples: HashMap::new(),
            targets: Vec::new(),
            sources: Vec::new(),
        };
        let mut texts: BTreeSet<TextIdx> = BTreeSet::new();
        for ((text, at), samples) in hits {
            texts.insert(*text);
            if let Some(block) = code.block_of((*text, *at)) {
                *code.samples.entry(block).or_default() += samples;
            }
        }
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

    fn block_of(&self, (text, at): Place) -> Option<BlockId> {
        let block = self.map.text(text)?.block_of(at);
        Some(BlockId { text, block })
    }

    /// Where a direct branch or call leads.
    fn target(&self, from: Place) -> Option<Place> {
        let found = self.targets.binary_search_by_key(&from, |(from, _)| *from);
        found
            .ok()
            .and_then(|found| self.targets.get(found))
            .map(|(_, to)| *to)
    }

    fn flow(&self, (text, at): Place) -> Option<Flow> {
        Some(self.map.text(text)?.instruction(at)?.flow)
    }

    /// The predecessors of a block that begins here, each with its share.
    fn predecessors(&self, at: Place, returns: &mut HashMap<Place, Vec<Place>>) -> Vec<(Place, f64)> {
        let mut ways = self.ways(at);
        if let Some(call) = self.call_before(at) {
            let callee = self.target(call);
            let found = callee.map(|callee| returns.entry(callee).or_insert_with(|| self.returns(callee)));
            match found {
                Some(found) if !found.is_empty() => ways.from.extend(found.iter()),
                _ => ways.is_open = true,
            }
        }
        if let ([only], false) = (ways.from.as_slice(), ways.is_open) {
            return vec![(*only, 1.0)];
        }
        let weighed = |from: &Place| (*from, self.weight(*from, FARTHEST));
        shares(ways.from.iter().map(weighed).collect())
    }

    /// The call that comes back to here.
    fn call_before(&self, (text, at): Place) -> Option<Place> {
        let before = (text, at.checked_sub(1)?);
        let flow = self.flow(before)?;
        matches!(flow, Flow::Call | Flow::IndirectCall).then_some(before)
    }

    /// The ways into a block that begins here, without returns.
    fn ways(&self, (text, at): Place) -> Ways {
        let mut ways = Ways::default();
        let above = at.checked_sub(1).map(|before| (text, before));
        ways.from.extend(above.filter(|above| self.falls(*above)));
        let first = self.sources.partition_point(|(to, _)| *to < (text, at));
        let branches = self.sources.get(first..).unwrap_or_default().iter();
        for (_, from) in branches.take_while(|(to, _)| *to == (text, at)) {
            ways.is_open |= self.flow(*from) == Some(Flow::Call);
            ways.from.push(*from);
        }
        ways.is_open |= self.is_named(text, at);
        ways
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

    /// The samples of the block that ends here; of one without any, those of a block that leads to it.
    fn weight(&self, from: Place, farthest: usize) -> f64 {
        let Some(block) = self.block_of(from) else {
            return 0.0;
        };
        let own = self.samples.get(&block).copied().unwrap_or_default();
        let Some(farther) = farthest.checked_sub(1).filter(|_| own <= 0.0) else {
            return own;
        };
        let start = self
            .map
            .text(block.text)
            .map_or(0, |text| text.block(block.block).start);
        let ways = self.ways((block.text, start));
        let before = ways.from.iter().take(MOST_WAYS);
        before.map(|way| self.weight(*way, farther)).fold(0.0, f64::max)
    }

    /// The instructions that return to the caller of a function.
    fn returns(&self, entry: Place) -> Vec<Place> {
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
                if seen.len() < MOST_BLOCKS && seen.insert(to) {
                    left.push(to);
                }
            }
        }
        returns.sort_unstable();
        returns
    }
}

/// Weights as shares of their sum, without those that have none.
pub(super) fn shares(mut weights: Vec<(Place, f64)>) -> Vec<(Place, f64)> {
    weights.retain(|(_, weight)| 0.0 < *weight);
    let all: f64 = weights.iter().map(|(_, weight)| weight).sum();
    weights.iter_mut().for_each(|(_, weight)| *weight /= all);
    weights
}
