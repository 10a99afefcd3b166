//! Dimensions of a mix, with their stable names in `--by` and in the JSON report.

use std::fmt;
use std::str::FromStr;

macro_rules! dimensions {
    ($($variant:ident, $name:literal, $sentence:literal;)*) => {
        /// One key of a pivot (paper section V.B: module, symbol, basic block, and static attributes of instructions).
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Dimension {
            $(#[doc = $sentence] $variant,)*
        }

        impl Dimension {
            /// All of them, in the order of the help text.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Stable name: what `--by` takes and what JSON shows.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Description, for the help text.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence),* }
            }
        }
    };
}

dimensions! {
    Ring, "ring", "Privilege ring: kernel or user.";
    Mnemonic, "mnemonic", "Instruction mnemonic as in the Intel manuals, upper case, without prefixes.";
    Extension, "extension", "Instruction set extension: BASE, X87, SSE2, AVX2, BMI1 and so on.";
    Category, "category", "What the instruction does: data transfer, arithmetic, logic, branch and so on.";
    Packing, "packing", "Whether a vector instruction works on one element (scalar) or on all (packed).";
    Width, "width", "Width in bits of the widest data operand.";
    Memory, "memory", "Whether the instruction reads or writes memory, the stack included.";
    ControlFlow, "flow", "How the instruction passes control on.";
    Lock, "lock", "Whether the instruction locks its memory operand, by prefix or by nature.";
    Latency, "latency", "Whether the instruction is one of long latency.";
    Module, "module", "The kernel, a kernel module, or a mapped file.";
    Function, "function", "Function, by the symbol that covers the instruction.";
    Line, "line", "Source line, where debug information is found; else the function.";
    Inlined, "inlined", "Function, or the function that was inlined at the instruction, by debug information.";
    Process, "process", "Process image; the kernel is one of its own.";
    Source, "source", "Where the figure of the block comes from: EBS or LBR.";
    Block, "block", "Basic block, by module and address.";
}

/// An unknown dimension name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnknownDimension(pub String);

impl Dimension {
    /// Whether it depends on the instruction only, not on its location or process.
    pub const fn is_static(self) -> bool {
        match self {
            Self::Mnemonic | Self::Extension | Self::Category | Self::Packing | Self::Width => true,
            Self::Memory | Self::ControlFlow | Self::Lock | Self::Latency => true,
            Self::Ring | Self::Module | Self::Function | Self::Process | Self::Source | Self::Block => false,
            Self::Line | Self::Inlined => false,
        }
    }
}

impl Dimension {
    /// Whether it comes from debug information, so that it may differ within a block.
    pub const fn is_in_source(self) -> bool {
        matches!(self, Self::Line | Self::Inlined)
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for UnknownDimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Dimension::ALL.iter().map(|d| d.name()).collect();
        write!(
            f,
            "unknown dimension `{}`; expected one of {}",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for UnknownDimension {}

impl FromStr for Dimension {
    type Err = UnknownDimension;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().copied().find(|d| d.name() == name);
        found.ok_or_else(|| UnknownDimension(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimension_names_round_trip() {
        for dimension in Dimension::ALL {
            assert_eq!(dimension.name().parse(), Ok(*dimension));
        }
        assert!(
            "colour"
                .parse::<Dimension>()
                .unwrap_err()
                .to_string()
                .contains("mnemonic")
        );
    }
}
