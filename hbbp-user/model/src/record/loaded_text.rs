//! Kernel text that was loaded, and where its symbols are.

use crate::addr::Va;

/// The text of a kernel module that was loaded or freed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoadedText {
    /// Its name.
    pub name: String,
    /// Whether it was freed.
    pub gone: bool,
    /// Core and init text; parts without text are omitted.
    pub parts: Vec<TextPart>,
    /// Symbol tables in kernel memory: the core symbols, and all symbols while the module is loaded.
    pub symbols: Vec<SymbolTable>,
}

/// A part of a module's text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextPart {
    /// First byte.
    pub start: Va,
    /// Length in bytes.
    pub len: u64,
}

/// A symbol table in the kernel's memory (include/linux/module.h, struct `mod_kallsyms`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SymbolTable {
    /// The structure itself.
    At(Va),
    /// What it holds.
    Of {
        /// Address of the symbols, each an `Elf64_Sym`.
        symbols: Va,
        /// Number of symbols.
        n: u32,
        /// Address of their names.
        names: Va,
    },
}
