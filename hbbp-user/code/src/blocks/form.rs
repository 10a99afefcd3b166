//! Instructions and their forms: a mix classifies thousands of distinct forms instead of millions of instructions.

use iced_x86::{Decoder, DecoderOptions, Instruction as Decoded, OpKind};

use super::flow::{Flow, flow};
use super::layout::Layout;

/// The longest x86 instruction in bytes (SDM vol. 2, 2.3.11).
pub(super) const LONGEST: usize = 15;

/// Index of a [`Form`] in [`super::BlockMap::forms`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FormIdx(pub u16);

/// Instructions that are equal in every property a mix distinguishes: opcode, operand sizes, prefixes, and which operands
/// are in memory. They differ in registers, addresses and immediate values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Form {
    example: [u8; LONGEST],
    len: u8,
    /// Operand and address size that the text was decoded with.
    pub(super) bits: u32,
}

/// Interned forms.
#[derive(Debug, Default)]
pub(super) struct Forms {
    forms: Vec<Form>,
    /// The form of each opcode and its flags, with its control flow.
    by_key: Vec<Option<(FormIdx, Flow)>>,
    /// The same for the keys of [`Layout`], once the decoder has found it.
    by_layout: Vec<Option<(FormIdx, Flow)>>,
}

impl Form {
    /// The first instruction of this form; `None` for bytes that are none.
    pub fn decoded(&self) -> Option<Decoded> {
        let bytes = self.example.get(..usize::from(self.len))?;
        let decoded = Decoder::try_new(self.bits, bytes, DecoderOptions::NONE)
            .ok()?
            .decode();
        (!decoded.is_invalid()).then_some(decoded)
    }
}

impl Forms {
    /// Those so far.
    pub(super) fn all(&self) -> &[Form] {
        &self.forms
    }

    /// The form of 64-bit instructions of a layout, and their control flow, if one was decoded before.
    pub(super) fn of_layout(&self, layout: Layout) -> Option<(FormIdx, Flow)> {
        self.by_layout.get(usize::from(layout.key)).copied().flatten()
    }

    /// Keeps the form of a layout.
    pub(super) fn learn(&mut self, layout: Layout, form: FormIdx, flow: Flow) {
        self.by_layout.resize(usize::from(u16::MAX) + 1, None);
        if let Some(known) = self.by_layout.get_mut(usize::from(layout.key)) {
            *known = Some((form, flow));
        }
    }

    /// The form of an instruction with these `bytes`, and its control flow; `None` only if the index overflows, for which the
    /// decoder has too few forms.
    pub(super) fn intern<'a>(
        &mut self,
        instruction: &Decoded,
        bits: u32,
        bytes: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Option<(FormIdx, Flow)> {
        // A missing operand counts as a register, and the fifth is never in memory.
        let in_memory = instruction.op0_kind() == OpKind::Memory
            || instruction.op1_kind() == OpKind::Memory
            || instruction.op2_kind() == OpKind::Memory
            || instruction.op3_kind() == OpKind::Memory;
        let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let flags = [in_memory, instruction.has_lock_prefix(), repeats, bits == 64];
        let key = flags.iter().fold(instruction.code() as usize, |key, flag| {
            key << 1 | usize::from(*flag)
        });
        match self.by_key.get(key) {
            Some(&Some(known)) => Some(known),
            _ => self.add(key, instruction, bits, bytes()?),
        }
    }

    #[cold]
    fn add(&mut self, key: usize, instruction: &Decoded, bits: u32, bytes: &[u8]) -> Option<(FormIdx, Flow)> {
        let known = (FormIdx(u16::try_from(self.forms.len()).ok()?), flow(instruction));
        let mut form = Form {
            example: [0; LONGEST],
            len: 0,
            bits,
        };
        for (to, from) in form.example.iter_mut().zip(bytes) {
            *to = *from;
            form.len += 1;
        }
        self.forms.push(form);
        if self.by_key.len() <= key {
            self.by_key.resize(key + 1, None);
        }
        *self.by_key.get_mut(key)? = Some(known);
        Some(known)
    }
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
