//! Names of instructions in other tools, and what the mnemonics of a profile are called there.
//!
//! Both sides of a comparison are brought to one name: that of the Intel manual, unless the tool has one name for
//! several of the manual.

/// Whose names they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Names {
    /// Instruction classes of Intel's XED, as SDE and Pin have them.
    Xed,
    /// Opcodes of DynamoRIO, which have no operand size.
    DynamoRio,
}

/// Conditions of jumps, moves and sets by the names of these tools, and by those of the mnemonics of a profile.
const CONDITIONS: [(&str, &str); 6] = [
    ("Z", "E"),
    ("NZ", "NE"),
    ("NB", "AE"),
    ("NBE", "A"),
    ("NL", "GE"),
    ("NLE", "G"),
];

/// What XED adds to a mnemonic.
const XED_PREFIXES: [&str; 3] = ["REP_", "REPE_", "REPNE_"];
const XED_SUFFIXES: [&str; 6] = ["_LOCK", "_XMM", "_NEAR", "_CR", "_DR", "_FAR"];

/// Mnemonics that differ by the size of their operands alone, and DynamoRIO's one name for them. `MOVSD` and `CMPSD` are
/// left out: they name vector instructions, too.
const SIZED: [(&str, &[&str]); 10] = [
    ("MOVS", &["MOVSB", "MOVSW", "MOVSQ"]),
    ("CMPS", &["CMPSB", "CMPSW", "CMPSQ"]),
    ("STOS", &["STOSB", "STOSW", "STOSD", "STOSQ"]),
    ("LODS", &["LODSB", "LODSW", "LODSD", "LODSQ"]),
    ("SCAS", &["SCASB", "SCASW", "SCASD", "SCASQ"]),
    ("CWDE", &["CBW", "CDQE"]),
    ("CDQ", &["CWD", "CQO"]),
    ("PUSHF", &["PUSHFQ"]),
    ("POPF", &["POPFQ"]),
    ("IRET", &["IRETD", "IRETQ"]),
];

impl Names {
    /// The common name of an instruction that the tool calls so.
    pub(crate) fn of_tool(self, name: &str) -> String {
        match self {
            Self::Xed => {
                let far_return = name == "RET_FAR";
                let name = XED_PREFIXES
                    .iter()
                    .find_map(|prefix| name.strip_prefix(prefix))
                    .unwrap_or(name);
                let name = XED_SUFFIXES
                    .iter()
                    .find_map(|suffix| name.strip_suffix(suffix))
                    .unwrap_or(name);
                if far_return {
                    return "RETF".to_owned();
                }
                with_condition(name)
            }
            Self::DynamoRio => {
                // `rep movs`, `lock add`: the opcode is last.
                let name = name.rsplit(' ').next().unwrap_or(name).to_uppercase();
                self.of_profile(&with_condition(&name))
            }
        }
    }

    /// The common name of a mnemonic of the profile.
    pub(crate) fn of_profile(self, mnemonic: &str) -> String {
        let sized = match self {
            Self::Xed => None,
            Self::DynamoRio => SIZED.iter().find(|(_, sized)| sized.contains(&mnemonic)),
        };
        sized.map_or(mnemonic, |(name, _)| name).to_owned()
    }
}

/// `JNZ` and so on as the profile has them.
fn with_condition(name: &str) -> String {
    let renamed = ["J", "SET", "CMOV"].iter().find_map(|stem| {
        let condition = name.strip_prefix(stem)?;
        let (_, ours) = CONDITIONS.iter().find(|(theirs, _)| *theirs == condition)?;
        Some(format!("{stem}{ours}"))
    });
    renamed.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tools_become_those_of_the_profile() {
        for (theirs, ours) in [
            ("JNZ", "JNE"),
            ("JNLE", "JG"),
            ("JB", "JB"),
            ("CMOVNB", "CMOVAE"),
            ("SETZ", "SETE"),
            ("CALL_NEAR", "CALL"),
            ("RET_NEAR", "RET"),
            ("RET_FAR", "RETF"),
            ("CMPXCHG_LOCK", "CMPXCHG"),
            ("REPE_CMPSB", "CMPSB"),
            ("MOVSD_XMM", "MOVSD"),
            ("MOV_CR", "MOV"),
        ] {
            assert_eq!(
                Names::Xed.of_tool(theirs),
                Names::Xed.of_profile(ours),
                "{theirs}"
            );
        }
        for (theirs, ours) in [
            ("jnz", "JNE"),
            ("rep movs", "MOVSQ"),
            ("movs", "MOVSB"),
            ("lock cmpxchg", "CMPXCHG"),
            ("cwde", "CDQE"),
            ("cdq", "CQO"),
            ("vmovdqu", "VMOVDQU"),
        ] {
            assert_eq!(
                Names::DynamoRio.of_tool(theirs),
                Names::DynamoRio.of_profile(ours),
                "{theirs}"
            );
        }
    }
}
