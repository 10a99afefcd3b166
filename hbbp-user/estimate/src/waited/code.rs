//! The direct control flow of the sampled text.

use std::collections::HashSet;

use hbbp_code::blocks::{BlockId, BlockMap, Flow, Form, TextBlocks, direct_target};
use hbbp_code::locate::TextIdx;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Module, ModuleIdx, ModuleKind, Snapshot};
use iced_x86::Mnemonic;

/// An instruction: its text, and its index there.
pub(crate) type Place = (TextIdx, u32);

/// Blocks of a callee that are searched for its returns.
const MOST_BLOCKS: usize = 1024;

/// The direct branches of text.
pub(super) struct Code<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) map: &'a BlockMap,
    /// Each target of direct branches and calls with one of them, sorted.
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
    /// Code of which is known where it leads, but not from where.
    pub(super) const fn new(snapshot: &'a Snapshot, map: &'a BlockMap) -> Self {
        Self {
            snapshot,
            map,
            sources: Vec::new(),
        }
    }

    /// The same with what leads to each place.
    pub(super) fn with_sources(mut self) -> Self {
        for (blocks, text) in self.map.texts.iter().zip((0..).map(TextIdx)) {
            let all = blocks.all_instructions().iter().zip(0..);
            let direct = all.filter(|(instruction, _)| is_direct(instruction.flow));
            let with_target = direct.filter_map(|(_, at)| Some((self.target((text, at))?, (text, at))));
            self.sources.extend(with_target.collect::<Vec<_>>());
        }
        self.sources.sort_unstable();
        self
    }

    /// The instruction at an address: in this text, or else in the last version of another one of its module.
    fn place(&self, idx: TextIdx, text: &TextBlocks, addr: ImageAddr) -> Option<Place> {
        match text.find(addr) {
            Ok(found) => Some((idx, found)),
            Err(_) => self.in_module(text.module, addr),
        }
    }

    fn in_module(&self, module: ModuleIdx, addr: ImageAddr) -> Option<Place> {
        let before = |text: &TextBlocks| (text.module, text.start) <= (module, addr);
        let last = self.map.texts.partition_point(before).checked_sub(1)?;
        let text = self.map.texts.get(last)?;
        let found = text.find(addr).ok().filter(|_| text.module == module)?;
        Some((TextIdx(u32::try_from(last).ok()?), found))
    }

    pub(super) fn block_of(&self, (text, at): Place) -> Option<BlockId> {
        let block = self.map.text(text)?.block_of(at);
        Some(BlockId { text, block })
    }

    /// Where a direct branch or call leads.
    pub(super) fn target(&self, (idx, at): Place) -> Option<Place> {
        let blocks = self.map.text(idx)?;
        let instruction = blocks.instruction(at).filter(|it| is_direct(it.flow))?;
        let bits = self.module(blocks)?.kind.bits();
        let from = instruction.offset as usize;
        let bytes = &self.snapshot.text.get(idx.0 as usize)?.bytes;
        let bytes = bytes.get(from..from + usize::from(instruction.len))?;
        let target = direct_target(bits, bytes, blocks.addr(instruction))?;
        self.place(idx, blocks, target)
    }

    fn module(&self, blocks: &TextBlocks) -> Option<&'a Module> {
        self.snapshot.modules.get(blocks.module.0 as usize)
    }

    pub(super) fn is_of_kernel(&self, text: TextIdx) -> bool {
        let module = self.map.text(text).and_then(|blocks| self.module(blocks));
        module.is_some_and(|module| module.kind.is_kernel())
    }

    /// Where a function of the kernel image begins.
    pub(super) fn kernel_function(&self, name: &str) -> Option<Place> {
        let images = self.snapshot.modules.iter().zip(0..);
        let mut found = images
            .filter(|(module, _)| module.kind == ModuleKind::Kernel)
            .flat_map(|(module, idx)| module.symbols.iter().map(move |symbol| (symbol, ModuleIdx(idx))))
            .filter(|(symbol, _)| symbol.name == name);
        let (symbol, module) = found.next()?;
        self.in_module(module, symbol.start)
    }

    /// What is known of each form, of this instruction.
    pub(super) fn of_form<T: Copy + Default>(&self, of_forms: &[T], (text, at): Place) -> T {
        let found = self.map.text(text).and_then(|blocks| blocks.instruction(at));
        let of_form = found.and_then(|found| of_forms.get(usize::from(found.form.0)));
        of_form.copied().unwrap_or_default()
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
    pub(super) fn branches_to(&self, at: Place) -> impl Iterator<Item = &(Place, Place)> {
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
    pub(super) fn falls(&self, (text, at): Place) -> bool {
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
            let symbols = &self.module(blocks)?.symbols;
            let addr = blocks.addr(blocks.instruction(at)?);
            symbols.binary_search_by_key(&addr, |symbol| symbol.start).ok()
        });
        found.is_some()
    }

    /// The first instruction of the function of the kernel that an instruction is in, or of its text.
    pub(super) fn function_start(&self, (text, at): Place) -> Option<u32> {
        let blocks = self.map.text(text)?;
        let module = self.module(blocks)?;
        let addr = blocks.addr(blocks.instruction(at)?);
        let after = module.symbols.partition_point(|symbol| symbol.start <= addr);
        let symbol = module.symbols.get(after.checked_sub(1)?)?;
        module
            .kind
            .is_kernel()
            .then(|| blocks.find(symbol.start).unwrap_or(0))
    }

    /// The instructions that return to the caller of a function, as far as blocks may be searched. A jump to a thunk that returns
    /// is one (Linux with `rethunk`), and a jump to code without samples.
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
                Some(Flow::Jump) if target.is_none_or(|to| self.flow(to) == Some(Flow::Return)) => {
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

const fn is_direct(flow: Flow) -> bool {
    matches!(flow, Flow::Conditional | Flow::Jump | Flow::Call | Flow::CallNext)
}

/// Whether an instruction repeats itself by a prefix.
pub(super) fn is_string(map: &BlockMap, blocks: &TextBlocks, at: u32) -> bool {
    let form = blocks.instruction(at).map(|instruction| instruction.form);
    let form = form.and_then(|form| map.forms.get(usize::from(form.0)));
    let decoded = form.and_then(Form::decoded);
    decoded.is_some_and(|it| it.is_string_instruction() && (it.has_rep_prefix() || it.has_repne_prefix()))
}
