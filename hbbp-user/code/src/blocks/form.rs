//! Instructions and their forms: a mix classifies thousands of distinct forms instead of millions of instructions.

use std::collections::HashMap;

use hbbp_decode::{Decoder, Modern};
use iced_x86::{Instruction as Decoded, OpKind};

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

/// What the form of an instruction depends on.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    /// The instruction, or the nearest one that iced-x86 knows.
    pub(super) instruction: &'a Decoded,
    /// What differs from it.
    pub(super) modern: Option<Modern>,
    /// Operand and address size of the code.
    pub(super) bits: u32,
}

/// Interned forms.
#[derive(Debug, Default)]
pub(super) struct Forms {
    forms: Vec<Form>,
    /// The form of each opcode and its flags, with its control flow.
    by_key: Vec<Option<(FormIdx, Flow)>>,
    /// The same of instructions that the decoder rewrites.
    modern: HashMap<(usize, Modern), (FormIdx, Flow)>,
    /// The same for the keys of [`Layout`], once the decoder has found it.
    by_layout: Vec<Option<(FormIdx, Flow)>>,
}

impl Form {
    /// The first instruction of this form; `None` for bytes that are none. Where [`Self::modern`] says that it is another
    /// one, the nearest that iced-x86 knows.
    pub fn decoded(&self) -> Option<Decoded> {
        self.first().map(|(decoded, _)| decoded)
    }

    /// What the instructions of this form are where they differ from [`Self::decoded`].
    pub fn modern(&self) -> Option<Modern> {
        self.first()?.1
    }

    fn first(&self) -> Option<(Decoded, Option<Modern>)> {
        let bytes = self.example.get(..usize::from(self.len))?;
        let mut decoder = Decoder::try_with_ip(self.bits, bytes, 0).ok()?;
        let decoded = decoder.decode();
        (!decoded.is_invalid()).then_some((decoded, decoder.modern()))
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
        shape: Shape<'_>,
        bytes: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Option<(FormIdx, Flow)> {
        let Shape {
            instruction,
            modern,
            bits,
        } = shape;
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
        if let Some(modern) = modern {
            if let Some(known) = self.modern.get(&(key, modern)) {
                return Some(*known);
            }
            let known = self.add(instruction, bits, bytes()?)?;
            self.modern.insert((key, modern), known);
            return Some(known);
        }
        if let Some(&Some(known)) = self.by_key.get(key) {
            return Some(known);
        }
        let known = self.add(instruction, bits, bytes()?)?;
        if self.by_key.len() <= key {
            self.by_key.resize(key + 1, None);
        }
        *self.by_key.get_mut(key)? = Some(known);
        Some(known)
    }

    #[cold]
    fn add(&mut self, instruction: &Decoded, bits: u32, bytes: &[u8]) -> Option<(FormIdx, Flow)> {
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
