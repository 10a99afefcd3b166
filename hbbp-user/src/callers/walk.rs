//! Walks a call chain outwards, as far as each caller is proved by the text.
//!
//! In the kernel, return addresses come from ORC, which knows every frame, and it goes on where an interrupt struck: that is
//! no caller, and the instruction before is no call. User code has frame pointers or has not. With them the return address of a
//! function stands above the frame pointer from its `push rbp; mov rbp, rsp` up to where it takes it back (System V AMD64 ABI,
//! 3.2.2); elsewhere the kernel reads what an outer function, or anything else, left there
//! (`perf_callchain_user` in arch/x86/events/core.c). So a caller counts where the function that it called keeps a frame pointer
//! at that place, and where a call stands right before the return address.

use super::At;
use crate::addr::Ring;
use crate::blocks::{BlockMap, Flow, TextBlocks};
use crate::locate::Location;
use crate::mix::symbol_at;
use crate::snapshot::Snapshot;

/// How a walk ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// All of the chain was walked; `user` says whether it came to user code.
    Whole,
    /// At an interrupt or exception: what it struck did not call it.
    Interrupted,
    /// At a function of user code that keeps no frame pointer there; the number of callers in user code before.
    NoFramePointer(usize),
    /// At an address that no call stands before.
    NoCall,
}

/// How chains ended, in samples.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ends {
    /// All chains.
    pub samples: u64,
    /// The sampled address has no instruction, so that nobody is charged.
    pub unresolved: u64,
    /// An interrupt or exception struck: what it struck is not charged.
    pub interrupted: u64,
    /// User code without a caller: the sampled function, or the one that called the system, keeps no frame pointer there.
    pub without_caller: u64,
    /// Callers are known up to a function of user code that keeps no frame pointer.
    pub cut_short: u64,
    /// Callers are known up to an address that no call stands before.
    pub no_call: u64,
}

impl Ends {
    pub(super) const fn add(&mut self, end: End, hits: u64) {
        self.samples = self.samples.saturating_add(hits);
        let sum = match end {
            End::Whole => return,
            End::Interrupted => &mut self.interrupted,
            End::NoFramePointer(0) => &mut self.without_caller,
            End::NoFramePointer(_) => &mut self.cut_short,
            End::NoCall => &mut self.no_call,
        };
        *sum = sum.saturating_add(hits);
    }
}

/// Walks the chains of a snapshot.
pub(super) struct Walker<'a> {
    snapshot: &'a Snapshot,
    map: &'a BlockMap,
}

impl<'a> Walker<'a> {
    pub(super) const fn new(snapshot: &'a Snapshot, map: &'a BlockMap) -> Self {
        Self { snapshot, map }
    }

    /// The calls that led to the innermost frame, innermost first, and why there are no more.
    pub(super) fn walk(&self, frames: &[Location]) -> (Vec<At>, End) {
        let mut calls = Vec::new();
        let Some((mut inner, rest)) = frames.split_first() else {
            return (calls, End::NoCall);
        };
        // The first is where the processor was, all others come back from a call, of a function or of the system.
        let mut is_return = false;
        let mut n_user = 0;
        for outer in rest {
            let (from, to) = (self.ring(*inner), self.ring(*outer));
            if (from, to) == (Ring::User, Ring::User) {
                if !self.keeps_frame(*inner, is_return) {
                    return (calls, End::NoFramePointer(n_user));
                }
                n_user += 1;
            }
            let call = self.call(*outer, from != to);
            let Some(call) = call else {
                let end = match from {
                    Ring::Kernel => End::Interrupted,
                    Ring::User => End::NoCall,
                };
                return (calls, end);
            };
            calls.push(call);
            is_return = true;
            inner = outer;
        }
        let end = match self.ring(*inner) {
            Ring::User if !self.keeps_frame(*inner, is_return) => End::NoFramePointer(n_user),
            _ => End::Whole,
        };
        (calls, end)
    }

    fn ring(&self, at: Location) -> Ring {
        let text = self.snapshot.text.get(at.text.0 as usize);
        let module = text.and_then(|text| self.snapshot.modules.get(text.module.0 as usize));
        match module {
            Some(module) if module.kind.is_kernel() => Ring::Kernel,
            _ => Ring::User,
        }
    }

    /// The call whose last byte is at a location; of the system, where the ring changes there.
    fn call(&self, at: Location, of_system: bool) -> Option<At> {
        let blocks = self.map.text(at.text)?;
        let found = blocks.ending_at(at.addr)?;
        let flow = blocks.instruction(found)?.flow;
        let is_call = match of_system {
            true => flow == Flow::SystemCall,
            false => matches!(flow, Flow::Call | Flow::IndirectCall),
        };
        is_call.then_some((at.text, found))
    }

    /// Whether the frame pointer is that of the function at a location: where the processor was, or the last byte of a call.
    fn keeps_frame(&self, at: Location, is_return: bool) -> bool {
        self.frame(at, is_return).unwrap_or(false)
    }

    fn frame(&self, at: Location, is_return: bool) -> Option<bool> {
        let blocks = self.map.text(at.text)?;
        let module = self.snapshot.modules.get(blocks.module.0 as usize)?;
        let start = symbol_at(module, at.addr)?.start;
        let here = match is_return {
            true => blocks.ending_at(at.addr)?,
            false => blocks.find(at.addr).ok()?,
        };
        let first = blocks.find(start).ok()?;
        let set_up = self.set_up(at, blocks, first)?;
        if here <= set_up {
            return Some(false);
        }
        // Taken back before, in the same block.
        let block = blocks.block(blocks.block_of(here));
        let gone = (block.start..here).any(|it| self.is(at, blocks, it, &[&[0x5d], &[0xc9]]));
        let returns = blocks.instruction(here)?.flow == Flow::Return;
        Some(!gone && !returns)
    }

    /// The instruction that sets the frame pointer, in the first block of a function that begins at instruction `first`.
    fn set_up(&self, at: Location, blocks: &TextBlocks, first: u32) -> Option<u32> {
        const PUSH: &[&[u8]] = &[&[0x55]];
        const MOVE: &[&[u8]] = &[&[0x48, 0x89, 0xe5], &[0x48, 0x8b, 0xec], &[0x89, 0xe5], &[0x8b, 0xec]];
        let block = blocks.block(blocks.block_of(first));
        let mut pairs = (first..block.end).zip(first.saturating_add(1)..block.end);
        let found = pairs.find(|(push, set)| self.is(at, blocks, *push, PUSH) && self.is(at, blocks, *set, MOVE));
        found.map(|(_, set)| set)
    }

    /// Whether an instruction is one of these.
    fn is(&self, at: Location, blocks: &TextBlocks, instruction: u32, encodings: &[&[u8]]) -> bool {
        let bytes = || {
            let text = self.snapshot.text.get(at.text.0 as usize)?;
            let it = blocks.instruction(instruction)?;
            let from = it.offset as usize;
            text.bytes.get(from..from.checked_add(usize::from(it.len))?)
        };
        bytes().is_some_and(|bytes| encodings.contains(&bytes))
    }
}
