//! The process images of successive profiles, and their mappings.
//!
//! A profile says of a mapping either when it was made or that it was there before. Laid over the mappings of the profile
//! before, it replaces what differs at the time at which the later profile began.

use std::collections::HashMap;

use crate::snapshot::layout::Layout;
use crate::snapshot::{CgroupIdx, Mapping, ModuleIdx, Process, ProcessIdx};

/// Adds the paths that are not there yet, and returns the index that each has now.
pub(super) fn unite_cgroups(all: &mut Vec<String>, next: Vec<String>) -> Vec<CgroupIdx> {
    let mut known: HashMap<String, usize> = all.iter().cloned().zip(0..).collect();
    let mut became = Vec::with_capacity(next.len());
    for path in next {
        let idx = *known.entry(path).or_insert_with_key(|path| {
            all.push(path.clone());
            all.len() - 1
        });
        became.push(CgroupIdx(u32::try_from(idx).unwrap_or(u32::MAX)));
    }
    became
}

/// Adds the process images of the next profile, which began at `began`, and returns the index that each has now.
/// `modules` and `cgroups` are the indexes that those of the next profile have now.
pub(super) fn unite(
    all: &mut Vec<Process>,
    next: Vec<Process>,
    modules: &[ModuleIdx],
    cgroups: &[CgroupIdx],
    began: u64,
) -> Vec<ProcessIdx> {
    let tid = |process: &Process| process.thread.as_ref().map(|thread| thread.tid);
    let task = |process: &Process| (process.tgid, process.exec_id, tid(process));
    let known: HashMap<(u32, u32, Option<u32>), usize> = all.iter().map(task).zip(0..).collect();
    let mut became = Vec::with_capacity(next.len());
    for (idx, mut process) in next.into_iter().enumerate() {
        process.mappings.retain_mut(|mapping| {
            let module = modules.get(mapping.module.0 as usize);
            mapping.module = module.copied().unwrap_or(mapping.module);
            module.is_some()
        });
        let cgroup = process.cgroup.and_then(|cgroup| cgroups.get(cgroup.0 as usize));
        process.cgroup = cgroup.copied();
        // The kernel is the first in every profile; a process id may have been that of another process. Joined images have
        // addresses of their own.
        let same = if idx == 0 {
            Some(0)
        } else if process.tgid == Process::JOINED {
            None
        } else {
            known.get(&task(&process)).copied()
        };
        let same = same.and_then(|same| Some((same, all.get_mut(same)?)));
        match same.filter(|(same, known)| *same == 0 || is_same(known, &process)) {
            Some((same, known)) => {
                known.comm = process.comm;
                known.thread = process.thread;
                add_mappings(&mut known.mappings, process.mappings, began);
                became.push(index(same));
            }
            None => {
                became.push(index(all.len()));
                all.push(process);
            }
        }
    }
    became
}

fn index(idx: usize) -> ProcessIdx {
    ProcessIdx(u32::try_from(idx).unwrap_or(u32::MAX))
}

/// Whether two process images of one id are the same: they run in the same cgroup, and have the same name, or something
/// is mapped at the same address.
fn is_same(known: &Process, process: &Process) -> bool {
    let place = |it: &Mapping| (it.start, it.module, it.image_start);
    let is_there = |mapping: &Mapping| {
        let at = known.mappings.partition_point(|it| it.start < mapping.start);
        let there = known.mappings.iter().skip(at);
        there
            .take_while(|it| it.start == mapping.start)
            .any(|it| place(it) == place(mapping))
    };
    known.cgroup == process.cgroup && (known.comm == process.comm || process.mappings.iter().any(is_there))
}

fn add_mappings(all: &mut Vec<Mapping>, mut next: Vec<Mapping>, began: u64) {
    let mut layout = Layout::new(all);
    layout.advance(u64::MAX);
    next.sort_by_key(|mapping| mapping.from);
    for mut mapping in next {
        let agrees = |there: &Mapping| {
            let at = |it: &Mapping| it.image_start.0.wrapping_sub(it.start.0);
            there.module == mapping.module && at(there) == at(&mapping)
        };
        let mut covered = mapping.start;
        let mut replaces = false;
        for (range, there) in layout.over(mapping.start..mapping.end) {
            if !agrees(there) {
                replaces = true;
            } else if range.start <= covered {
                covered = range.end;
            }
        }
        if !replaces && mapping.end <= covered {
            continue;
        }
        if replaces {
            mapping.from = mapping.from.max(began);
        }
        layout.lay(mapping);
        all.push(mapping);
    }
    all.sort_by_key(|mapping| (mapping.start, mapping.from));
}
