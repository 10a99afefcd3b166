//! The integer instructions on vectors that string functions of C libraries use: SSE2, SSSE3, SSE4.2, AVX2,
//! and AVX-512 with its masks.

mod lanes;
mod masks;
mod moves;
mod permutations;
mod text;

use iced_x86::{EncodingKind, Instruction, Mnemonic as M, OpKind, Register};

use crate::end::End;
use crate::machine::Machine;
use crate::vector::{BYTES, Vector};

/// What a vector instruction works on: how wide it is, and which operands it has.
#[derive(Clone, Copy)]
struct Form {
    /// 16, 32 or 64.
    bytes: usize,
    /// Whether it clears what lies above, and may have unaligned operands.
    is_vex: bool,
    /// The number of the first source, which is the destination for SSE with two operands.
    first: u32,
}

impl Machine {
    /// Executes a vector instruction, or whatever else there is.
    pub(crate) fn vector(&mut self, it: &Instruction) -> Result<(), End> {
        let encoding = it.code().encoding();
        let is_legacy = encoding == EncodingKind::Legacy;
        if !is_legacy && encoding != EncodingKind::VEX && encoding != EncodingKind::EVEX {
            return self.opaque(it);
        }
        if it.mnemonic() == M::Vzeroupper || it.mnemonic() == M::Vzeroall {
            for vector in &mut self.vectors[..16] {
                let first = if it.mnemonic() == M::Vzeroall { 0 } else { 16 };
                (first..BYTES).for_each(|at| vector.set_byte(at, Some(0)));
            }
            return Ok(());
        }
        let has = |is: fn(Register) -> bool| (0..it.op_count()).any(|operand| is(it.op_register(operand)));
        // The mask of a scalar move has one bit.
        let is_scalar = matches!(it.mnemonic(), M::Vmovss | M::Vmovsd);
        let is_masked = it.has_op_mask() && (is_scalar || element(it).is_none());
        if has(Register::is_mm) || it.is_broadcast() || is_masked && !has(Register::is_k) {
            return self.opaque(it);
        }
        let bytes = match () {
            () if has(Register::is_zmm) => 64,
            () if has(Register::is_ymm) => 32,
            () => 16,
        };
        let form = Form {
            bytes,
            is_vex: !is_legacy,
            first: u32::from(!is_legacy),
        };
        let is_done = if has(Register::is_k) {
            self.mask(it, form)?
        } else {
            self.move_vector(it, form)?
                || self.permute(it, form)?
                || self.compare_text(it, form)?
                || self.calculate_lanes(it, form)?
        };
        if is_done { Ok(()) } else { self.opaque(it) }
    }

    /// A vector register; the lower bytes of a general-purpose one.
    fn vector_register(&self, register: Register) -> Vector {
        if register.is_gpr() {
            let value = self.register(register);
            let bytes = value
                .bits
                .to_le_bytes()
                .into_iter()
                .zip(value.known.to_le_bytes());
            return Vector::from_bytes(bytes.map(|(byte, known)| (known == u8::MAX).then_some(byte)));
        }
        let number = register.is_vector_register().then(|| register.number());
        let vector = number.and_then(|number| self.vectors.get(number));
        vector.copied().unwrap_or(Vector::UNKNOWN)
    }

    /// A register or memory as a vector. Operands of SSE are aligned, except for moves that say otherwise.
    fn vector_operand(&mut self, it: &Instruction, operand: u32, is_aligned: bool) -> Result<Vector, End> {
        match it.op_kind(operand) {
            OpKind::Register => Ok(self.vector_register(it.op_register(operand))),
            OpKind::Memory => {
                let n = it.memory_size().size().min(BYTES);
                self.load_vector(it, n, is_aligned)
            }
            _ => Err(End::NotEmulated),
        }
    }

    fn load_vector(&mut self, it: &Instruction, n: usize, is_aligned: bool) -> Result<Vector, End> {
        let mut vector = Vector::ZERO;
        let known = match self.address(it)? {
            // What no bit of a mask selects is not loaded.
            Some(address) if is_aligned && !it.has_op_mask() && address % n as u64 != 0 => {
                return Err(End::Fault);
            }
            Some(address) => self.memory.load(address, &mut vector.bytes[..n]),
            None => 0,
        };
        for at in (0..n).filter(|at| known >> at & 1 == 0) {
            vector.set_byte(at, None);
        }
        Ok(vector)
    }

    fn store_vector(
        &mut self,
        it: &Instruction,
        vector: Vector,
        n: usize,
        is_aligned: bool,
    ) -> Result<(), End> {
        let address = self.address(it)?.ok_or(End::UnknownAddress)?;
        if is_aligned && !it.has_op_mask() && address % n as u64 != 0 {
            return Err(End::Fault);
        }
        let mut vector = vector;
        if it.has_op_mask() {
            let old = self.load_vector(it, n, false)?;
            vector = self.masked(it, old, vector);
        }
        self.memory.store(address, &vector.bytes[..n], vector.known)
    }

    /// Writes the lowest bytes of the destination. VEX clears those above, SSE leaves them.
    fn set_vector(&mut self, it: &Instruction, value: Vector, form: Form) -> Result<(), End> {
        let register = it.op0_register();
        let value = self.masked(it, self.vector_register(register), value);
        let number = register.is_vector_register().then(|| register.number());
        let to = number
            .and_then(|number| self.vectors.get_mut(number))
            .ok_or(End::NotEmulated)?;
        for at in 0..BYTES {
            if at < form.bytes {
                to.set_byte(at, value.byte(at));
            } else if form.is_vex {
                to.set_byte(at, Some(0));
            }
        }
        Ok(())
    }

    /// A result where the mask has ones, and what was there, or zeros, where it has none.
    fn masked(&self, it: &Instruction, old: Vector, value: Vector) -> Vector {
        let (true, Some(element)) = (it.has_op_mask(), element(it)) else {
            return value;
        };
        let mask = self.mask_register(it.op_mask());
        let old = if it.zeroing_masking() { Vector::ZERO } else { old };
        Vector::from_bytes((0..BYTES).map(
            |at| match (0..).nth(at / element).and_then(|lane| mask.bit(lane)) {
                Some(true) => value.byte(at),
                Some(false) => old.byte(at),
                None => None,
            },
        ))
    }
}

/// Bytes of the elements of an instruction, as its operand in memory would have them.
fn element(it: &Instruction) -> Option<usize> {
    if matches!(it.mnemonic(), M::Pmuludq | M::Vpmuludq) {
        // It reads the lower halves of its elements.
        return Some(8);
    }
    let bytes = it.memory_size().element_size();
    matches!(bytes, 1 | 2 | 4 | 8).then_some(bytes)
}
