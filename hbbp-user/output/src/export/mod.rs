//! Counts in the formats of other tools: lines for scripts, profiles for compilers and binary optimizers, and tables for viewers.
//!
//! ```text
//! snapshot -> streams, branches, counts                                   lines for scripts, as recorded
//! snapshot -> counted -> edges -> flow -> image: bolt, profgen, ranges, perf_script  one file for each image, in its addresses
//!                     -> autofdo                                          with debug information
//!                     -> collapsed, callgrind, pprof, firefox, blocks          the whole profile
//! ```
//!
//! The lines for scripts are stable, as documented here and in the help.
//!
//! ```text
//! M path buildid                        start of a module; sorted by path; - if the build id is unknown
//! S start end count                     stream: addresses of its first and its last instruction
//! B from to count mispredicted          branch; in another module the target is buildid:address; `unknown` instead of
//!                                       the number where the branch records did not have it, as in live profiles
//! address executions                    instruction (no letter)
//! # unit UNIT                           head of counts that are not executions: the unit of the report
//! # discarded REASON COUNT              trailer: counts that are in no other line
//! ```
//!
//! Addresses are ELF addresses (for the kernel, run-time addresses) in hexadecimal without 0x; numbers are decimal.
//! Control characters in paths are printed as U+FFFD, so that no path forges a line.
//! Lines of a module are sorted by address. Only modules with text in the snapshot have lines.

pub mod autofdo;
pub mod blocks;
pub mod bolt;
pub mod branches;
pub mod callgrind;
pub mod chosen;
pub mod collapsed;
pub mod counted;
pub mod counts;
mod edges;
pub mod extbinary;
pub mod firefox;
pub mod flow;
pub mod image;
pub mod names;
pub mod perf_script;
pub mod pprof;
pub mod profgen;
pub mod ranges;
pub mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use hbbp_model::printable::harmless;
use hbbp_model::snapshot::{ModuleIdx, Snapshot, hex};

/// Which streams are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum StreamFilter {
    /// All streams within one module.
    Raw,
    /// Only straight-line runs of instructions that end at a branch.
    #[default]
    Checked,
}

/// Lines by module, and the counts of discarded ones.
#[derive(Debug)]
struct Lines<K, V> {
    by_module: BTreeMap<ModuleIdx, BTreeMap<K, V>>,
    discarded: BTreeMap<&'static str, u64>,
    /// Stable name of the unit of the counts, where they are neither recorded nor executions.
    unit: Option<&'static str>,
}

impl<K: Ord, V: Default> Lines<K, V> {
    fn new() -> Self {
        Self {
            by_module: BTreeMap::new(),
            discarded: BTreeMap::new(),
            unit: None,
        }
    }

    fn entry(&mut self, module: ModuleIdx, key: K) -> &mut V {
        self.by_module.entry(module).or_default().entry(key).or_default()
    }

    fn discard(&mut self, reason: &'static str, n: u64) {
        let count = self.discarded.entry(reason).or_default();
        *count = count.saturating_add(n);
    }

    /// Writes all lines; `line` writes one.
    fn write(
        &self,
        snapshot: &Snapshot,
        out: &mut dyn Write,
        line: impl Fn(ModuleIdx, &K, &V, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let name = |idx: &ModuleIdx| {
            snapshot
                .modules
                .get(idx.0 as usize)
                .map_or("", |module| &module.name)
        };
        if let Some(unit) = self.unit {
            writeln!(out, "# unit {unit}")?;
        }
        let mut modules: Vec<_> = self.by_module.iter().collect();
        modules.sort_by_key(|(idx, _)| (name(idx), **idx));
        for (idx, lines) in modules {
            writeln!(
                out,
                "M {} {}",
                harmless(name(idx)),
                build_id(snapshot, *idx).unwrap_or_else(|| "-".to_owned())
            )?;
            for (key, value) in lines {
                line(*idx, key, value, out)?;
            }
        }
        for (reason, n) in self.discarded.iter().filter(|(_, n)| 0 < **n) {
            writeln!(out, "# discarded {reason} {n}")?;
        }
        Ok(())
    }
}

/// Modules with known text; for others ELF addresses are unknown too.
fn known_modules(snapshot: &Snapshot) -> BTreeSet<ModuleIdx> {
    snapshot.text.iter().map(|text| text.module).collect()
}

/// The build id of a module in hexadecimal.
pub fn build_id(snapshot: &Snapshot, module: ModuleIdx) -> Option<String> {
    let module = snapshot
        .modules
        .get(module.0 as usize)
        .filter(|module| !module.build_id.is_empty())?;
    Some(hex(&module.build_id))
}

#[cfg(test)]
mod tests {
    use hbbp_model::addr::{ImageAddr, Va};
    use hbbp_model::snapshot::{
        BranchCount, Event, EventIdx, EventUnit, Interval, Mapping, Module, ModuleIdx, ModuleKind, Process,
        ProcessIdx, Snapshot, StreamCount, Text,
    };

    pub(super) fn stream(start: Va, end: Va, hits: u64) -> StreamCount {
        let (event, process) = (EventIdx(0), ProcessIdx(1));
        StreamCount {
            event,
            process,
            start,
            end,
            source: None,
            hits,
            weight: hits as f64,
            cycles: None,
        }
    }

    pub(super) fn branch(from: Va, to: Va, hits: u64, mispredicted: u64) -> BranchCount {
        BranchCount {
            event: EventIdx(0),
            process: ProcessIdx(1),
            from,
            to,
            hits,
            oldest: 0,
            mispredicted: Some(mispredicted),
        }
    }

    /// Two modules of four bytes, mapped where they were linked: two times NOP, two times RET.
    pub(super) fn snapshot(streams: &[StreamCount], branches: &[BranchCount]) -> Snapshot {
        let module = |name: &str, id: u8| Module {
            name: name.to_owned(),
            kind: ModuleKind::Elf64,
            build_id: vec![0xab + 0x22 * (id - 1), id],
            symbols: Vec::new(),
        };
        let text = |module, start| Text {
            module: ModuleIdx(module),
            start: ImageAddr(start),
            bytes: vec![0x90, 0x90, 0xc3, 0xc3],
            since: 0,
        };
        let mapping = |module, start| Mapping {
            start: Va(start),
            end: Va(start + 4),
            module: ModuleIdx(module),
            image_start: ImageAddr(start),
            from: 0,
        };
        let mut snapshot = Snapshot {
            modules: vec![module("/bin/a", 1), module("/lib/b.so", 2)],
            processes: vec![
                Process::default(),
                Process {
                    tgid: 7,
                    mappings: vec![mapping(0, 0x1000), mapping(1, 0x2000)],
                    ..Process::default()
                },
            ],
            text: vec![text(0, 0x1000), text(1, 0x2000)],
            intervals: vec![Interval {
                start: 0,
                end: 1,
                streams: streams.to_vec(),
                branches: branches.to_vec(),
                ..Interval::default()
            }],
            ..Snapshot::default()
        };
        snapshot.run.events.push(Event {
            unit: EventUnit::TakenBranches,
            branch_stack: true,
            ..Event::default()
        });
        snapshot
    }
}
