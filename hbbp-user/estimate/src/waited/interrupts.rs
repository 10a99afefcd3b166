//! Time with interrupts off: the interrupt of a clock is held back until they are turned on, and lands there.
//!
//! It lands behind POPF, or behind the instruction after STI, which still holds interrupts back (Intel SDM volume 2, STI). Where the
//! code above turns interrupts off, in the same function and without a jump away, the time belongs to what is between. No
//! sample says where in it, so its instructions share it by the times that are known of them, those in loops more often. Where
//! the code shows no such place, as in a function that releases a lock that its caller took, the time stays where interrupts
//! were turned on.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::code::Place;
use super::ways_in::shares;
use crate::kinds_of_forms::kinds_of_forms;
use hbbp_code::blocks::{BlockMap, Flow, Form, TextBlocks, direct_target};
use hbbp_code::locate::TextIdx;
use hbbp_model::kinds::KNOWN_TIMES;
use hbbp_model::snapshot::{Module, Snapshot};
use iced_x86::Mnemonic;

/// Instructions that are searched for what turned interrupts off.
const MOST_INSTRUCTIONS: u32 = 512;

/// Iterations that are assumed of a loop: LLVM's, whose branch back is taken 124 times in 128 (BranchProbabilityInfo.cpp,
/// `LBH_TAKEN_WEIGHT`).
const ITERATIONS: f64 = 32.0;

/// Loops within each other that are told apart.
const DEEPEST: i32 = 4;

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
pub(super) struct Interrupts<'a> {
    snapshot: &'a Snapshot,
    map: &'a BlockMap,
    of_forms: Vec<Effect>,
    kinds: Vec<u8>,
}

impl<'a> Interrupts<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, map: &'a BlockMap) -> Self {
        let effect = |form: &Form| match form.decoded().map(|decoded| decoded.mnemonic()) {
            Some(Mnemonic::Cli) => Effect::Off,
            Some(Mnemonic::Sti) => Effect::OnAfterNext,
            Some(Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq) => Effect::On,
            _ => Effect::None,
        };
        Self {
            snapshot,
            map,
            of_forms: map.forms.iter().map(effect).collect(),
            kinds: kinds_of_forms(&map.forms),
        }
    }

    fn effect(&self, blocks: &TextBlocks, at: u32) -> Effect {
        let form = blocks.instruction(at).map(|instruction| instruction.form);
        let effect = form.and_then(|form| self.of_forms.get(usize::from(form.0)));
        effect.copied().unwrap_or_default()
    }

    /// The region that time at an instruction of the kernel was spent in, if it passed before interrupts were turned on there.
    pub(super) fn held_back(&self, at: Place) -> HeldBack {
        let found = self.map.text(at.0).and_then(|blocks| {
            let on = self.turned_on(blocks, at.1)?;
            Some(match self.region(blocks, on) {
                Some(region) => HeldBack::Within(self.shares(blocks, at.0, region)),
                None => HeldBack::Unknown,
            })
        });
        found.unwrap_or(HeldBack::Not)
    }

    /// The instruction that turned interrupts on before the one behind `at`.
    fn turned_on(&self, blocks: &TextBlocks, at: u32) -> Option<u32> {
        let module = self.snapshot.modules.get(blocks.module.0 as usize)?;
        let before = at.checked_sub(1);
        let sti = before.filter(|before| self.effect(blocks, *before) == Effect::OnAfterNext);
        let on = match self.effect(blocks, at) {
            Effect::On => at,
            _ => sti?,
        };
        module.kind.is_kernel().then_some(on)
    }

    /// The instructions with interrupts off before they were turned on, if the code shows them.
    fn region(&self, blocks: &TextBlocks, on: u32) -> Option<RangeInclusive<u32>> {
        let module = self.snapshot.modules.get(blocks.module.0 as usize)?;
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

    /// The instructions of a region, each with its share of the time.
    fn shares(&self, blocks: &TextBlocks, text: TextIdx, region: RangeInclusive<u32>) -> Vec<(Place, f64)> {
        let nested = self.nested(blocks, text, &region);
        let weight = |(at, depth): (u32, i32)| {
            let form = blocks
                .instruction(at)
                .map(|instruction| usize::from(instruction.form.0));
            let kind = form
                .and_then(|form| self.kinds.get(form))
                .copied()
                .unwrap_or_default();
            let (time, _) = KNOWN_TIMES.get(usize::from(kind)).copied().unwrap_or_default();
            ((text, at), time * ITERATIONS.powi(depth.min(DEEPEST)))
        };
        shares(region.zip(nested).map(weight).collect())
    }

    /// The loops of a region that each of its instructions is in. Branches back to one instruction are one loop.
    fn nested(&self, blocks: &TextBlocks, text: TextIdx, region: &RangeInclusive<u32>) -> Vec<i32> {
        let mut ends: BTreeMap<u32, u32> = BTreeMap::new();
        for from in region.clone() {
            if let Some(head) = self.branch_back(blocks, text, from)
                && region.contains(&head)
            {
                ends.insert(head, from);
            }
        }
        let loops_of = |at: u32| ends.range(..=at).filter(|(_, end)| at <= **end).count();
        region
            .clone()
            .map(|at| i32::try_from(loops_of(at)).unwrap_or(DEEPEST))
            .collect()
    }

    /// Where a conditional branch leads, if that is above it.
    fn branch_back(&self, blocks: &TextBlocks, TextIdx(text): TextIdx, from: u32) -> Option<u32> {
        let instruction = blocks
            .instruction(from)
            .filter(|it| it.flow == Flow::Conditional)?;
        let bits = self.snapshot.modules.get(blocks.module.0 as usize)?.kind.bits();
        let start = instruction.offset as usize;
        let bytes = &self.snapshot.text.get(text as usize)?.bytes;
        let bytes = bytes.get(start..start + usize::from(instruction.len))?;
        let target = direct_target(bits, bytes, blocks.addr(instruction))?;
        blocks.find(target).ok().filter(|target| *target <= from)
    }
}

/// Where time passed that was sampled behind an instruction.
pub(super) enum HeldBack {
    /// There.
    Not,
    /// Before interrupts were turned on, which the code does not show.
    Unknown,
    /// In these instructions, by their shares.
    Within(Vec<(Place, f64)>),
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
