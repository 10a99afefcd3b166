//! What a rewritten instruction is, where it differs from the one that it was rewritten to.

use std::fmt;

/// What differs between an instruction and the nearest one that iced-x86 knows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Modern {
    /// The mnemonic in upper case, where it is another one.
    pub mnemonic: Option<&'static str>,
    /// What a processor must have to execute it.
    pub extension: Extension,
    /// Whether the result goes to one more register (`NDD`), and the other operands are only read.
    pub has_new_destination: bool,
}

/// Extensions of the instruction set that iced-x86 does not know.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Extension {
    /// Advanced Performance Extensions: registers r16 to r31, a new destination, no flags.
    ApxF,
    /// Advanced Vector Extensions 10.2.
    Avx10_2,
    /// Rows of tiles in vectors.
    AmxAvx512,
    /// Products of tiles of 8-bit floats.
    AmxFp8,
    /// Loads of tiles that are read by several processors.
    AmxMovrs,
    /// Products of tiles of TF32.
    AmxTf32,
    /// Loads that are read by several processors.
    Movrs,
    /// Model-specific registers whose number is an immediate value.
    MsrImm,
    /// Model-specific registers that users may read and write.
    UserMsr,
}

impl Extension {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ApxF,
        Self::Avx10_2,
        Self::AmxAvx512,
        Self::AmxFp8,
        Self::AmxMovrs,
        Self::AmxTf32,
        Self::Movrs,
        Self::MsrImm,
        Self::UserMsr,
    ];
}

impl fmt::Display for Extension {
    /// The name that the manuals give to its CPUID bit or version.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ApxF => "APX_F",
            Self::Avx10_2 => "AVX10.2",
            Self::AmxAvx512 => "AMX_AVX512",
            Self::AmxFp8 => "AMX_FP8",
            Self::AmxMovrs => "AMX_MOVRS",
            Self::AmxTf32 => "AMX_TF32",
            Self::Movrs => "MOVRS",
            Self::MsrImm => "MSR_IMM",
            Self::UserMsr => "USER_MSR",
        })
    }
}

impl Modern {
    /// An instruction of APX that has the mnemonic of the one it is rewritten to.
    pub(crate) const APX: Self = Self::of(Extension::ApxF);

    /// An instruction of an extension, with the mnemonic of the one it is rewritten to.
    pub(crate) const fn of(extension: Extension) -> Self {
        Self {
            mnemonic: None,
            extension,
            has_new_destination: false,
        }
    }

    /// The same with another mnemonic.
    pub(crate) const fn called(self, mnemonic: &'static str) -> Self {
        Self {
            mnemonic: Some(mnemonic),
            ..self
        }
    }
}
