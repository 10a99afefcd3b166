//! What text belongs to, and text that was hit.

use super::index::ModuleIdx;
use crate::addr::ImageAddr;

/// Something that text belongs to: the paper's "binary module".
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Path of a file, or the kernel's name for it: `[kernel]`, `[vdso]`, `nf_tables`, `[anon]`.
    pub name: String,
    /// What kind of module it is.
    pub kind: ModuleKind,
    /// GNU build id, empty where there is none.
    pub build_id: Vec<u8>,
    /// Functions whose text was hit, sorted by start.
    pub symbols: Vec<Symbol>,
}

impl Module {
    /// The symbol that covers an address. One without a length reaches to the next one.
    pub fn symbol_at(&self, addr: ImageAddr) -> Option<&Symbol> {
        let n_before = self.symbols.partition_point(|s| s.start <= addr);
        let symbol = self.symbols.get(n_before.checked_sub(1)?)?;
        let inside = symbol.len == 0 || addr.since(symbol.start)? < symbol.len;
        inside.then_some(symbol)
    }
}

/// The kind of a [`Module`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ModuleKind {
    /// The kernel image.
    Kernel,
    /// A loaded kernel module.
    KernelModule,
    /// Code that the kernel's BPF compiler wrote.
    Bpf,
    /// Other kernel text without a file: ftrace and kprobe trampolines, thunks.
    Trampoline,
    /// A 64-bit ELF file mapped into a process.
    Elf64,
    /// A 32-bit ELF file mapped into a process; its text is decoded as 32-bit code.
    Elf32,
    /// The kernel's code page in each process.
    Vdso,
    /// Executable memory without a file: the output of a compiler at run time.
    Anonymous,
}

impl ModuleKind {
    /// Whether its text belongs to ring 0.
    pub const fn is_kernel(self) -> bool {
        matches!(
            self,
            Self::Kernel | Self::KernelModule | Self::Bpf | Self::Trampoline
        )
    }

    /// Operand and address size in bits to decode its text with.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Elf32 => 32,
            _ => 64,
        }
    }
}

/// A named range of text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Symbol {
    /// First byte.
    pub start: ImageAddr,
    /// Length in bytes; 0 if only the start is known.
    pub len: u64,
    /// Name as found, mangled names included; empty if only the range is known.
    pub name: String,
}

/// A range of text that was hit, with the executed bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Text {
    /// The module it belongs to.
    pub module: ModuleIdx,
    /// Address of the first byte.
    pub start: ImageAddr,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Index of the first interval in which these bytes are valid.
    /// Text that was patched during the run has one entry for each version, with the same extent.
    pub since: u32,
}

/// A site of kernel text where a static key decides between a NOP and a jump.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct StaticBranch {
    /// The module of its text.
    pub module: ModuleIdx,
    /// Address of the instruction.
    pub addr: ImageAddr,
    /// Whether the key is that of a tracepoint.
    pub tracepoint: bool,
}

/// Bytes in hexadecimal, as the kernel and debuggers write build ids.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
