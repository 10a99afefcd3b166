//! `B from to count mispredicted`: how often each taken branch was recorded.

use std::io::{self, Write};

use super::{Lines, build_id, known_modules};
use hbbp_code::locate::AddressMap;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{ModuleIdx, Snapshot};

/// Occurrences of a branch.
#[derive(Clone, Copy, Debug, Default)]
struct Occurrences {
    hits: u64,
    mispredicted: u64,
    /// How many of the hits are known to be predicted rightly or wrongly.
    known: u64,
}

/// Writes the branches of all events whose source lies in a module.
pub fn write_branches(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let mut lines: Lines<(ImageAddr, ImageAddr, ModuleIdx), Occurrences> = Lines::new();
    let known = known_modules(snapshot);
    let mut map = AddressMap::new(snapshot);
    for (branches, n) in snapshot.taken_branches().zip(0..) {
        map.set_interval(n);
        for count in branches.iter().map(|branch| &branch.count) {
            let ends = [count.from, count.to].map(|at| map.module_at(count.process, at));
            match ends {
                [Some((module, from)), Some((other, to))]
                    if known.contains(&module) && known.contains(&other) =>
                {
                    let sum = lines.entry(module, (from, to, other));
                    sum.hits = sum.hits.saturating_add(count.hits);
                    if let Some(mispredicted) = count.mispredicted {
                        sum.mispredicted = sum.mispredicted.saturating_add(mispredicted);
                        sum.known = sum.known.saturating_add(count.hits);
                    }
                }
                [Some((module, _)), _] if known.contains(&module) => {
                    lines.discard(UNKNOWN_TARGET, count.hits);
                }
                _ => lines.discard(UNKNOWN_SOURCE, count.hits),
            }
        }
    }
    // A target in another module is prefixed with the build id of that module.
    lines.write(snapshot, out, |module, (from, to, other), sum, out| {
        let prefix = match build_id(snapshot, *other) {
            _ if module == *other => String::new(),
            Some(build_id) => format!("{build_id}:"),
            None => "X:".to_owned(),
        };
        write!(out, "B {:x} {prefix}{:x} {} ", from.0, to.0, sum.hits)?;
        if sum.known < sum.hits {
            return writeln!(out, "unknown");
        }
        writeln!(out, "{}", sum.mispredicted)
    })
}

/// The source lies in no module whose text is known.
const UNKNOWN_SOURCE: &str = "branch.unknown_source";
/// The target does.
const UNKNOWN_TARGET: &str = "branch.unknown_target";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::tests;
    use hbbp_model::addr::Va;

    #[test]
    fn branch_targets_in_other_modules_are_prefixed() {
        let branches = [
            (0x1002, 0x1000, 5, 2),
            (0x1002, 0x2000, 3, 0),
            (0x1003, 0x9000, 1, 1),
            (0x9000, 0x1000, 4, 0),
        ];
        let branches = branches.map(|(from, to, hits, wrong)| tests::branch(Va(from), Va(to), hits, wrong));
        let mut out = Vec::new();
        write_branches(&tests::snapshot(&[], &branches), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "M /bin/a ab01\nB 1002 1000 5 2\nB 1002 cd02:2000 3 0\n# discarded branch.unknown_source 4\n\
             # discarded branch.unknown_target 1\n"
        );
    }
}
