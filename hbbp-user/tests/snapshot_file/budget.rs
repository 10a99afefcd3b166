//! What the collector made is never refused: it is made to fit, and what is left out is counted.

use proptest::prelude::*;

use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::budget::{MAX_IMAGES, MAX_MODULES, MAX_PATHS, MAX_TEXT, used_percent};
use hbbp_model::snapshot::file::{encode, parse};
use hbbp_model::snapshot::fold::{Boundaries, Intervals, MAX_COUNTS};
use hbbp_model::snapshot::{
    CgroupIdx, EventIdx, Interval, IpCount, Loss, Losses, Mapping, Module, ModuleIdx, ModuleKind, Process,
    ProcessIdx, StreamCount, Symbol, Text,
};

use super::small;

fn module(name: String) -> Module {
    Module {
        name,
        kind: ModuleKind::Elf64,
        build_id: Vec::new(),
        symbols: Vec::new(),
    }
}

fn mapping(module: usize) -> Mapping {
    Mapping {
        start: Va(0x1000),
        end: Va(0x2000),
        module: ModuleIdx(module.try_into().unwrap()),
        image_start: ImageAddr(0),
        from: 0,
    }
}

fn ip(process: u32, ip: u64, hits: u64) -> IpCount {
    IpCount {
        event: EventIdx(0),
        process: ProcessIdx(process),
        ip: Va(ip),
        exact: false,
        hits,
        weight: hits * 1000,
    }
}

/// Programs with long paths that run for a moment each filled the section of modules, and the recording was lost.
#[test]
fn programs_with_long_paths_lose_folders_and_not_the_recording() {
    const N: usize = 5600;
    let mut snapshot = small();
    for n in 0..N {
        let path = format!("/{}/program-{n}", "long folder/".repeat(333));
        assert!(4000 < path.len());
        snapshot.modules.push(module(path));
        let process = Process {
            mappings: vec![mapping(n + 1)],
            ..Process::default()
        };
        snapshot.processes.push(process);
    }
    let paths = snapshot.modules.iter().map(|module| module.name.len());
    assert!(2 * MAX_PATHS < paths.sum());
    let read = parse(&encode(&snapshot).unwrap()).unwrap();
    assert_eq!(read.modules.len(), 1 + N);
    assert_eq!(read.modules[0], snapshot.modules[0], "others keep their names");
    assert!(read.modules[N].name.ends_with("folder//program-5599"));
    let paths = read.modules.iter().map(|module| module.name.len());
    assert!(paths.sum::<usize>() <= MAX_PATHS);
    assert_eq!(read.losses.get(Loss::NamesLeftOut), 5600);
    assert!(
        read.run.notes[0].contains("% of the size"),
        "{:?}",
        read.run.notes
    );
    assert_eq!(read.processes, snapshot.processes);
    assert_eq!(read.intervals, snapshot.intervals);
}

/// Nothing is lost of a profile that is within its size, so that there is nothing to say and nothing to do.
#[test]
fn a_profile_within_its_size_has_no_note() {
    let mut snapshot = small();
    for n in 0..6 {
        let path = format!("/{n}{}", "x".repeat(MAX_PATHS / 10));
        snapshot.modules.push(module(path));
    }
    let used = used_percent(&snapshot);
    assert!((57..=100).contains(&used), "{used}");
    snapshot.fit();
    assert_eq!(snapshot.run.notes, Vec::<String>::new());
}

/// A program that makes up code loses only its own text.
#[test]
fn the_module_with_most_text_loses_the_excess() {
    const RANGE: usize = 1 << 20;
    let mut snapshot = small();
    snapshot.modules.push(module("[anon]".to_owned()));
    let n_ranges = MAX_TEXT / RANGE + 3;
    for n in 0..n_ranges {
        snapshot.text.push(Text {
            module: ModuleIdx(1),
            start: ImageAddr(u64::try_from(n * RANGE).unwrap()),
            bytes: vec![0x90; RANGE],
            since: 0,
        });
    }
    let innocent = snapshot.text[0].clone();
    snapshot.fit();
    assert_eq!(snapshot.text[0], innocent);
    assert_eq!(snapshot.text.len(), 1 + MAX_TEXT / RANGE - 1);
    assert_eq!(snapshot.losses.get(Loss::RegionsLeftOut), 4);
    assert!(used_percent(&snapshot) <= 100);
}

/// An hour with emulators: each process wrote its own code, and the kernel lost four of five samples.
#[test]
fn text_budget_prefers_kernel_then_files_then_jit() {
    const RANGE: usize = 1 << 20;
    let mut snapshot = small();
    snapshot.modules[0].kind = ModuleKind::Kernel;
    snapshot.text.clear();
    // The kernel, a large library, and two hundred processes with code of their own.
    let modules = [(0, 30), (1, 40)].into_iter().chain((2..202).map(|n| (n, 2)));
    for (n, n_ranges) in modules {
        if 0 < n {
            let mut made = module(format!("module {n}"));
            if 1 < n {
                made.kind = ModuleKind::Anonymous;
            }
            snapshot.modules.push(made);
        }
        snapshot.text.extend((0..n_ranges).map(|range| Text {
            module: ModuleIdx(n),
            start: ImageAddr(u64::try_from(range * RANGE).unwrap()),
            bytes: vec![0x90; if 1 < n { RANGE / 10 } else { RANGE }],
            since: 0,
        }));
    }
    let whole = snapshot.text.len();
    snapshot.fit();
    let n_of = |module| {
        snapshot
            .text
            .iter()
            .filter(|text| text.module == ModuleIdx(module))
            .count()
    };
    assert_eq!((n_of(0), n_of(1)), (30, 40));
    // 26 MiB are left, an even share of which holds one of two ranges.
    assert!((2..202).all(|module| n_of(module) == 1));
    assert_eq!(snapshot.losses.get(Loss::RegionsLeftOut), 200);
    assert_eq!(snapshot.text.len(), whole - 200);
    assert!(used_percent(&snapshot) <= 100);
}

#[test]
fn versions_of_a_text_range_are_left_out_together() {
    let mut snapshot = small();
    for (start, since) in [(0, 0), (0, 2), (1 << 30, 0), (1 << 30, 1)] {
        snapshot.text.push(Text {
            module: ModuleIdx(0),
            start: ImageAddr(start + 0x1000),
            bytes: vec![0x90; MAX_TEXT / 4],
            since,
        });
    }
    snapshot.fit();
    let left: Vec<_> = snapshot
        .text
        .iter()
        .map(|text| (text.start.0, text.since))
        .collect();
    assert_eq!(left, [(0x10, 0), (0x1000, 0), (0x1000, 2)]);
}

/// Samples of a process image that is left out stay counted, without an instruction.
#[test]
fn process_images_with_the_fewest_samples_lose_their_mappings() {
    let mut snapshot = small();
    let process = Process {
        mappings: vec![mapping(0)],
        ..Process::default()
    };
    snapshot.processes.resize(MAX_IMAGES + 100, process);
    let samples = (1..)
        .take(MAX_IMAGES + 99)
        .map(|n| ip(n, 0x1800, u64::from(1 + n % 2)));
    snapshot.intervals[0].ips.extend(samples);
    let all = |ips: &[IpCount]| ips.iter().map(|count| count.hits).sum::<u64>();
    let before = all(&snapshot.intervals[0].ips);
    snapshot.fit();
    snapshot.check().unwrap();
    assert_eq!(snapshot.processes.len(), MAX_IMAGES);
    assert_eq!(snapshot.losses.get(Loss::RegionsLeftOut), 101);
    let ips = &snapshot.intervals[0].ips;
    assert_eq!(all(ips), before);
    let others = u32::try_from(MAX_IMAGES - 1).unwrap();
    let left_out = ips.iter().filter(|count| count.process.0 == others);
    assert!(left_out.clone().all(|count| count.hits == 1));
    assert_eq!(left_out.count(), 101);
}

#[test]
fn modules_beyond_the_bound_lose_mappings_and_text() {
    let mut snapshot = small();
    snapshot.modules.resize(MAX_MODULES + 2, module("/a".to_owned()));
    let (last, beyond) = (mapping(MAX_MODULES - 1), mapping(MAX_MODULES));
    snapshot.processes[0].mappings.extend([last, beyond]);
    snapshot.fit();
    snapshot.check().unwrap();
    assert_eq!(snapshot.processes[0].mappings[1..], [last]);
    assert_eq!(snapshot.losses.get(Loss::RegionsLeftOut), 1);
}

#[test]
fn cgroups_beyond_the_bound_are_unknown() {
    let mut snapshot = small();
    for n in 0..1200 {
        snapshot.cgroups.push(format!("/{n}/{}", "x".repeat(4000)));
        snapshot.processes.push(Process {
            cgroup: Some(CgroupIdx(n)),
            ..Process::default()
        });
    }
    let read = parse(&encode(&snapshot).unwrap()).unwrap();
    let kept = read.cgroups.len();
    assert!(1000 < kept && kept < 1200, "{kept}");
    assert_eq!(read.cgroups, snapshot.cgroups[..kept]);
    assert_eq!(read.losses.get(Loss::NamesLeftOut), 1201 - kept as u64);
    let known = read.processes.iter().filter(|process| process.cgroup.is_some());
    // That of the first process image is known, too.
    assert_eq!((known.count(), read.processes.len()), (kept + 1, 1201));
}

#[test]
fn a_module_with_too_many_names_loses_the_excess() {
    let mut snapshot = small();
    let mut made_up = module("[anon]".to_owned());
    made_up.symbols = (0..300)
        .map(|n| Symbol {
            start: ImageAddr(n),
            len: 1,
            name: "x".repeat(100_000),
        })
        .collect();
    snapshot.modules.push(made_up);
    snapshot.fit();
    assert_eq!(snapshot.modules[0], small().modules[0]);
    assert_eq!(snapshot.modules[1].symbols.len(), 251);
    assert_eq!(snapshot.losses.get(Loss::NamesLeftOut), 49);
}

#[test]
fn within_its_bounds_nothing_changes() {
    for len in [MAX_TEXT / 4, MAX_TEXT / 2 + 1] {
        let mut snapshot = small();
        snapshot.text[0].bytes = vec![0x90; len];
        let expected = snapshot.clone();
        snapshot.fit();
        assert_eq!(snapshot, expected);
    }
}

/// A run of a day: an interval every two seconds, each with addresses of its own and with common ones.
#[test]
fn a_long_run_takes_bounded_memory_and_keeps_its_sums() {
    const MAX: usize = 1 << 20;
    let mut intervals = Intervals::with_max(MAX);
    let (mut losses, mut n_hits, mut most) = (Losses::default(), 0, 0);
    for n in 0..43_200_u64 {
        let time = n * 2_000_000_000;
        let rows = [ip(0, 0x1000 + n % 97, 50), ip(0, 0x10_0000 + n, 1)];
        n_hits += 51;
        intervals.push(Interval {
            start: time,
            end: time + 2_000_000_000,
            ips: rows.into(),
            ..Interval::default()
        });
        most = most.max(intervals.used());
        intervals.fold(&Boundaries::default(), &mut losses);
    }
    assert!(most < MAX + 1000, "{most}");
    let intervals = intervals.take(&mut []);
    let ips = intervals.iter().flat_map(|interval| &interval.ips);
    let left: u64 = ips.clone().map(|count| count.hits).sum();
    let left_out = losses.get(Loss::SamplesLeftOut);
    assert_eq!(left + left_out, n_hits);
    assert!(
        0 < left_out && left_out < 43_200,
        "only places of one interval: {left_out}"
    );
    assert_eq!(ips.map(|count| count.weight).sum::<u64>(), left * 1000);
    assert_eq!(
        (intervals[0].start, intervals[intervals.len() - 1].end),
        (0, 86_400_000_000_000)
    );
}

/// A day of 64 CPUs with branch stacks, in one of `parts` parts: a drain every two seconds of 16,384 distinct streams, nine
/// of ten of which run all the time.
fn day_of_64_cpus(parts: usize) {
    let max = MAX_COUNTS / parts;
    let n_rows = u64::try_from(16_384 / parts).unwrap();
    let mut intervals = Intervals::with_max(max);
    let (mut losses, mut n_hits, mut most) = (Losses::default(), 0, 0);
    for n in 0..43_200_u64 {
        let stream = |row: u64| {
            let is_hot = !row.is_multiple_of(10);
            let hits = if is_hot { 100 } else { 1 };
            let start = if is_hot {
                row * 64
            } else {
                (1 << 32) | ((n * n_rows + row) * 64)
            };
            StreamCount {
                event: EventIdx(0),
                process: ProcessIdx(u32::try_from(row % 7).unwrap()),
                start: Va(start),
                end: Va(start + 16),
                source: Some(Va(start + 32)),
                hits,
                weight: hits as f64 * 2.0,
                cycles: None,
            }
        };
        let streams: Vec<StreamCount> = (0..n_rows).map(stream).collect();
        n_hits += streams.iter().map(|stream| stream.hits).sum::<u64>();
        let start = n * 2_000_000_000;
        intervals.push(Interval {
            start,
            end: start + 2_000_000_000,
            streams,
            ..Interval::default()
        });
        most = most.max(intervals.used());
        intervals.fold(&Boundaries::default(), &mut losses);
    }
    let mut snapshot = small();
    snapshot.processes.resize(7, Process::default());
    snapshot.intervals = intervals.take(&mut []);
    snapshot.fit();
    let streams = snapshot.intervals.iter().flat_map(|interval| &interval.streams);
    let (hits, weight) = streams.fold((0, 0.0), |(hits, weight), s| (hits + s.hits, weight + s.weight));
    let left_out = losses.get(Loss::StreamsLeftOut);
    assert_eq!(hits + left_out, n_hits);
    assert_eq!(weight, 2.0 * hits as f64);
    assert!(
        left_out < n_hits / 500,
        "only what ran once: {left_out} of {n_hits}"
    );
    let file = encode(&snapshot).unwrap();
    println!(
        "1/{parts} of a day of 64 CPUs: {} KiB of memory at most, {} KiB in the file, {left_out} of {n_hits} left out",
        most >> 10,
        file.len() >> 10
    );
    assert!(most <= max + 100 * (16_384 / parts), "{most} of {max}");
    assert!(file.len() <= max / 8, "{} of {max}", file.len());
    assert_eq!(parse(&file).unwrap().intervals, snapshot.intervals);
}

/// One part of 256, or of `HBBP_DAY_PARTS`: with 1, the whole day takes half an hour.
#[test]
fn a_day_of_64_cpus_with_stacks_stays_within_its_budget() {
    let parts = std::env::var("HBBP_DAY_PARTS").map_or(256, |parts| parts.parse().unwrap());
    day_of_64_cpus(parts);
}

/// Between intervals where other bytes or mappings begin, nothing is merged.
#[test]
fn intervals_are_not_merged_where_text_or_mappings_change() {
    let mut intervals = Intervals::with_max(0);
    for n in 0..64 {
        intervals.push(Interval {
            start: n * 10,
            end: n * 10 + 10,
            ips: vec![ip(0, 0x1000, 2000)],
            ..Interval::default()
        });
    }
    let boundaries = Boundaries {
        versions: [0, 20].into(),
        mappings: [405].into(),
    };
    let mut losses = Losses::default();
    intervals.fold(&boundaries, &mut losses);
    let version = |since| Text {
        module: ModuleIdx(0),
        start: ImageAddr(0),
        bytes: Vec::new(),
        since,
    };
    let mut text = [version(0), version(20)];
    let intervals = intervals.take(&mut text);
    let found: Vec<_> = intervals
        .iter()
        .map(|interval| (interval.start, interval.end, interval.ips[0].hits))
        .collect();
    assert_eq!(found, [(0, 200, 40_000), (200, 400, 40_000), (400, 640, 48_000)]);
    assert_eq!(text.map(|text| text.since), [0, 1]);
    assert_eq!(losses, Losses::default());
}

proptest! {
    /// Whatever is merged and left out, hits and weights of samples and streams add up.
    #[test]
    fn sums_close(
        rows in prop::collection::vec((0u64..40, 1u64..5, 0u32..3), 1..400),
        max in 2_000_usize..40_000,
    ) {
        let mut intervals = Intervals::with_max(max);
        let mut losses = Losses::default();
        for chunk in rows.chunks(5) {
            let stream = |(at, hits, process): &(u64, u64, u32)| StreamCount {
                event: EventIdx(0),
                process: ProcessIdx(*process),
                start: Va(*at),
                end: Va(*at + 4),
                source: Some(Va(*hits)),
                hits: *hits,
                weight: 2.0,
                cycles: std::num::NonZeroU64::new(1),
            };
            intervals.push(Interval {
                ips: chunk.iter().map(|(at, hits, process)| ip(*process, *at, *hits)).collect(),
                streams: chunk.iter().map(stream).collect(),
                ..Interval::default()
            });
            intervals.fold(&Boundaries::default(), &mut losses);
            prop_assert!(intervals.used() <= max);
        }
        let left = intervals.take(&mut []);
        let hits: u64 = rows.iter().map(|(_, hits, _)| hits).sum();
        let ips: u64 = left.iter().flat_map(|i| &i.ips).map(|c| c.hits).sum();
        let streams: u64 = left.iter().flat_map(|i| &i.streams).map(|c| c.hits).sum();
        prop_assert_eq!(ips + losses.get(Loss::SamplesLeftOut), hits);
        prop_assert_eq!(streams + losses.get(Loss::StreamsLeftOut), hits);
    }
}
