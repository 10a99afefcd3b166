//! Decodes text into instructions: offset, length and control flow of each.
//!
//! A linear sweep from the start of the text, which resyncs at addresses that are known to start an instruction: those
//! of symbols, and those that the CPU reported.
//! Invalid bytes become fillers, so that the instructions cover their text without gaps.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction as Decoded, Mnemonic, OpKind};

use super::form::{FormIdx, Forms, LONGEST};
use super::layout::{LOOKED_AT, Layout};
use crate::addr::ImageAddr;

/// Bytes after which a sweep from a wrong start is in sync with the true instructions.
/// x86 code resynchronises within a few instructions, since most encodings are two to five bytes long.
const IN_STEP: u32 = 256;

/// Control flow of an instruction.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To the next instruction, after waiting for an interrupt or a write (HLT, MWAIT, MONITOR).
    Idle,
    /// To its target or to the next instruction (Jcc, LOOP, JRCXZ, XBEGIN, XABORT).
    Conditional,
    /// To its target.
    Jump,
    /// To a target that is computed.
    IndirectJump,
    /// To its target; the next instruction is the return address.
    Call,
    /// To the next instruction, whose address it pushes (CALL $+5): a branch that CPUs with architectural LBR do not
    /// record (Intel SDM vol. 3B, chapter "Last Branch Records").
    CallNext,
    /// To a target that is computed; the next instruction is the return address.
    IndirectCall,
    /// To the caller.
    Return,
    /// To code that was interrupted or that called the system (IRET, SYSRET, SYSEXIT, RSM).
    InterruptReturn,
    /// To the system or the hypervisor, which comes back to the next instruction (SYSCALL, INT n, VMCALL).
    SystemCall,
    /// Nowhere: it raises an exception (UD2).
    Trap,
    /// Invalid bytes.
    Invalid,
}

/// An instruction in a text range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Instruction {
    /// Offset in bytes from the start of the text.
    pub offset: u32,
    /// What it is.
    pub form: FormIdx,
    /// Length in bytes; of a filler, at most 255 of its bytes.
    pub len: u8,
    /// Its control flow.
    pub flow: Flow,
}

/// A decoded text range.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The instructions, sorted by address, without gaps.
    pub(super) instructions: Vec<Instruction>,
    /// Addresses inside an instruction that begin it without some of its prefixes, with the instruction's index.
    pub(super) aliases: Vec<(u32, u32)>,
    /// Targets of direct branches in this text, as offsets.
    pub(super) inside: Vec<u32>,
    /// Targets of direct branches elsewhere.
    pub(super) outside: Vec<ImageAddr>,
    /// Whether it met invalid bytes, or a known offset inside an instruction: other known offsets may change it.
    is_ambiguous: bool,
}

impl Flow {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Next,
        Self::Idle,
        Self::Conditional,
        Self::Jump,
        Self::IndirectJump,
        Self::Call,
        Self::CallNext,
        Self::IndirectCall,
        Self::Return,
        Self::InterruptReturn,
        Self::SystemCall,
        Self::Trap,
        Self::Invalid,
    ];

    /// Whether a basic block ends with it. Calls end a block, as Pin and SDE have it (the paper's reference).
    pub const fn ends_block(self) -> bool {
        !matches!(self, Self::Next | Self::Idle)
    }

    /// Whether the processor can record it as the source of a taken branch.
    pub const fn is_branch(self) -> bool {
        !matches!(self, Self::Next | Self::Idle | Self::Trap | Self::Invalid)
    }

    /// Whether control never falls through to the next instruction, so that no stream runs past it.
    /// System calls do not stop a stream: a stack of user branches lacks the branches in the kernel.
    pub const fn stops_stream(self) -> bool {
        match self {
            Self::Next | Self::Idle | Self::Conditional | Self::CallNext | Self::SystemCall => false,
            Self::Jump | Self::IndirectJump | Self::Call | Self::IndirectCall => true,
            Self::Return | Self::InterruptReturn | Self::Trap | Self::Invalid => true,
        }
    }
}

/// Decodes `bytes`, at address `start` of their module, as code of `bits` bits.
///
/// `known` are the offsets that are known to start an instruction, sorted.
/// If two of them conflict, the first wins and the second lies inside its instruction.
pub(super) fn sweep(bytes: &[u8], bits: u32, start: ImageAddr, known: &[u32], forms: &mut Forms) -> Sweep {
    let mut sweep = Sweep {
        instructions: Vec::with_capacity(bytes.len() / 4),
        ..Sweep::default()
    };
    let end = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let Ok(decoder) = Decoder::try_with_ip(bits, bytes, start.0, DecoderOptions::NONE) else {
        sweep.fill(0, end);
        return sweep;
    };
    let mut cursor = Cursor {
        decoder,
        start,
        decoded: Decoded::new(),
    };
    let mut offset = cursor.first_boundary(known);
    sweep.is_ambiguous = 0 < offset;
    sweep.fill(0, offset);
    let mut known = known;
    while offset < end {
        let is_known = known.first() == Some(&offset);
        known = after(known, offset);
        let layout = layout(bytes, bits, offset);
        let frequent = layout.and_then(|layout| Some((layout, forms.of_layout(layout)?)));
        if let Some((layout, form)) = frequent {
            let next = offset + u32::from(layout.len);
            if next <= known.first().copied().unwrap_or(end).min(end) {
                let target = relative(bytes, layout, next)
                    .map(|by| start.0.wrapping_add(next.into()).wrapping_add_signed(by));
                sweep.push(form, offset..next, target.map(ImageAddr), start, end);
                offset = next;
                continue;
            }
        }
        let resume = match cursor.decode(offset) {
            Some(len) => {
                let next = offset + u32::from(len);
                let wrong = if known.first().is_some_and(|boundary| *boundary < next) {
                    sweep.is_ambiguous = true;
                    sweep.alias(known, next, &mut cursor)
                } else {
                    None
                };
                match wrong {
                    Some(boundary) if !is_known => Err(boundary),
                    _ => Ok(next),
                }
            }
            None => {
                sweep.is_ambiguous = true;
                Err(offset + 1)
            }
        };
        offset = match resume {
            Ok(next) => {
                let whole = || bytes.get(offset as usize..next as usize);
                match forms.intern(&cursor.decoded, bits, whole) {
                    Some(form) => {
                        if let Some(layout) = layout.filter(|layout| u32::from(layout.len) == next - offset) {
                            forms.learn(layout, form);
                        }
                        sweep.push(form, offset..next, target(&cursor.decoded), start, end);
                    }
                    None => sweep.fill(offset, next),
                }
                next
            }
            Err(boundary) => {
                sweep.fill(offset, boundary);
                boundary
            }
        };
    }
    sweep.instructions.shrink_to_fit();
    sweep
}

/// The layout of the instruction at an offset, if one can be known from its first bytes.
fn layout(bytes: &[u8], bits: u32, offset: u32) -> Option<Layout> {
    let first = bytes.get(offset as usize..)?.first_chunk::<LOOKED_AT>()?;
    (bits == 64).then(|| Layout::of(u64::from_le_bytes(*first)))?
}

/// How far a direct branch leads that ends at offset `next`.
fn relative(bytes: &[u8], layout: Layout, next: u32) -> Option<i64> {
    let whole = bytes.get(..next as usize)?;
    match layout.relative {
        0 => None,
        1 => whole.last().map(|byte| i64::from(byte.cast_signed())),
        _ => whole
            .last_chunk()
            .map(|bytes| i64::from(i32::from_le_bytes(*bytes))),
    }
}

/// The part of a sorted list above `offset`, which grows by little from call to call.
fn after(known: &[u32], offset: u32) -> &[u32] {
    let passed = known.iter().take_while(|k| **k <= offset).count();
    known.get(passed..).unwrap_or(&[])
}

impl Sweep {
    /// Whether a sweep of the same bytes with these `known` offsets has the same result.
    pub(super) fn fits(&self, known: &[u32]) -> bool {
        let is_start = |offset: &u32| {
            self.instructions
                .binary_search_by_key(offset, |i| i.offset)
                .is_ok()
        };
        !self.is_ambiguous && known.iter().all(is_start)
    }

    /// Covers the bytes from `from` to `to` with fillers.
    fn fill(&mut self, from: u32, to: u32) {
        let mut offset = from;
        while offset < to {
            let len = u8::try_from(to - offset).unwrap_or(u8::MAX);
            self.instructions.push(Instruction {
                offset,
                form: FormIdx(0),
                len,
                flow: Flow::Invalid,
            });
            offset += u32::from(len);
        }
    }

    /// Adds an instruction at the offsets `range` of a text from `start` that ends at offset `end`, with the target of a direct
    /// branch.
    fn push(
        &mut self,
        (form, mut flow): (FormIdx, Flow),
        range: Range<u32>,
        target: Option<ImageAddr>,
        start: ImageAddr,
        end: u32,
    ) {
        let inside = target.and_then(|target| u32::try_from(target.since(start)?).ok());
        if flow == Flow::Call && inside == Some(range.end) {
            flow = Flow::CallNext;
        }
        self.instructions.push(Instruction {
            offset: range.start,
            form,
            // An instruction has 15 bytes at most.
            len: u8::try_from(range.end - range.start).unwrap_or(u8::MAX),
            flow,
        });
        let Some(target) = target else { return };
        match inside.filter(|offset| *offset < end) {
            Some(offset) => self.inside.push(offset),
            None => self.outside.push(target),
        }
    }

    /// Records those `known` boundaries inside the current instruction, which ends at `next`, that skip only its prefixes: code
    /// that jumps past a LOCK prefix on a uniprocessor machine. Returns the first boundary that does not.
    fn alias(&mut self, known: &[u32], next: u32, cursor: &mut Cursor<'_>) -> Option<u32> {
        let idx = u32::try_from(self.instructions.len()).ok()?;
        let whole = cursor.decoded;
        let mut wrong = None;
        for &k in known.iter().take_while(|k| **k < next) {
            let ends_alike = cursor.decode(k).is_some_and(|len| k + u32::from(len) == next);
            if ends_alike && cursor.decoded.code() == whole.code() {
                self.aliases.push((k, idx));
            } else {
                wrong = wrong.or(Some(k));
            }
        }
        cursor.decoded = whole;
        wrong
    }
}

/// A decoder of one text range, with the last decoded instruction.
struct Cursor<'a> {
    decoder: Decoder<'a>,
    start: ImageAddr,
    decoded: Decoded,
}

impl Cursor<'_> {
    /// Decodes the instruction at `offset`; its length, or `None` where there is none.
    fn decode(&mut self, offset: u32) -> Option<u8> {
        let position = usize::try_from(offset).ok()?;
        // Usually the decoder is already at this offset.
        if self.decoder.position() != position {
            self.decoder.set_position(position).ok()?;
            self.decoder.set_ip(self.start.0.wrapping_add(u64::from(offset)));
        }
        self.decoder.decode_out(&mut self.decoded);
        if self.decoded.is_invalid() {
            None
        } else {
            u8::try_from(self.decoded.len()).ok()
        }
    }

    /// The first offset from which a sweep reaches the first known boundary. Text can start inside an instruction.
    fn first_boundary(&mut self, known: &[u32]) -> u32 {
        let Some(&goal) = known.first().filter(|goal| **goal < IN_STEP) else {
            return 0;
        };
        (0..LONGEST)
            .map_while(|o| u32::try_from(o).ok())
            .find(|o| self.meets(*o, goal))
            .unwrap_or(0)
    }

    fn meets(&mut self, from: u32, goal: u32) -> bool {
        let mut offset = from;
        while offset < goal {
            match self.decode(offset) {
                Some(len) => offset += u32::from(len),
                None => return false,
            }
        }
        offset == goal
    }
}

/// The target of a direct near branch.
fn target(instruction: &Decoded) -> Option<ImageAddr> {
    match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Some(ImageAddr(instruction.near_branch_target()))
        }
        _ => None,
    }
}

/// Control flow of all instructions of an opcode; of a call to the next instruction, [`Flow::Call`].
pub(super) fn flow(instruction: &Decoded) -> Flow {
    match instruction.flow_control() {
        FlowControl::Next => match instruction.mnemonic() {
            Mnemonic::Hlt | Mnemonic::Mwait | Mnemonic::Mwaitx | Mnemonic::Monitor | Mnemonic::Monitorx => {
                Flow::Idle
            }
            _ => Flow::Next,
        },
        FlowControl::UnconditionalBranch => Flow::Jump,
        FlowControl::IndirectBranch => Flow::IndirectJump,
        FlowControl::ConditionalBranch => Flow::Conditional,
        FlowControl::Return => match instruction.mnemonic() {
            Mnemonic::Ret | Mnemonic::Retf => Flow::Return,
            _ => Flow::InterruptReturn,
        },
        // The others of these, such as VMCALL, are calls of a system.
        FlowControl::Call if instruction.mnemonic() == Mnemonic::Call => Flow::Call,
        FlowControl::Call => Flow::SystemCall,
        FlowControl::IndirectCall => Flow::IndirectCall,
        FlowControl::Interrupt => Flow::SystemCall,
        // XEND ends a transaction without a jump; XBEGIN and XABORT may go to the fallback.
        FlowControl::XbeginXabortXend if instruction.code() == Code::Xend => Flow::Next,
        FlowControl::XbeginXabortXend => Flow::Conditional,
        FlowControl::Exception => Flow::Trap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object as _, ObjectSection as _};
    use proptest::prelude::*;

    fn swept(bytes: &[u8], known: &[u32]) -> Vec<(u32, u8, Flow)> {
        let sweep = sweep(bytes, 64, ImageAddr(0x1000), known, &mut Forms::default());
        sweep
            .instructions
            .iter()
            .map(|i| (i.offset, i.len, i.flow))
            .collect()
    }

    #[test]
    fn flow_follows_the_opcode() {
        let cases: [(&[u8], Flow); 14] = [
            (&[0x90], Flow::Next),
            (&[0xf3, 0xa4], Flow::Next),
            (&[0xf4], Flow::Idle),
            (&[0x0f, 0x01, 0xc9], Flow::Idle),
            (&[0x74, 0x10], Flow::Conditional),
            (&[0xe2, 0x10], Flow::Conditional),
            (&[0xeb, 0x10], Flow::Jump),
            (&[0xff, 0xe0], Flow::IndirectJump),
            (&[0xe8, 0, 1, 0, 0], Flow::Call),
            (&[0xe8, 0, 0, 0, 0], Flow::CallNext),
            (&[0xff, 0xd0], Flow::IndirectCall),
            (&[0xc3], Flow::Return),
            (&[0x48, 0xcf], Flow::InterruptReturn),
            (&[0x0f, 0x05], Flow::SystemCall),
        ];
        for (bytes, flow) in cases {
            let len = u8::try_from(bytes.len()).unwrap();
            assert_eq!(swept(bytes, &[]), [(0, len, flow)], "{bytes:x?}");
        }
    }

    #[test]
    fn sweep_resyncs_at_observed_addresses() {
        // A stray 0xe8 before `nop; ret` swallows both unless the address of `nop` is known.
        let bytes = [0xe8, 0x90, 0xc3, 0, 0, 0];
        assert_eq!(swept(&bytes, &[])[0], (0, 5, Flow::Call));
        let corrected = swept(&bytes, &[1]);
        assert_eq!(
            corrected[..3],
            [(0, 1, Flow::Invalid), (1, 1, Flow::Next), (2, 1, Flow::Return)]
        );
        assert_eq!(swept(&bytes, &[0, 1])[0], (0, 5, Flow::Call));
    }

    #[test]
    fn jump_past_the_lock_prefix_is_the_same_instruction() {
        // lock cmpxchg [rdi], esi
        let bytes = [0xf0, 0x0f, 0xb1, 0x37, 0xc3];
        let sweep = sweep(&bytes, 64, ImageAddr(0), &[0, 1], &mut Forms::default());
        assert_eq!(sweep.instructions.len(), 2);
        assert_eq!(sweep.aliases, [(1, 0)]);
    }

    #[test]
    fn sweep_resyncs_if_text_starts_inside_an_instruction() {
        // The text was cut in the immediate value of an instruction: its last two bytes read like `mov rax, imm64`.
        let bytes = [0x48, 0xb8, 0x90, 0x90, 0xc3];
        assert_eq!(
            swept(&bytes, &[2])[..2],
            [(0, 2, Flow::Invalid), (2, 1, Flow::Next)]
        );
    }

    /// Each instruction of some code, its flow, and the targets of its direct branches, by nothing but the decoder.
    fn one_by_one(bytes: &[u8], start: u64) -> (Vec<(u32, u8, Flow)>, Vec<u64>) {
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let (mut all, mut targets) = (Vec::new(), Vec::new());
        while decoder.can_decode() {
            let at = u32::try_from(decoder.position()).unwrap();
            let decoded = decoder.decode();
            if decoded.is_invalid() {
                decoder.set_position(at as usize + 1).unwrap();
                decoder.set_ip(start + u64::from(at) + 1);
                all.push((at, 1, Flow::Invalid));
                continue;
            }
            let target = target(&decoded).map(|target| target.0);
            let to_next = target == Some(decoded.next_ip());
            let flow = match flow(&decoded) {
                Flow::Call if to_next => Flow::CallNext,
                flow => flow,
            };
            targets.extend(target);
            all.push((at, u8::try_from(decoded.len()).unwrap(), flow));
        }
        (all, targets)
    }

    fn agrees(bytes: &[u8]) {
        let start = 0x4000;
        let sweep = sweep(bytes, 64, ImageAddr(start), &[], &mut Forms::default());
        let (all, mut targets) = one_by_one(bytes, start);
        let found = sweep.instructions.iter().map(|i| (i.offset, i.len, i.flow));
        assert!(found.eq(all), "{bytes:x?}");
        let inside = sweep.inside.iter().map(|offset| start + u64::from(*offset));
        let mut found: Vec<u64> = inside
            .chain(sweep.outside.iter().map(|target| target.0))
            .collect();
        found.sort_unstable();
        targets.sort_unstable();
        assert_eq!(found, targets);
    }

    #[test]
    fn own_code_is_decoded_as_by_the_decoder() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let file = object::File::parse(own.as_slice()).unwrap();
        let text = file.section_by_name(".text").unwrap();
        agrees(text.data().unwrap().get(..4 << 20).unwrap());
    }

    #[test]
    fn text_of_32_bit_modules_is_decoded_as_32_bit() {
        // 0x40 is INC EAX in 32-bit code and a REX prefix in 64-bit code.
        let sweep = sweep(&[0x40, 0x90], 32, ImageAddr(0), &[], &mut Forms::default());
        assert_eq!(sweep.instructions.len(), 2);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_as_by_the_decoder(
            once in prop::collection::vec(any::<u8>(), 8..64),
        ) {
            // What was seen before has a layout the second time.
            agrees(&[once.as_slice(), &once].concat());
        }

        #[test]
        fn instructions_cover_any_bytes_without_gaps(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            known in prop::collection::btree_set(0u32..200, 0..8),
        ) {
            let known: Vec<u32> = known.into_iter().filter(|k| (*k as usize) < bytes.len()).collect();
            let mut next = 0;
            for (offset, len, _) in swept(&bytes, &known) {
                prop_assert_eq!(offset, next);
                prop_assert!(0 < len);
                next += u32::from(len);
            }
            prop_assert_eq!(next as usize, bytes.len());
        }
    }
}
