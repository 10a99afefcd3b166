//! Where branch stacks were refused: the functions of their newest branches.
//!
//! What the ring of a CPU could not take is counted at its newest branch
//! ([`Interval::refused`](hbbp_model::snapshot::Interval::refused)). Those that had no slot there either, or were left
//! out of a long recording, are one row without a name, so that the rows sum to [`Loss::StacksFull`].

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hbbp_analysis::mix::function;
use hbbp_code::locate::AddressMap;
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{Loss, Snapshot};

/// A function where stacks were refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct RefusedIn {
    /// Name of the module; empty if the location is not known.
    pub(super) module: String,
    /// Name of the function; empty if none is known.
    pub(super) function: String,
    /// Ring of the branch; `None` if the location is not known.
    pub(super) ring: Option<Ring>,
    /// Samples.
    pub(super) samples: u64,
}

/// All functions where stacks were refused, those with the most samples first.
pub(super) fn refused_in(snapshot: &Snapshot) -> Vec<RefusedIn> {
    let lost = snapshot.losses.get(Loss::StacksFull);
    let mut addresses = AddressMap::new(snapshot);
    let mut samples: BTreeMap<(Option<Ring>, String, String), u64> = BTreeMap::new();
    let mut placed = 0_u64;
    for (interval, n) in snapshot.intervals.iter().zip(0_u32..) {
        addresses.set_interval(n);
        for row in &interval.refused {
            let here = addresses.module_at(row.process, row.ip);
            let module =
                here.and_then(|(module, addr)| Some((snapshot.modules.get(module.0 as usize)?, addr)));
            let name = module.and_then(|(module, addr)| function(module, addr));
            let module = module.map_or_else(|| "?".to_owned(), |(module, _)| module.name.clone());
            // A hostile file may hold more than were lost.
            let hits = row.hits.min(lost.saturating_sub(placed));
            placed = placed.saturating_add(hits);
            let key = (Some(row.ip.ring()), module, name.unwrap_or_default());
            *samples.entry(key).or_default() += hits;
        }
    }
    if placed < lost {
        samples.insert((None, String::new(), String::new()), lost - placed);
    }
    let row = |((ring, module, function), samples)| RefusedIn {
        module,
        function,
        ring,
        samples,
    };
    let mut rows: Vec<RefusedIn> = samples
        .into_iter()
        .map(row)
        .filter(|row| 0 < row.samples)
        .collect();
    rows.sort_by_key(|row| Reverse(row.samples));
    rows
}

impl RefusedIn {
    /// The function with its module, as a sentence names it.
    pub(super) fn place(&self) -> String {
        match (self.module.as_str(), self.function.as_str()) {
            ("", _) => "unknown locations".to_owned(),
            (module, "") => module.to_owned(),
            (module, function) => format!("{function} ({module})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::{ImageAddr, Va};
    use hbbp_model::snapshot::{
        EventIdx, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind, Process, ProcessIdx, Symbol,
    };

    /// A module with two functions of 16 bytes, of which 32 stacks of a process were refused, and the kernel without
    /// any text.
    fn snapshot(lost: u64) -> Snapshot {
        let symbol = |name: &str, start| Symbol {
            start: ImageAddr(start),
            len: 16,
            name: name.to_owned(),
        };
        let mapping = Mapping {
            start: Va(0x1000),
            end: Va(0x1020),
            module: ModuleIdx(0),
            image_start: ImageAddr(0),
            from: 0,
        };
        let process = Process {
            tgid: 7,
            mappings: vec![mapping],
            ..Process::default()
        };
        let refused = |process, ip, hits| IpCount {
            event: EventIdx(0),
            process: ProcessIdx(process),
            ip: Va(ip),
            exact: false,
            hits,
            weight: hits,
        };
        let interval = Interval {
            end: 1,
            refused: vec![
                refused(0, 0xffff_ffff_8100_0000, 2),
                refused(1, 0x1001, 3),
                refused(1, 0x1011, 20),
                refused(1, 0x1018, 7),
            ],
            ..Interval::default()
        };
        let mut snapshot = Snapshot {
            modules: vec![Module {
                name: "/bin/two".to_owned(),
                kind: ModuleKind::Elf64,
                build_id: Vec::new(),
                symbols: vec![symbol("first", 0), symbol("second", 16)],
            }],
            processes: vec![Process::default(), process],
            intervals: vec![interval],
            ..Snapshot::default()
        };
        snapshot.losses.add(Loss::StacksFull, lost);
        snapshot
    }

    fn places(lost: u64) -> Vec<(String, Option<Ring>, u64)> {
        let rows = refused_in(&snapshot(lost)).into_iter();
        rows.map(|row| (row.place(), row.ring, row.samples)).collect()
    }

    #[test]
    fn rows_are_functions_and_sum_to_what_was_lost() {
        let [user, kernel] = [Some(Ring::User), Some(Ring::Kernel)];
        assert_eq!(
            places(37),
            [
                ("second (/bin/two)".to_owned(), user, 27),
                ("unknown locations".to_owned(), None, 5),
                ("first (/bin/two)".to_owned(), user, 3),
                ("?".to_owned(), kernel, 2),
            ]
        );
    }

    #[test]
    fn more_than_was_lost_is_not_shown() {
        assert_eq!(places(25).iter().map(|place| place.2).sum::<u64>(), 25);
        assert_eq!(places(0), []);
    }
}
