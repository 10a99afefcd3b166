//! Exact counts that a profile is compared with, and the formats in which they come.
//!
//! - The reference file of the emulated machine: blocks with their code, in all processes and the kernel. Its format is
//!   specified in the crate `hbbp-reference`.
//! - Lines `ADDRESS EXECUTIONS` by module ([`addresses`]), as `hbbp-sys export --format counts` writes them.
//! - The output of Callgrind with addresses of instructions ([`callgrind`]).
//! - The mix of Intel SDE, and DynamoRIO's `opcode_mix` ([`opcodes`]): mnemonics without addresses.
//!
//! All but the first count user code alone, of one program: a profile of that program alone is compared with them. The tools
//! count each iteration of a string instruction with a REP prefix, where a processor retires one instruction.

mod addresses;
mod callgrind;
mod counts;
mod names;
mod opcodes;

use std::collections::BTreeMap;

pub(super) use counts::{AddressCounts, MnemonicCounts, NoCounts};
use hbbp_reference::{Malformed, Reference};
pub(super) use names::Names;

/// Exact counts of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Exact {
    /// Of blocks in all processes and the kernel, with their code.
    Blocks(Reference),
    /// Of user code by address.
    Addresses(AddressCounts),
    /// Of user code by mnemonic.
    Mnemonics(MnemonicCounts),
}

impl Exact {
    /// Reads a file of any of the formats.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoCounts> {
        match Reference::parse(bytes) {
            Err(Malformed::NoMagic) => {}
            parsed => return Ok(Self::Blocks(parsed?)),
        }
        let text = String::from_utf8_lossy(bytes);
        let begins = |start: &str| text.lines().any(|line| line.starts_with(start));
        let exact = if begins("# callgrind format") || begins("positions:") {
            Self::Addresses(callgrind::parse(&text)?)
        } else if begins(opcodes::DYNAMORIO_HEAD) {
            Self::Mnemonics(opcodes::parse_dynamorio(&text)?)
        } else if begins("# $global-dynamic-counts") || begins("# $dynamic-counts") {
            Self::Mnemonics(opcodes::parse_mix(&text)?)
        } else {
            Self::Addresses(addresses::parse(&text)?)
        };
        if exact.is_empty() {
            return Err(NoCounts::Empty);
        }
        Ok(exact)
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Blocks(_) => false,
            Self::Addresses(counts) => counts.modules.values().all(BTreeMap::is_empty),
            Self::Mnemonics(counts) => counts.counts.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_counts_says_what_to_do() {
        let error = |text: &str| Exact::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error("hello world\n"), NoCounts::Unknown);
        assert_eq!(error(""), NoCounts::Empty);
        assert_eq!(error("# $dynamic-counts\n*total 0\n"), NoCounts::Empty);
        assert_eq!(error("HBBPREF1"), NoCounts::Reference(Malformed::EndsEarly));
        assert_eq!(error("events: Ir\npositions: line\n1 2\n"), NoCounts::NoAddresses);
        assert_eq!(error("1000 5\n1004 x\n"), NoCounts::Line(2));
    }
}
