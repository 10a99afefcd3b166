//! How an instruction that iced-x86 does not know is encoded: by REX2, EVEX or VEX.

use crate::apx;
use crate::avx10;
use crate::decorations::Decorations;
use crate::evex::{EVEX, Evex};
use crate::legacy::{self, Legacy};
use crate::modern::Modern;
use crate::registers::Registers;
use crate::rewritten::{LONGEST, Rewritten};
use crate::rex2::{self, REX2, Rex2};
use crate::vector;
use crate::vex::{self, VEX};

/// An instruction, split into its prefixes and the rest.
#[derive(Clone, Copy)]
pub(crate) enum Encoding<'a> {
    Rex2(Rex2<'a>),
    Evex(Evex<'a>),
    /// The prefixes before VEX, and what begins with it.
    Vex(&'a [u8], &'a [u8]),
    Legacy(Legacy<'a>),
}

impl<'a> Encoding<'a> {
    /// Reads the instruction at the beginning of these bytes.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let is_prefix =
            |byte: &&u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
        let n_prefixes = bytes.iter().take(LONGEST).take_while(is_prefix).count();
        let (prefixes, rest) = bytes.split_at_checked(n_prefixes)?;
        let rest = rest.get(..LONGEST).unwrap_or(rest);
        match *rest.first()? {
            REX2 => Rex2::read(prefixes, rest).map(Self::Rex2),
            EVEX => Evex::read(prefixes, rest).map(Self::Evex),
            VEX => Some(Self::Vex(prefixes, rest)),
            _ => Legacy::read(prefixes, rest).map(Self::Legacy),
        }
    }

    /// The nearest instruction that iced-x86 may know: with the same access to memory.
    pub(crate) fn nearest(&self) -> Option<Rewritten> {
        match self {
            Self::Rex2(rex2) => rex2::rewritten(rex2),
            Self::Evex(evex) if evex.map() == apx::MAP => apx::rewritten(evex),
            Self::Evex(evex) => vector::rewritten(evex),
            Self::Vex(prefixes, rest) => vex::rewritten(prefixes, rest),
            Self::Legacy(legacy) => legacy::rewritten(legacy),
        }
    }

    /// The nearest one with the same operands, but for a new destination.
    pub(crate) fn with_operands(&self) -> Option<Rewritten> {
        match self {
            Self::Evex(evex) if evex.map() == apx::MAP => apx::with_operands(evex),
            _ => self.nearest(),
        }
    }

    /// The numbers of its general registers.
    pub(crate) fn registers(&self) -> Registers {
        match self {
            Self::Rex2(rex2) => rex2.registers(),
            Self::Evex(evex) => evex.registers(),
            Self::Vex(_, rest) => vex::registers(rest),
            Self::Legacy(legacy) => legacy.registers(),
        }
    }

    /// What its text has in addition to the operands of [`Self::with_operands`].
    pub(crate) fn decorations(&self, modern: Modern) -> Decorations {
        match self {
            Self::Evex(evex) if evex.map() == apx::MAP => apx::decorations(evex),
            Self::Evex(evex) => Decorations {
                has_row: vex::moves_row(evex),
                is_reversed: vex::has_number_first(modern.mnemonic, evex.map()),
                has_half_result: avx10::has_half_result(modern.mnemonic),
                leaves_flags: vector::leaves_flags(evex),
                ..Decorations::default()
            },
            Self::Vex(_, [_, p0, ..]) => Decorations {
                is_reversed: vex::has_number_first(modern.mnemonic, p0 & 0x1f),
                ..Decorations::default()
            },
            _ => Decorations::default(),
        }
    }
}
