//! Process images that are counted together: what was executed in which cgroup stays exactly what it was.

use std::collections::BTreeMap;

use proptest::prelude::*;

use hbbp_code::locate::AddressMap;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{
    BranchCount, CgroupIdx, EventIdx, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind, Process,
    ProcessIdx, Snapshot, StreamCount,
};

const N_MODULES: u32 = 4;
const KERNEL: u64 = 0xffff_ffff_8100_0000;

fn module(nth: u32) -> Module {
    Module {
        name: nth.to_string(),
        kind: match nth {
            0 => ModuleKind::Kernel,
            _ => ModuleKind::Elf64,
        },
        build_id: Vec::new(),
        symbols: Vec::new(),
    }
}

/// What was executed: interval, cgroup, sort of row, and the modules and addresses in them, each with its hits.
type Ran = BTreeMap<
    (
        usize,
        Option<CgroupIdx>,
        &'static str,
        Vec<Option<(ModuleIdx, ImageAddr)>>,
    ),
    u64,
>;

fn ran(snapshot: &Snapshot) -> Ran {
    let mut map = AddressMap::new(snapshot);
    let mut ran = Ran::new();
    for (nth, interval) in snapshot.intervals.iter().enumerate() {
        map.set_interval(u32::try_from(nth).unwrap());
        let mut add = |sort, process: ProcessIdx, at: &[Va], hits: u64| {
            let cgroup = snapshot.processes[process.0 as usize].cgroup;
            let places = at.iter().map(|at| map.module_at(process, *at)).collect();
            *ran.entry((nth, cgroup, sort, places)).or_default() += hits;
        };
        for row in &interval.ips {
            add("ip", row.process, &[row.ip], row.hits);
        }
        for row in &interval.streams {
            let source = row.source.unwrap_or_default();
            add("stream", row.process, &[row.start, row.end, source], row.hits);
        }
        for row in &interval.branches {
            add("branch", row.process, &[row.from, row.to], row.hits);
        }
    }
    ran
}

fn image((comm, cgroup, shift): (u8, Option<u32>, u64)) -> Process {
    let mapping = |module: u32| Mapping {
        start: Va(0x10_0000 * (u64::from(module) + 1) + (shift << 12)),
        end: Va(0x10_0000 * (u64::from(module) + 1) + (shift << 12) + 0x2000),
        module: ModuleIdx(module),
        // Some map a later part.
        image_start: ImageAddr(0x1000 * (shift % 2) + u64::from(module)),
        from: 0,
    };
    Process {
        comm: format!("c{comm}"),
        tgid: u32::try_from(shift).unwrap(),
        exec_id: 1,
        mappings: (1..N_MODULES).map(mapping).collect(),
        cgroup: cgroup.map(CgroupIdx),
        thread: None,
    }
}

fn address() -> impl Strategy<Value = u64> {
    // Some are outside of all mappings, and some are the kernel's.
    prop_oneof![
        8 => (1u64..4, 0u64..0x2000).prop_map(|(module, at)| module << 32 | at),
        1 => Just(KERNEL + 8),
        1 => Just(0),
    ]
}

fn at(snapshot: &Snapshot, process: u32, address: u64) -> Va {
    match address >> 32 {
        module @ 1..=3 => {
            let start =
                snapshot.processes[process as usize].mappings[usize::try_from(module).unwrap() - 1].start;
            Va(start.0 + (address & 0xffff))
        }
        _ => Va(address),
    }
}

prop_compose! {
    fn snapshots()(
        images in prop::collection::vec((0u8..3, prop::option::of(0u32..2), 0u64..90), 1..40),
        rows in prop::collection::vec((0u8..3, any::<u16>(), address(), address(), 1u64..9, 0usize..2, 0u8..40), 0..150),
    ) -> Snapshot {
        let kernel = Mapping {
            start: Va(KERNEL),
            end: Va(KERNEL + 0x1000),
            module: ModuleIdx(0),
            image_start: ImageAddr(0),
            from: 0,
        };
        let kernel = Process { mappings: vec![kernel], ..Process::default() };
        let mut snapshot = Snapshot {
            modules: (0..N_MODULES).map(module).collect(),
            processes: std::iter::once(kernel).chain(images.into_iter().map(image)).collect(),
            cgroups: vec!["/a".to_owned(), "/b".to_owned()],
            intervals: vec![Interval::default(), Interval { start: 5, end: 9, ..Interval::default() }],
            ..Snapshot::default()
        };
        let n_images = u32::try_from(snapshot.processes.len() - 1).unwrap();
        for (sort, image, first, second, hits, interval, odd) in rows {
            let image = u32::from(image) % n_images + 1;
            let (process, event) = (ProcessIdx(image), EventIdx(0));
            let (first, second) = (at(&snapshot, image, first), at(&snapshot, image, second));
            // Few have an address that nothing explains.
            let first = if odd == 0 { Va(0x7777_0000_0000) } else { first };
            let interval = &mut snapshot.intervals[interval];
            match sort {
                0 => interval.ips.push(IpCount { event, process, ip: first, exact: true, hits, weight: hits }),
                1 => interval.streams.push(StreamCount {
                    event,
                    process,
                    start: first,
                    end: if odd < 20 { first } else { second },
                    source: (odd % 2 == 0).then_some(second),
                    hits,
                    weight: 1.0,
                    cycles: None,
                }),
                _ => interval.branches.push(BranchCount {
                    event,
                    process,
                    from: first,
                    to: second,
                    hits,
                    oldest: 0,
                    mispredicted: None,
                }),
            }
        }
        snapshot
    }
}

proptest! {
    #[test]
    fn joined_images_executed_what_each_of_them_did(snapshot in snapshots(), most in 1usize..40) {
        let mut joined = snapshot.clone();
        joined.join_images(most);
        prop_assert_eq!(ran(&joined), ran(&snapshot));
        prop_assert!(joined.processes.len() <= snapshot.processes.len());
        prop_assert!(most < snapshot.processes.len() || joined == snapshot);
        // Once more: what was joined may be joined again.
        joined.join_images(1);
        prop_assert_eq!(ran(&joined), ran(&snapshot));
        let mut ended = snapshot.clone();
        let odd = (1u32..).step_by(2).map(ProcessIdx).take(snapshot.processes.len() / 2);
        ended.join_ended(&odd.collect::<Vec<_>>());
        prop_assert_eq!(ran(&ended), ran(&snapshot));
    }
}

/// Processes of three names that run the same program once, elsewhere in each, but for two that run for long.
fn storm(n: u32) -> Snapshot {
    let images = (0..n).map(|n| image((u8::try_from(n % 3).unwrap(), Some(0), u64::from(n) % 90)));
    let mut snapshot = Snapshot {
        modules: (0..N_MODULES).map(module).collect(),
        processes: std::iter::once(Process::default()).chain(images).collect(),
        cgroups: vec!["/a".to_owned()],
        intervals: vec![Interval::default()],
        ..Snapshot::default()
    };
    for image in 1..=n {
        let long = if image <= 2 { 1000 } else { 1 };
        let start = snapshot.processes[image as usize].mappings[0].start;
        let image_start = snapshot.processes[image as usize].mappings[0].image_start.0;
        snapshot.intervals[0].ips.push(IpCount {
            event: EventIdx(0),
            process: ProcessIdx(image),
            ip: Va(start.0 + 0x1801 - image_start),
            exact: true,
            hits: long,
            weight: long,
        });
    }
    snapshot
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    let processes = snapshot.processes.iter();
    processes
        .map(|it| format!("{} ({})", it.comm, it.which()))
        .collect()
}

#[test]
fn ended_images_of_one_name_are_one_where_they_are_many() {
    // The first name has eighteen images and each of the others seventeen; one image of each still runs.
    let snapshot = storm(52);
    let all: Vec<ProcessIdx> = (1..=52).map(ProcessIdx).collect();
    let mut few = snapshot.clone();
    few.join_ended(&all[..48]);
    assert_eq!(few, snapshot);

    let mut joined = snapshot.clone();
    joined.join_ended(&all[..49]);
    assert_eq!(ran(&joined), ran(&snapshot));
    let names = names(&joined);
    assert_eq!(names.len(), 1 + 1 + 2 * 17 + 1);
    assert_eq!(names.last().unwrap(), "c0 (several)");
    assert!(names.contains(&"c0 (51)".to_owned()), "it still runs: {names:?}");
    assert!(names.contains(&"c1 (46)".to_owned()), "{names:?}");
}

#[test]
fn storm_of_processes_becomes_one_image_for_each_name() {
    let mut snapshot = storm(5000);
    let before: u64 = snapshot.intervals[0].ips.iter().map(|row| row.hits).sum();
    snapshot.join_images(64);
    let processes = names(&snapshot);
    assert_eq!(processes.len(), 1 + 32 + 3, "{:?}", processes.last());
    assert_eq!(processes[1..3], ["c0 (0)", "c1 (1)"]);
    assert_eq!(processes[33..], ["c0 (several)", "c1 (several)", "c2 (several)"]);
    let rows = &snapshot.intervals[0].ips;
    assert_eq!(rows.iter().map(|row| row.hits).sum::<u64>(), before);
    assert_eq!(
        rows.len(),
        32 + 3,
        "the same byte of the same module in all of them"
    );
}
