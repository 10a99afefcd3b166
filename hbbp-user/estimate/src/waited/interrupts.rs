//! Time with interrupts off: the interrupt of a clock is held back until they are turned on, and lands there.
//!
//! It lands behind POPF, or behind the instruction after STI, which still holds interrupts back (Intel SDM volume 2, STI). Where the
//! code above turns interrupts off, in the same function and without a jump away, the time belongs to what is between. No
//! sample says where in it, so its instructions share it equally. Where the code shows no such place, as in a function that
//! releases a lock that its caller took, the time stays where interrupts were turned on.

use std::ops::RangeInclusive;

use hbbp_code::blocks::{BlockMap, Flow, Form, TextBlocks};
use hbbp_model::snapshot::{Module, Snapshot};
use iced_x86::Mnemonic;

/// Instructions that are searched for what turned interrupts off.
const MOST_INSTRUCTIONS: u32 = 512;

/// What an instruction does to interrupts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Effect {
    #[default]
    None,
    /// CLI.
    Off,
    /// STI: they are on behind the next instruction.
    OnAfterNext,
    /// POPF, which as a rule restores that they are on.
    On,
}

/// The effects of all forms.
pub(super) struct Interrupts {
    of_forms: Vec<Effect>,
}

impl Interrupts {
    pub(super) fn new(map: &BlockMap) -> Self {
        let effect = |form: &Form| match form.decoded().map(|decoded| decoded.mnemonic()) {
            Some(Mnemonic::Cli) => Effect::Off,
            Some(Mnemonic::Sti) => Effect::OnAfterNext,
            Some(Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq) => Effect::On,
            _ => Effect::None,
        };
        Self {
            of_forms: map.forms.iter().map(effect).collect(),
        }
    }

    fn effect(&self, blocks: &TextBlocks, at: u32) -> Effect {
        let form = blocks.instruction(at).map(|instruction| instruction.form);
        let effect = form.and_then(|form| self.of_forms.get(usize::from(form.0)));
        effect.copied().unwrap_or_default()
    }

    /// Whether time that an instruction of the kernel is charged with passed before interrupts were turned on there: the
    /// instruction that did it.
    pub(super) fn turned_on(&self, snapshot: &Snapshot, blocks: &TextBlocks, at: u32) -> Option<u32> {
        let module = snapshot.modules.get(blocks.module.0 as usize)?;
        let before = at.checked_sub(1);
        let sti = before.filter(|before| self.effect(blocks, *before) == Effect::OnAfterNext);
        let on = match self.effect(blocks, at) {
            Effect::On => at,
            _ => sti?,
        };
        module.kind.is_kernel().then_some(on)
    }

    /// The instructions with interrupts off before they were turned on, if the code shows them.
    pub(super) fn held_back(
        &self,
        snapshot: &Snapshot,
        blocks: &TextBlocks,
        on: u32,
    ) -> Option<RangeInclusive<u32>> {
        let module = snapshot.modules.get(blocks.module.0 as usize)?;
        let first = function_start(module, blocks, on)?;
        let above = (first..on).rev().take(MOST_INSTRUCTIONS as usize);
        for n in above {
            match self.effect(blocks, n) {
                Effect::Off => return Some(n + 1..=on),
                Effect::On | Effect::OnAfterNext => return None,
                Effect::None => {}
            }
            let flow = blocks.instruction(n)?.flow;
            if !matches!(
                flow,
                Flow::Next | Flow::Conditional | Flow::Call | Flow::IndirectCall
            ) {
                return None;
            }
        }
        None
    }
}

/// The first instruction of the function that an instruction is in, or of its text.
fn function_start(module: &Module, blocks: &TextBlocks, at: u32) -> Option<u32> {
    let addr = blocks.addr(blocks.instruction(at)?);
    let after = module.symbols.partition_point(|symbol| symbol.start <= addr);
    let symbol = module.symbols.get(after.checked_sub(1)?)?;
    module
        .kind
        .is_kernel()
        .then(|| blocks.find(symbol.start).unwrap_or(0))
}
