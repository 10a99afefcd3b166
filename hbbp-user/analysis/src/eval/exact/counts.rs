//! Exact counts by address and by mnemonic, as files of other tools hold them, or why a file holds none.

use std::collections::BTreeMap;

use super::names::Names;
use hbbp_reference::Malformed;

/// Executions by module and address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AddressCounts {
    /// Executions by module and address in its file; an empty name represents the module that executed most.
    pub modules: BTreeMap<String, BTreeMap<u64, u64>>,
    /// Whether all modules of the program are in it. Otherwise modules that are missing were not counted.
    pub is_complete: bool,
    /// Whether iterations of string instructions with a REP prefix are counted one by one.
    pub iterates: bool,
}

/// Executions by mnemonic.
#[derive(Clone, Debug, PartialEq)]
pub struct MnemonicCounts {
    /// Executions by the names of the tool.
    pub counts: BTreeMap<String, u64>,
    /// Whose names they are.
    pub names: Names,
}

/// Why a file holds no exact counts.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoCounts {
    /// It is a damaged reference file of the emulated machine.
    #[error(transparent)]
    Reference(#[from] Malformed),
    /// No format fits.
    #[error(
        "unknown format; expected a reference file of the emulated machine, lines `ADDRESS EXECUTIONS`, output of Callgrind, a mix \
         of Intel SDE, or DynamoRIO's opcode_mix"
    )]
    Unknown,
    /// A line cannot be read.
    #[error("line {0} is not as the format has it")]
    Line(usize),
    /// Callgrind was not asked for addresses.
    #[error(
        "the Callgrind output has no addresses of instructions: run valgrind with --tool=callgrind --dump-instr=yes"
    )]
    NoAddresses,
    /// Callgrind counted other events only.
    #[error("the Callgrind output has no event Ir")]
    NoExecutions,
    /// SDE counted forms, not mnemonics.
    #[error("the mix lists instruction forms: run sde without -iform")]
    Forms,
    /// There is not one count in it.
    #[error("it holds no counts")]
    Empty,
}

impl AddressCounts {
    pub(super) fn add(&mut self, module: &str, address: u64, executions: u64) {
        if !self.modules.contains_key(module) {
            self.modules.insert(module.to_owned(), BTreeMap::new());
        }
        if let Some(counts) = self.modules.get_mut(module) {
            let sum = counts.entry(address).or_default();
            *sum = sum.saturating_add(executions);
        }
    }
}

impl MnemonicCounts {
    pub(super) fn new(names: Names) -> Self {
        Self {
            counts: BTreeMap::new(),
            names,
        }
    }

    pub(super) fn add(&mut self, name: &str, executions: u64) {
        let sum = self.counts.entry(name.to_owned()).or_default();
        *sum = sum.saturating_add(executions);
    }
}
