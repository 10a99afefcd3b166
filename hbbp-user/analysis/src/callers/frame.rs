//! Where a function has its return address: above the frame pointer, on top of the stack, or unknown.
//!
//! The code of a function is followed from its start, instruction by instruction along all branches. At its start the
//! return address is on top of the stack; the frame pointer is that of the last caller that keeps one (System V AMD64
//! ABI, 3.2.2). After `push rbp; mov rbp, rsp` the return address is above the frame pointer, until `leave` or
//! `pop rbp` takes that back. Where joining paths disagree, or the stack pointer changes in another way, it is unknown.

use hbbp_decode::Decoder;
use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};

use hbbp_code::blocks::{Flow, TextBlocks, direct_target};
use hbbp_model::snapshot::Text;

/// Where the return address is before an instruction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Frame {
    /// On top of the stack; the frame pointer is untouched.
    Top,
    /// Below the caller's frame pointer, which was just pushed.
    Pushed,
    /// Above the frame pointer.
    Kept,
    /// Not known.
    Unknown,
}

/// The frames of the instructions of a function.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames {
    first: u32,
    of: Vec<Option<Frame>>,
}

impl Frames {
    /// Frame state after the instructions `first..end` of a text with this bitness; `first` begins the function.
    pub(super) fn new(text: &Text, blocks: &TextBlocks, first: u32, end: u32, bits: u32) -> Self {
        let mut frames = Self {
            first,
            of: vec![None; end.saturating_sub(first) as usize],
        };
        let mut info = InstructionInfoFactory::new();
        let mut open = vec![(first, Frame::Top)];
        // What indirect jumps lead to is not known: all that nothing else leads to.
        let mut indirect: Option<Frame> = None;
        loop {
            while let Some((at, frame)) = open.pop() {
                let Some(merged) = frames.merge(at, frame) else {
                    continue;
                };
                let Some(it) = blocks.instruction(at) else {
                    continue;
                };
                let bytes = text.bytes.get(it.offset as usize..).unwrap_or(&[]);
                let addr = blocks.addr(it);
                let Ok(mut decoder) = Decoder::try_with_ip(bits, bytes, addr.0) else {
                    continue;
                };
                let next = after(merged, &decoder.decode(), &mut info);
                let target = || blocks.find(direct_target(bits, bytes, addr)?).ok();
                match it.flow {
                    Flow::Jump => open.extend(target().map(|to| (to, next))),
                    Flow::Conditional => {
                        open.extend(target().map(|to| (to, next)));
                        open.push((at.saturating_add(1), next));
                    }
                    Flow::IndirectJump => {
                        indirect = Some(indirect.map_or(next, |before| both(before, next)));
                    }
                    Flow::Return | Flow::InterruptReturn | Flow::Trap | Flow::Invalid => {}
                    _ => open.push((at.saturating_add(1), next)),
                }
            }
            let Some(frame) = indirect else { break };
            let unreached = (first..end).zip(&frames.of).find(|(_, frame)| frame.is_none());
            match unreached {
                Some((at, _)) => open.push((at, frame)),
                None => break,
            }
        }
        frames
    }

    /// That before an instruction.
    pub(super) fn at(&self, instruction: u32) -> Frame {
        let nth = instruction.checked_sub(self.first).map(|nth| nth as usize);
        let frame = nth.and_then(|nth| self.of.get(nth).copied().flatten());
        frame.unwrap_or(Frame::Unknown)
    }

    /// Another path leads to an instruction. Returns what is known there now, if that has changed.
    fn merge(&mut self, instruction: u32, frame: Frame) -> Option<Frame> {
        let nth = instruction.checked_sub(self.first)? as usize;
        let known = self.of.get_mut(nth)?;
        let merged = known.map_or(frame, |before| both(before, frame));
        if *known == Some(merged) {
            return None;
        }
        *known = Some(merged);
        Some(merged)
    }
}

fn both(a: Frame, b: Frame) -> Frame {
    if a == b { a } else { Frame::Unknown }
}

/// The frame after an instruction.
fn after(frame: Frame, instruction: &Instruction, info: &mut InstructionInfoFactory) -> Frame {
    let is_base = |register: Register| matches!(register, Register::RBP | Register::EBP);
    match (frame, instruction.mnemonic()) {
        // A callee leaves both registers as they were.
        (_, Mnemonic::Call) => return frame,
        (Frame::Top, Mnemonic::Push) if is_base(instruction.op0_register()) => return Frame::Pushed,
        (Frame::Pushed, Mnemonic::Mov)
            if is_base(instruction.op0_register())
                && matches!(instruction.op1_register(), Register::RSP | Register::ESP) =>
        {
            return Frame::Kept;
        }
        (Frame::Kept, Mnemonic::Leave) => return Frame::Top,
        (Frame::Kept, Mnemonic::Pop) if is_base(instruction.op0_register()) => return Frame::Top,
        _ if matches!(instruction.code(), Code::Syscall | Code::Sysenter) => return frame,
        _ => {}
    }
    let writes = |access: OpAccess| {
        !matches!(
            access,
            OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        )
    };
    let mut written = info.info(instruction).used_registers().iter();
    let touches = written.any(|used| {
        let full = used.register().full_register();
        writes(used.access()) && (full == Register::RBP || full == Register::RSP && frame != Frame::Kept)
    });
    if touches { Frame::Unknown } else { frame }
}
