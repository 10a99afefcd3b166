//! Mixes of other tools: mnemonics with their executions, without addresses.
//!
//! - Intel SDE (`sde64 -mix`) and Pin's `mix-mt`: sections of lines `ICLASS COUNT`, where a name that begins with `*` is a group
//!   of instructions that other lines have. The section `$global-dynamic-counts` sums up all threads; without one the sections
//!   `$dynamic-counts` of the threads are added.
//! - DynamoRIO (`drrun -t drcachesim -simulator_type opcode_mix`, now `-tool opcode_mix`): after a head, lines
//!   `COUNT : OPCODE`, the first of them the total; then the same by sets of categories.

use super::counts::{MnemonicCounts, NoCounts};
use super::names::Names;

/// First line of the counts of DynamoRIO.
pub(super) const DYNAMORIO_HEAD: &str = "Opcode mix tool results:";

pub(super) fn parse_mix(text: &str) -> Result<MnemonicCounts, NoCounts> {
    let global = text
        .lines()
        .any(|line| line.starts_with("# $global-dynamic-counts"));
    let wanted = if global {
        "$global-dynamic-counts"
    } else {
        "$dynamic-counts"
    };
    let mut counts = MnemonicCounts::new(Names::Xed);
    let mut is_wanted = false;
    for (line, number) in text.lines().zip(1..) {
        let comment = line.strip_prefix('#').map(str::trim);
        match comment {
            Some(comment) if comment.starts_with('$') => is_wanted = comment == wanted,
            Some(comment) if comment.starts_with("END_") || comment.starts_with("EMIT_") => is_wanted = false,
            Some(comment) if is_wanted && comment.starts_with("iform") => return Err(NoCounts::Forms),
            Some(_) => {}
            None if is_wanted && !line.trim().is_empty() && !line.starts_with('*') => {
                let (name, count) = named_count(line).ok_or(NoCounts::Line(number))?;
                counts.add(name, count);
            }
            None => {}
        }
    }
    Ok(counts)
}

/// `NAME COUNT`; with -predicated a second count follows.
fn named_count(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_ascii_whitespace();
    Some((words.next()?, words.next()?.parse().ok()?))
}

pub(super) fn parse_dynamorio(text: &str) -> Result<MnemonicCounts, NoCounts> {
    let mut counts = MnemonicCounts::new(Names::DynamoRio);
    let numbered = text.lines().zip(1..);
    let mut lines = numbered
        .skip_while(|(line, _)| !line.starts_with(DYNAMORIO_HEAD))
        .skip(1);
    // The total is first.
    lines.next();
    for (line, number) in lines {
        let Some((count, name)) = line.split_once(" : ") else {
            break;
        };
        if name.trim().starts_with("sets of categories") {
            break;
        }
        let count = count.trim().replace(',', "");
        let count = count.parse().map_err(|_| NoCounts::Line(number))?;
        counts.add(name.trim(), count);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn counts(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
        let named = expected.iter().map(|(name, count)| ((*name).to_owned(), *count));
        named.collect()
    }

    #[test]
    fn the_global_section_of_a_mix_counts_once() {
        let text = "# Mix output version 10\n# EMIT_DYNAMIC_STATS FOR TID 0 EMIT #1\n#\n# $dynamic-counts\n#\n# TID 0\n\
                    # iclass count\n#\nADD 5\n*total 5\n# END_DYNAMIC_STATS\n# EMIT_GLOBAL_DYNAMIC_STATS   EMIT# 1\n#\n\
                    # $global-dynamic-counts\n#\n# iclass count\n#\n*mem-read 3\nADD_LOCK     7\nJNZ  2\n*total  9\n\
                    # END_GLOBAL_DYNAMIC_STATS\nXOR 1\n";
        assert_eq!(
            parse_mix(text).unwrap().counts,
            counts(&[("ADD_LOCK", 7), ("JNZ", 2)])
        );
        let threads = text.split("# EMIT_GLOBAL").next().unwrap().repeat(2);
        assert_eq!(parse_mix(&threads).unwrap().counts, counts(&[("ADD", 10)]));
        let forms = text.replace("# iclass", "# iform");
        assert_eq!(parse_mix(&forms), Err(NoCounts::Forms));
    }

    #[test]
    fn opcodes_of_dynamorio_end_before_their_categories() {
        let text = "Opcode mix tool results:\n        9 : total executed instructions\n        5 :  rep movs\n        3 :       add\n\
                    \x20       1 :       add\n\n       3 : sets of categories\n       9 :  math\n";
        assert_eq!(
            parse_dynamorio(text).unwrap().counts,
            counts(&[("rep movs", 5), ("add", 4)])
        );
    }
}
