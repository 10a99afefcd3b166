//! Mnemonics of map 4 that the opcode alone does not say.

use crate::evex::Evex;

/// Mnemonics by condition, in the order of the codes; CCMP and CTEST have `true` and `false` instead of parity.
pub(super) const CFCMOV: [&str; 16] = [
    "CFCMOVO", "CFCMOVNO", "CFCMOVB", "CFCMOVAE", "CFCMOVE", "CFCMOVNE", "CFCMOVBE", "CFCMOVA", "CFCMOVS",
    "CFCMOVNS", "CFCMOVP", "CFCMOVNP", "CFCMOVL", "CFCMOVGE", "CFCMOVLE", "CFCMOVG",
];
pub(super) const SETZU: [&str; 16] = [
    "SETZUO", "SETZUNO", "SETZUB", "SETZUAE", "SETZUE", "SETZUNE", "SETZUBE", "SETZUA", "SETZUS", "SETZUNS",
    "SETZUP", "SETZUNP", "SETZUL", "SETZUGE", "SETZULE", "SETZUG",
];
pub(super) const CCMP: [&str; 16] = [
    "CCMPO", "CCMPNO", "CCMPB", "CCMPAE", "CCMPE", "CCMPNE", "CCMPBE", "CCMPA", "CCMPS", "CCMPNS", "CCMPT",
    "CCMPF", "CCMPL", "CCMPGE", "CCMPLE", "CCMPG",
];
pub(super) const CTEST: [&str; 16] = [
    "CTESTO", "CTESTNO", "CTESTB", "CTESTAE", "CTESTE", "CTESTNE", "CTESTBE", "CTESTA", "CTESTS", "CTESTNS",
    "CTESTT", "CTESTF", "CTESTL", "CTESTGE", "CTESTLE", "CTESTG",
];
/// All mnemonics with a condition.
pub(crate) const BY_CONDITION: [[&str; 16]; 4] = [CFCMOV, SETZU, CCMP, CTEST];
/// The other mnemonics that iced-x86 does not know.
pub(crate) const MNEMONICS: [&str; 8] = [
    "IMULZU", "MOVRS", "POP2", "POP2P", "PUSH2", "PUSH2P", "URDMSR", "UWRMSR",
];
/// By the opcode's row, and by ModRM.reg of immediate values.
const ARITHMETIC: [&str; 8] = ["ADD", "OR", "ADC", "SBB", "AND", "SUB", "XOR", "CMP"];
/// By ModRM.reg.
const SHIFTS: [&str; 8] = ["ROL", "ROR", "RCL", "RCR", "SHL", "SHR", "SHL", "SAR"];

/// The mnemonic of an instruction that is rewritten to a comparison.
pub(super) fn of_reading(evex: &Evex<'_>) -> Option<&'static str> {
    let reg = usize::from(evex.reg());
    let name = match evex.opcode {
        0x24 | 0xa5 => "SHLD",
        0x2c | 0xad => "SHRD",
        0x80 | 0x81 | 0x83 => ARITHMETIC.get(reg)?,
        0xc0 | 0xc1 | 0xd0..=0xd3 => SHIFTS.get(reg)?,
        0xf6 | 0xf7 if reg == 2 => "NOT",
        0xf6 | 0xf7 => "NEG",
        _ if reg == 0 => "INC",
        _ => "DEC",
    };
    Some(name)
}
