//! Dimensions of a mix, with their stable names in `--rows`, `--cols`, `--filter` and in the JSON report.

use std::fmt;

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

            /// Stable name: what `--rows` takes and what JSON shows.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
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
    Level, "level", "Lowest x86-64 level (psABI) that has the instruction: v1 to v4, or none of them.";
    Element, "element", "Type of the data elements: int8 to int512, float16 to float80, bfloat16.";
    Form, "form", "Mnemonic with the kinds of its operands, e.g. `MOV R64, M64`.";
    Operands, "operands", "Number of explicit operands.";
    Sizes, "sizes", "Size in bits of each operand; of memory 0 if no data is accessed, as by LEA.";
    Access, "access", "What the instruction does with each operand: read, write, both, or none, if a condition holds or always.";
    Immediate, "immediate", "Bits of the immediate values in the encoding.";
    Displacement, "displacement", "Bits of the displacement in the encoding, of a memory operand or of a branch.";
    Module, "module", "The kernel, a kernel module, or a mapped file.";
    Function, "function", "Function, by the symbol that covers the instruction.";
    File, "file", "Source file, where debug information is found; else the module.";
    Line, "line", "Source line, where debug information is found; else the function.";
    Inlined, "inlined", "Function, or the function that was inlined at the instruction, by debug information.";
    Loop, "loop", "Innermost loop, by its function and its first and last address.";
    Callee, "callee", "For calls, the function that is called, `(indirect)` where that is computed.";
    Mitigation, "mitigation", "CPU vulnerability mitigation of the kernel that the instruction belongs to.";
    Patch, "patch", "Site that the kernel patches: tracepoint, static branch or ftrace, on or off; and other NOPs.";
    Process, "process", "Process image; the kernel is one of its own.";
    Pid, "pid", "Process id; 0 for the kernel's idle task, and for kernel code of older profiles.";
    Command, "command", "Command name of the process.";
    Thread, "thread", "Thread by name and id, where threads were counted separately.";
    Cgroup, "cgroup", "Path of the process's cgroup (v2) when it was first seen.";
    Source, "source", "Where the figure of the block comes from: EBS or LBR.";
    Block, "block", "Basic block, by module and address.";
}

/// What the value of a dimension depends on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum DependsOn {
    /// The instruction form alone.
    Form,
    /// The function.
    Function,
    /// The block and the process image.
    Block,
    /// The single instruction.
    Instruction,
}

impl Dimension {
    /// What its value depends on.
    pub const fn depends_on(self) -> DependsOn {
        match self {
            Self::Mnemonic | Self::Extension | Self::Category | Self::Packing | Self::Width => {
                DependsOn::Form
            }
            Self::Memory | Self::ControlFlow | Self::Lock | Self::Level | Self::Element => DependsOn::Form,
            Self::Form => DependsOn::Form,
            Self::Ring | Self::Module | Self::Function => DependsOn::Function,
            Self::Source | Self::Block => DependsOn::Block,
            Self::Process | Self::Pid | Self::Command | Self::Thread | Self::Cgroup => DependsOn::Block,
            Self::File | Self::Line | Self::Inlined | Self::Callee | Self::Mitigation | Self::Patch => {
                DependsOn::Instruction
            }
            Self::Loop => DependsOn::Instruction,
            Self::Operands | Self::Sizes | Self::Access | Self::Immediate | Self::Displacement => {
                DependsOn::Instruction
            }
        }
    }

    /// The dimension of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|dimension| dimension.name() == name)
    }

    /// Whether it depends on the process image.
    pub(crate) const fn is_of_process(self) -> bool {
        matches!(
            self,
            Self::Process | Self::Pid | Self::Command | Self::Thread | Self::Cgroup
        )
    }

    /// Whether it comes from debug information.
    pub(crate) const fn is_in_source(self) -> bool {
        matches!(self, Self::File | Self::Line | Self::Inlined)
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimension_names_round_trip() {
        for dimension in Dimension::ALL {
            assert_eq!(Dimension::named(dimension.name()), Some(*dimension));
        }
    }
}
