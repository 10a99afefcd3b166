//! Walks a call chain outwards, as far as each caller is proved by the text.
//!
//! In the kernel, return addresses come from ORC, which knows every frame, and it continues through interrupted code,
//! which did not call, so no call precedes it. User code may lack frame pointers: then the kernel reads what an outer
//! function, or anything else, left there (`perf_callchain_user` in arch/x86/events/core.c). So a caller counts where
//! the code of the function that it called says that the return address is there ([`super::frame`]), and where a call
//! is right before that. Compilers leave out the frames of functions that call nothing, with any option; there the
//! return address is on top of the stack.

use std::cell::RefCell;
use std::collections::HashMap;

use super::frame::{Frame, Frames};
use hbbp_code::blocks::{BlockMap, Flow};
use hbbp_code::locate::{Location, TextIdx};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::Snapshot;

/// An instruction, by its text and its index there.
pub(crate) type At = (TextIdx, u32);

/// How a walk ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// All of the chain was walked.
    Whole,
    /// At an interrupt or exception: what it struck did not call it.
    Interrupted,
    /// At a function of user code that keeps no frame pointer there; the number of callers in user code before.
    NoFramePointer(usize),
    /// At an address that no call precedes.
    NoCall,
}

/// How chains ended, in samples.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ends {
    /// All chains.
    pub samples: u64,
    /// The sampled address has no instruction, so no caller is charged.
    pub unresolved: u64,
    /// An interrupt or exception struck: what it struck is not charged.
    pub interrupted: u64,
    /// User code without a caller: the sampled function, or the one that called the system, keeps no frame pointer there.
    pub without_caller: u64,
    /// Callers are known up to a function of user code that keeps no frame pointer.
    pub cut_short: u64,
    /// Callers are known up to an address that no call precedes.
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
    /// Of functions by their first instruction.
    frames: RefCell<HashMap<At, Frames>>,
}

impl<'a> Walker<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, map: &'a BlockMap) -> Self {
        Self {
            snapshot,
            map,
            frames: RefCell::default(),
        }
    }

    /// The calls that led to the innermost frame, innermost first, and why there are no more. `top` is the last byte before the
    /// address on top of the stack of user code, where that is text.
    pub(super) fn walk(&self, frames: &[Location], top: Option<Location>) -> (Vec<At>, End) {
        let mut calls = Vec::new();
        let Some((inner, rest)) = frames.split_first() else {
            return (calls, End::NoCall);
        };
        // The first is where the processor was, all others come back from a call, of a function or of the system.
        let (mut inner, mut is_return, mut top, mut n_user) = (*inner, false, top, 0);
        let mut rest = rest.iter();
        loop {
            let from = self.ring(inner);
            let frame = (from == Ring::User)
                .then(|| self.frame(inner, is_return))
                .flatten();
            let outer = match (from, frame, top.as_ref()) {
                (Ring::User, Some(Frame::Kept), _) | (Ring::Kernel, ..) => rest.next(),
                // It has no frame, so that the frame pointer and what is above it are its caller's.
                (Ring::User, Some(Frame::Top), Some(_)) => top.as_ref(),
                (Ring::User, ..) => return (calls, End::NoFramePointer(n_user)),
            };
            let Some(outer) = outer.copied() else {
                return (calls, End::Whole);
            };
            if from == Ring::Kernel && self.is_interrupt_entry(inner) {
                return (calls, End::Interrupted);
            }
            let to = self.ring(outer);
            let Some(call) = self.call(outer, from != to) else {
                let end = match from {
                    Ring::Kernel => End::Interrupted,
                    Ring::User => End::NoCall,
                };
                return (calls, end);
            };
            calls.push(call);
            if from == Ring::User {
                // The top of the stack is that of the innermost function alone.
                (top, n_user) = (None, n_user + 1);
            }
            is_return = true;
            inner = outer;
        }
    }

    fn ring(&self, at: Location) -> Ring {
        let text = self.snapshot.text.get(at.text.0 as usize);
        let module = text.and_then(|text| self.snapshot.modules.get(text.module.0 as usize));
        match module {
            Some(module) if module.kind.is_kernel() => Ring::Kernel,
            _ => Ring::User,
        }
    }

    /// Whether a location is in an entry of interrupts and exceptions, which `DECLARE_IDTENTRY` names `asm_..`
    /// (arch/x86/include/asm/idtentry.h). What it struck may have just come back from a call.
    fn is_interrupt_entry(&self, at: Location) -> bool {
        let text = self.snapshot.text.get(at.text.0 as usize);
        let module = text.and_then(|text| self.snapshot.modules.get(text.module.0 as usize));
        let symbol = module.and_then(|module| module.symbol_at(at.addr));
        symbol.is_some_and(|symbol| symbol.name.starts_with("asm_"))
    }

    /// The call whose last byte is at a location; of the system, where the ring changes there.
    pub(super) fn call(&self, at: Location, of_system: bool) -> Option<At> {
        let blocks = self.map.text(at.text)?;
        let found = blocks.ending_at(at.addr)?;
        let flow = blocks.instruction(found)?.flow;
        let is_call = match of_system {
            true => flow == Flow::SystemCall,
            false => matches!(flow, Flow::Call | Flow::IndirectCall),
        };
        is_call.then_some((at.text, found))
    }

    /// Where the return address of the function is at a location: where the processor was, or the last byte of a call.
    fn frame(&self, at: Location, is_return: bool) -> Option<Frame> {
        let blocks = self.map.text(at.text)?;
        let text = self.snapshot.text.get(at.text.0 as usize)?;
        let module = self.snapshot.modules.get(text.module.0 as usize)?;
        let symbol = module.symbol_at(at.addr)?;
        let here = match is_return {
            true => blocks.ending_at(at.addr)?,
            false => blocks.find(at.addr).ok()?,
        };
        let first = blocks.find(symbol.start).ok()?;
        let n_before = |addr| {
            blocks
                .all_instructions()
                .partition_point(|it| blocks.addr(*it) < addr)
        };
        let end = u32::try_from(n_before(symbol.start.checked_add(symbol.len)?)).ok()?;
        let mut known = self.frames.borrow_mut();
        let frames = known
            .entry((at.text, first))
            .or_insert_with(|| Frames::new(text, blocks, first, end, module.kind.bits()));
        Some(frames.at(here))
    }
}
