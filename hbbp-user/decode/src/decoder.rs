//! The decoder.

use iced_x86::{Decoder as Iced, DecoderOptions, IcedError, Instruction};

use crate::apx;
use crate::avx10;
use crate::encoding::Encoding;
use crate::modern::Modern;
use crate::rex2;
use crate::vex;

/// Decodes instructions, one after the other.
pub struct Decoder<'a> {
    iced: Iced<'a>,
    bytes: &'a [u8],
    /// The last instruction that was rewritten, until another position is set.
    last: Option<Last>,
}

/// An instruction that was rewritten.
#[derive(Clone, Copy)]
struct Last {
    /// Offset of its end.
    end: usize,
    modern: Modern,
}

impl<'a> Decoder<'a> {
    /// Of code of `bits` bits whose first byte has the address `ip`.
    ///
    /// # Errors
    /// When `bits` is not 16, 32 or 64.
    pub fn try_with_ip(bits: u32, bytes: &'a [u8], ip: u64) -> Result<Self, IcedError> {
        Ok(Self {
            iced: Iced::try_with_ip(bits, bytes, ip, DecoderOptions::NONE)?,
            bytes,
            last: None,
        })
    }

    /// Offset of the next instruction in bytes.
    pub fn position(&self) -> usize {
        self.iced.position()
    }

    /// Sets the offset of the next instruction, and its address.
    ///
    /// # Errors
    /// When there is no such byte.
    pub fn go_to(&mut self, position: usize, ip: u64) -> Result<(), IcedError> {
        self.iced.set_position(position)?;
        self.iced.set_ip(ip);
        self.last = None;
        Ok(())
    }

    /// Decodes the next instruction. Where iced-x86 does not know it, it is the nearest one that iced-x86 knows, with the
    /// length of the one that is there.
    pub fn decode(&mut self) -> Instruction {
        let mut instruction = Instruction::default();
        self.decode_out(&mut instruction);
        instruction
    }

    /// The same, into `instruction`.
    #[inline]
    pub fn decode_out(&mut self, instruction: &mut Instruction) {
        self.iced.decode_out(instruction);
        if instruction.is_invalid() {
            self.decode_modern(instruction);
        }
    }

    /// What the last instruction is where it differs from the one that was returned.
    #[inline]
    pub fn modern(&self) -> Option<Modern> {
        // Nothing is noted for the others, which end elsewhere.
        let last = self.last.filter(|last| last.end == self.position())?;
        Some(last.modern)
    }

    /// Decodes again what iced-x86 found to be no instruction.
    #[cold]
    fn decode_modern(&mut self, instruction: &mut Instruction) {
        // At the end of the bytes the position stays.
        self.last = None;
        if self.iced.bitness() != 64 {
            return;
        }
        // An invalid instruction has the address and the length of the bytes that were read.
        let (position, ip) = (self.iced.position() - instruction.len(), instruction.ip());
        let Some((modern, found)) = decoded(self.bytes.get(position..).unwrap_or(&[]), ip) else {
            return;
        };
        let end = position + found.len();
        if self.go_to(end, found.next_ip()).is_ok() {
            self.last = Some(Last { end, modern });
            *instruction = found;
        }
    }
}

impl Iterator for Decoder<'_> {
    type Item = Instruction;

    fn next(&mut self) -> Option<Instruction> {
        self.iced.can_decode().then(|| self.decode())
    }
}

/// The mnemonics that iced-x86 does not know, in upper case; some of them are here twice.
pub fn mnemonics() -> impl Iterator<Item = &'static str> {
    let of_prefixes = rex2::MNEMONICS.iter().chain(&apx::MNEMONICS).copied();
    let by_condition = apx::BY_CONDITION.iter().flat_map(|names| names.iter().copied());
    of_prefixes
        .chain(by_condition)
        .chain(avx10::mnemonics())
        .chain(vex::mnemonics())
}

/// The instruction at the beginning of these bytes, if it is one that is rewritten.
fn decoded(bytes: &[u8], ip: u64) -> Option<(Modern, Instruction)> {
    let encoding = Encoding::read(bytes)?;
    let rewritten = encoding.nearest()?;
    let found = rewritten.decoded(ip)?;
    // Where text ends too early there is no instruction.
    (found.len() <= bytes.len()).then_some((rewritten.modern, found))
}

#[cfg(test)]
mod tests;
