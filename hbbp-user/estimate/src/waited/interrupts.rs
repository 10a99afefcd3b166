//! Time with interrupts off: the interrupt of a clock is held back until they are turned on, and lands there.
//!
//! It lands behind POPF, or behind the instruction after STI, which still holds interrupts back (Intel SDM volume 2, STI). Where the
//! code above turns interrupts off, in the same function and without a jump away, the time belongs to what is between. No
//! sample says where in it, so its instructions share it by their times ([`Times`]), those in loops more often. Where
//! the code shows no such place, as in a function that releases a lock that its caller took, the time stays where interrupts
//! were turned on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::code::{Code, Place, is_string};
use super::shares::shares;
use super::times::Times;
use crate::sources::ebs::Hits;
use hbbp_code::blocks::{Flow, Form};
use hbbp_code::locate::TextIdx;
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
pub(super) enum Effect {
    #[default]
    None,
    /// CLI.
    Off,
    /// STI: they are on behind the next instruction.
    OnAfterNext,
    /// POPF, which as a rule restores that they are on.
    On,
    /// SYSCALL: they are off in the kernel, whose mask has RFLAGS.IF (arch/x86/kernel/cpu/common.c, `syscall_init`).
    Call,
    /// SYSRET: they are on in user code.
    Return,
}

/// Where time passed that was sampled behind an instruction.
#[derive(Debug)]
pub(super) enum HeldBack {
    /// There.
    Not,
    /// Before interrupts were turned on, which the code does not show.
    Unknown,
    /// In these instructions, by their shares.
    Within(Vec<(Place, f64)>),
}

/// What turns interrupts off and on in code.
pub(super) struct Interrupts<'a> {
    pub(super) code: Code<'a>,
    of_forms: Vec<Effect>,
    /// Instructions that are known to run with interrupts off.
    off: BTreeSet<Place>,
}

impl<'a> Interrupts<'a> {
    pub(super) fn new(code: Code<'a>) -> Self {
        let effect = |form: &Form| match form.decoded().map(|decoded| decoded.mnemonic()) {
            Some(Mnemonic::Cli) => Effect::Off,
            Some(Mnemonic::Sti) => Effect::OnAfterNext,
            Some(Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq) => Effect::On,
            Some(Mnemonic::Syscall) => Effect::Call,
            Some(Mnemonic::Sysret | Mnemonic::Sysretq) => Effect::Return,
            _ => Effect::None,
        };
        Self {
            of_forms: code.map.forms.iter().map(effect).collect(),
            code,
            off: BTreeSet::new(),
        }
    }

    /// Finds what ran with interrupts off before there were samples, and adds other instructions of which this is known.
    pub(super) fn find_off<'b>(&mut self, hits: &Hits, others: impl Iterator<Item = &'b Place>) {
        let mut off: BTreeSet<Place> = others.copied().collect();
        for (text, at) in hits.keys() {
            let before = at.checked_sub(1).map(|before| (*text, before));
            let on = before.and_then(|before| self.turned_on(before));
            let region = on.and_then(|on| self.region(*text, on));
            off.extend(region.into_iter().flatten().map(|at| (*text, at)));
        }
        self.off = off;
    }

    pub(super) fn effect(&self, at: Place) -> Effect {
        self.code.of_form(&self.of_forms, at)
    }

    /// Whether an instruction is a SYSCALL of user code.
    pub(super) fn is_call(&self, at: Place) -> bool {
        self.effect(at) == Effect::Call && !self.code.is_of_kernel(at.0)
    }

    /// The instruction of the kernel that turned interrupts on before the one behind `at`.
    pub(super) fn turned_on(&self, at: Place) -> Option<u32> {
        let before = at.1.checked_sub(1).map(|before| (at.0, before));
        let on = match self.effect(at) {
            Effect::On => at,
            _ => before.filter(|before| self.effect(*before) == Effect::OnAfterNext)?,
        };
        self.code.is_of_kernel(on.0).then_some(on.1)
    }

    /// Whether the samples behind an instruction are of its own time: those at a string instruction are its own, and none comes
    /// while interrupts are off.
    pub(super) fn has_own_samples(&self, (text, at): Place) -> bool {
        let blocks = self.code.map.text(text);
        let is_string = blocks.is_some_and(|blocks| is_string(self.code.map, blocks, at + 1));
        !is_string && !self.off.contains(&(text, at)) && self.turned_on((text, at)).is_none()
    }

    /// The region that time at an instruction of the kernel was spent in, if it passed before interrupts were turned on there.
    pub(super) fn held_back(&self, at: Place, times: &Times) -> HeldBack {
        let Some(on) = self.turned_on(at) else {
            return HeldBack::Not;
        };
        match self.region(at.0, on) {
            Some(region) => HeldBack::Within(self.shares(at.0, region, times)),
            None => HeldBack::Unknown,
        }
    }

    /// The instructions with interrupts off before they were turned on, if the code shows them.
    fn region(&self, text: TextIdx, on: u32) -> Option<RangeInclusive<u32>> {
        let first = self.code.function_start((text, on))?;
        let above = (first..on).rev().take(MOST_INSTRUCTIONS as usize);
        for n in above {
            match self.effect((text, n)) {
                Effect::Off => return Some(n + 1..=on),
                Effect::On | Effect::OnAfterNext => return None,
                _ => {}
            }
            let flow = self.code.flow((text, n))?;
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
    fn shares(&self, text: TextIdx, region: RangeInclusive<u32>, times: &Times) -> Vec<(Place, f64)> {
        let nested = self.nested(text, &region);
        let weight = |(at, depth): (u32, i32)| {
            let time = times.of(&self.code, (text, at)).cycles;
            ((text, at), time * ITERATIONS.powi(depth.min(DEEPEST)))
        };
        shares(region.zip(nested).map(weight).collect())
    }

    /// The loops of a region that each of its instructions is in. Branches back to one instruction are one loop.
    fn nested(&self, text: TextIdx, region: &RangeInclusive<u32>) -> Vec<i32> {
        let mut ends: BTreeMap<u32, u32> = BTreeMap::new();
        for from in region.clone() {
            let is_conditional = self.code.flow((text, from)) == Some(Flow::Conditional);
            let target = self.code.target((text, from)).filter(|_| is_conditional);
            if let Some((to, head)) = target
                && to == text
                && head <= from
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
}
