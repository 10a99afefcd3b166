//! `B from to count mispredicted`: how often each taken branch was recorded.

use std::io::{self, Write};

use super::{Lines, build_id, known_modules};
use crate::addr::ImageAddr;
use crate::locate::{Atlas, Unresolved};
use crate::snapshot::{ModuleIdx, Snapshot};

/// Occurrences of a branch.
#[derive(Clone, Copy, Debug, Default)]
struct Occurrences {
    hits: u64,
    mispredicted: u64,
}

/// Where a branch leads.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Target {
    /// To nowhere that is known.
    Unknown,
    /// To this module and address.
    At(ImageAddr, ModuleIdx),
}

/// Writes the branches of all events whose source lies in a module.
pub fn write_branches(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let mut lines: Lines<(ImageAddr, Target, ModuleIdx), Occurrences> = Lines::new();
    let known = known_modules(snapshot);
    let mut atlas = Atlas::new(snapshot);
    for (interval, n) in snapshot.intervals.iter().zip(0..) {
        atlas.turn_to(n);
        for count in &interval.branches {
            let (module, from) = match atlas.module_at(count.process, count.from) {
                Some(source) if known.contains(&source.0) => source,
                source => {
                    let why = if source.is_some() {
                        Unresolved::NoText
                    } else {
                        Unresolved::NoMapping
                    };
                    lines.discard(why.id(), count.hits);
                    continue;
                }
            };
            let target = atlas
                .module_at(count.process, count.to)
                .filter(|(module, _)| known.contains(module));
            let target = target.map_or(Target::Unknown, |(module, at)| Target::At(at, module));
            let sum = lines.entry(module, (from, target, module));
            sum.hits = sum.hits.saturating_add(count.hits);
            sum.mispredicted = sum.mispredicted.saturating_add(count.mispredicted);
        }
    }
    lines.write(snapshot, out, |(from, target, module), sum, out| {
        let to = match target {
            Target::At(at, other) if other == module => format!("{:x}", at.0),
            Target::At(at, other) => match build_id(snapshot, *other) {
                Some(build_id) => format!("{build_id}:{:x}", at.0),
                None => format!("X:{:x}", at.0),
            },
            // As BOLT has it.
            Target::Unknown => "X:0".to_owned(),
        };
        writeln!(out, "B {:x} {to} {} {}", from.0, sum.hits, sum.mispredicted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Va;
    use crate::export::tests;

    #[test]
    fn targets_elsewhere_bear_the_name_of_their_module() {
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
            "M /bin/a ab01\nB 1002 1000 5 2\nB 1002 cd02:2000 3 0\nB 1003 X:0 1 1\n# discarded ip.no_mapping 4\n"
        );
    }
}
