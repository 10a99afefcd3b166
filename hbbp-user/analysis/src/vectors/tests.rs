//! Vectors of two threads and the kernel, by hand.

use std::collections::HashMap;

use super::*;
use hbbp_ebpf::{CountKey, EventTag, Tally};
use hbbp_estimate::Rule;
use hbbp_model::addr::{ImageAddr, Ring, Va};
use hbbp_model::slices::{Rings, Slices};
use hbbp_model::snapshot::{
    Event, EventIdx, EventUnit, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind, Period, Process,
    ProcessIdx, Snapshot, Text, Thread,
};
use hbbp_model::streams::ThreadCounts;

const KERNEL: u64 = 0xffff_ffff_8100_0000;
const USER: u64 = 0x40_1000;
/// Two instructions each: `inc %eax; jmp .` and, in the kernel, `inc %eax; ret`.
const CODE: [(u64, [u8; 4]); 2] = [
    (KERNEL, [0xff, 0xc0, 0x90, 0xc3]),
    (USER, [0xff, 0xc0, 0xeb, 0xfc]),
];
const PERIOD: u64 = 1_000;

fn module(name: &str, kind: ModuleKind) -> Module {
    Module {
        name: name.to_owned(),
        kind,
        build_id: Vec::new(),
        symbols: Vec::new(),
    }
}

fn mapping(n: u32) -> Mapping {
    let (start, code) = CODE[n as usize];
    Mapping {
        start: Va(start),
        end: Va(start + code.len() as u64),
        module: ModuleIdx(n),
        image_start: ImageAddr(start),
        from: 0,
    }
}

/// The kernel, and threads 7 and 8 of process 7.
fn processes() -> Vec<Process> {
    let thread = |tid| Process {
        tgid: 7,
        comm: "two".to_owned(),
        mappings: vec![mapping(1)],
        thread: Some(Thread {
            tid,
            name: String::new(),
        }),
        ..Process::default()
    };
    let kernel = Process {
        mappings: vec![mapping(0)],
        ..Process::default()
    };
    vec![kernel, thread(7), thread(8)]
}

/// What was counted: address, thread, slice, hits.
type Count = (u64, u32, u32, u64);

fn row(&(ip, tid, _, hits): &Count) -> IpCount {
    IpCount {
        event: EventIdx(0),
        process: ProcessIdx(tid - 6),
        ip: Va(ip),
        exact: true,
        hits,
        weight: hits * PERIOD,
    }
}

fn entry(&(address, tid, slice, hits): &Count) -> (CountKey, Tally) {
    let key = CountKey {
        address,
        tgid: 7,
        tid,
        event: EventTag::new(0, 0).in_interval(slice),
        ..CountKey::default()
    };
    let tally = Tally {
        hits,
        ..Tally::default()
    };
    (key, tally)
}

fn text(n: u32) -> Text {
    let (start, bytes) = CODE[n as usize];
    Text {
        module: ModuleIdx(n),
        start: ImageAddr(start),
        bytes: bytes.to_vec(),
        since: 0,
    }
}

/// Sampled by instructions.
fn run(counts: &[Count]) -> (Snapshot, Slices) {
    let mut slices = Slices::new(ThreadCounts::Apart);
    slices.add(&counts.iter().map(entry).collect::<Vec<_>>());
    let interval = Interval {
        end: 1,
        ips: counts.iter().map(row).collect(),
        ..Interval::default()
    };
    let mut snapshot = Snapshot {
        modules: vec![
            module("[kernel]", ModuleKind::Kernel),
            module("/bin/two", ModuleKind::Elf64),
        ],
        processes: processes(),
        text: (0..2).map(text).collect(),
        intervals: vec![interval],
        ..Snapshot::default()
    };
    snapshot.run.events = vec![Event {
        unit: EventUnit::Instructions,
        period: Period::Fixed(PERIOD),
        ..Event::default()
    }];
    (snapshot, slices)
}

const BOTH: Rings = Rings {
    user: true,
    kernel: true,
};

fn rule() -> Rule {
    hbbp_estimate::rule::NAMED[0].1.parse().unwrap()
}

fn sums(vectors: &Vectors<'_>) -> HashMap<(u32, Ring), f64> {
    let mut sums = HashMap::new();
    vectors.each(|thread, _, vector| {
        for (block, value) in vector {
            *sums
                .entry((thread, vectors.blocks()[*block as usize].ring))
                .or_insert(0.0) += value;
        }
    });
    sums
}

/// Vectors of threads sum to the process and hold their kernel work.
#[test]
fn thread_vectors_sum_to_the_process() {
    let counts = [
        (USER, 7, 0, 30),
        (USER + 2, 7, 1, 10),
        (KERNEL, 8, 0, 50),
        (USER, 8, 1, 4),
    ];
    let (snapshot, slices) = run(&counts);
    let vectors = vectors(&snapshot, &slices, &rule(), BOTH);
    let sums = sums(&vectors);
    let near = |of: (u32, Ring), hits: f64| (sums[&of] - hits * PERIOD as f64).abs() < 1e-6;
    assert!(
        near((0, Ring::User), 40.0) && near((1, Ring::Kernel), 50.0) && near((1, Ring::User), 4.0),
        "{sums:?}"
    );
    assert!((vectors.shared - 94_000.0).abs() < 1e-6 && vectors.unshared == 0.0);
    assert!(vectors.threads()[1].name.ends_with("two (7), thread 8"));

    let mut text = Vec::new();
    let ids = lines::Ids::new(&vectors);
    lines::write_vectors(&vectors, &ids, 0, 30_000, |_| "", &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("T:1:30000   \n#T:1:10000   \n"), "{text}");

    // The kernel's block has the second id, and only the second thread executed it.
    let places = |threads: &[u32]| {
        let mut text = Vec::new();
        lines::write_places(&vectors, &ids, threads, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    };
    assert_eq!(places(&[0]), "F:1:401000:\n");
    assert_eq!(places(&[0, 1]).lines().count(), 2);
    assert_eq!(places(&[]), "");
}

/// Repeated string instructions and FLDCW have totals, as exp-bbv has: half of a block of two instructions each.
#[test]
fn instructions_that_are_counted_differently_have_totals() {
    // With `jmp .`: `rep movsb`, `fldcw (%rax)`, and `movsw`, which does not repeat.
    for (code, reps, fldcw) in [
        ([0xf3, 0xa4, 0xeb, 0xfc], 15_000, 0),
        ([0xd9, 0x28, 0xeb, 0xfc], 0, 15_000),
        ([0x66, 0xa5, 0xeb, 0xfc], 0, 0),
    ] {
        let (mut snapshot, slices) = run(&[(USER, 7, 0, 20), (USER, 7, 1, 10)]);
        snapshot.text[1].bytes = code.to_vec();
        let vectors = vectors(&snapshot, &slices, &rule(), BOTH);
        let mut text = Vec::new();
        lines::write_totals(&vectors, 30_000, &mut text).unwrap();
        let expected = format!(
            "# Thread 1: two (7), thread 7\n#   Total intervals: 1 (Interval Size 30000)\n\
             #   Total instructions: 30000\n\
             #   Unique reps: {reps} (no counter has their iterations)\n\
             #   Total fldcw instructions: {fldcw}\n"
        );
        assert_eq!(String::from_utf8(text).unwrap(), expected, "{code:x?}");
    }
}

#[test]
fn one_ring_alone_is_in_the_vectors() {
    let (snapshot, slices) = run(&[(USER, 7, 0, 30), (KERNEL, 7, 0, 50)]);
    let user = Rings {
        user: true,
        kernel: false,
    };
    let vectors = vectors(&snapshot, &slices, &rule(), user);
    assert_eq!(sums(&vectors).len(), 1);
    assert!((vectors.shared - 30_000.0).abs() < 1e-6);
}

#[test]
fn intervals_without_a_sample_are_reported() {
    let said = |counts: &[Count]| {
        let (snapshot, slices) = run(counts);
        lines::sentences(&vectors(&snapshot, &slices, &rule(), BOTH), |_| "")
    };
    let without_gap = [(USER, 7, 0, 1), (USER, 7, 1, 1), (USER, 8, 0, 1)];
    assert_eq!(said(&without_gap), [""; 0]);
    let said = said(&[(USER, 7, 0, 1), (USER, 7, 3, 1), (USER, 8, 1, 1)]);
    assert!(
        said.len() == 1 && said[0].starts_with("3 intervals have no line"),
        "{said:?}"
    );
}

#[test]
fn missing_samples_are_reported_where_they_are_many() {
    use hbbp_model::snapshot::run::Counter;

    let said = |count: u64| {
        let (mut snapshot, slices) = run(&[(USER, 7, 0, 30)]);
        let event = &mut snapshot.run.events[0];
        "instructions".clone_into(&mut event.name);
        event.runs = 10_000;
        event.counters = vec![Counter {
            count: count * PERIOD,
            ..Counter::default()
        }];
        lines::sentences(&vectors(&snapshot, &slices, &rule(), BOTH), |_| "")
    };
    assert_eq!(
        said(10_100),
        [""; 0],
        "each thread ends in the middle of a period"
    );
    assert_eq!(said(9_000), [""; 0]);
    let lost = said(16_000);
    assert!(
        lost[0].starts_with("6000 of 16000 samples of instructions that were due did not arrive (37.5 %)"),
        "{lost:?}"
    );
}
