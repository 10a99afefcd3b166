//! Samples and streams of small snapshots as amounts: by which source, what is discarded, and that sums close.

use super::super::{Dimension, Value};
use super::*;
use hbbp_code::locate::PerRing;
use hbbp_estimate::{Unit, rule::PAPER};
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{
    BranchCount, Event, EventIdx, EventUnit, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind,
    Process, ProcessIdx, StreamCount, Symbol, Text,
};
use proptest::prelude::*;

impl Analysis {
    /// Samples of the events of the mix: those in the mix and unresolved ones.
    fn samples(&self) -> PerRing {
        let mut samples = PerRing::default();
        let ebs = &self.counts.assignment.ebs;
        for part in [self.resolved.of_events(ebs), self.unresolved.of_events(ebs)] {
            samples.add(Ring::Kernel, part.kernel);
            samples.add(Ring::User, part.user);
        }
        samples
    }
}

const KERNEL: u64 = 0xffff_ffff_8100_0000;
const USER: u64 = 0x40_0000;

/// `idle` in the kernel and `f` in a program; one CPU, the given events.
fn snapshot(events: Vec<Event>) -> Snapshot {
    let module = |name: &str, kind, symbol: &str, start| Module {
        name: name.to_owned(),
        kind,
        build_id: Vec::new(),
        symbols: vec![Symbol {
            start: ImageAddr(start),
            len: 16,
            name: symbol.to_owned(),
        }],
    };
    let mapping = |start, module| Mapping {
        start: Va(start),
        end: Va(start + 0x1000),
        module: ModuleIdx(module),
        image_start: ImageAddr(start),
        from: 0,
    };
    let text = |module, start, bytes: &[u8]| Text {
        module: ModuleIdx(module),
        start: ImageAddr(start),
        bytes: bytes.to_vec(),
        since: 0,
    };
    // idle: sti; hlt; cli; ret        f: add rax, rcx; add rax, rdx; xor ecx, ecx; jne f; ret
    let idle = [0xfb, 0xf4, 0xfa, 0xc3];
    let f = [
        0x48, 0x01, 0xc8, 0x48, 0x01, 0xd0, 0x31, 0xc9, 0x75, 0xf6, 0xc3, 0xff,
    ];
    let program = Process {
        tgid: 7,
        comm: "f".to_owned(),
        mappings: vec![mapping(USER, 1)],
        ..Process::default()
    };
    let mut snapshot = Snapshot {
        modules: vec![
            module("[kernel]", ModuleKind::Kernel, "idle", KERNEL),
            module("/bin/f", ModuleKind::Elf64, "f", USER),
        ],
        processes: vec![
            Process {
                mappings: vec![mapping(KERNEL, 0)],
                ..Process::default()
            },
            program,
        ],
        text: vec![text(0, KERNEL, &idle), text(1, USER, &f)],
        ..Snapshot::default()
    };
    snapshot.run.events = events;
    snapshot
}

fn event(unit: EventUnit) -> Event {
    Event {
        unit,
        ..Event::default()
    }
}

fn ip(event: u32, ip: u64, hits: u64, period: u64) -> IpCount {
    let process = ProcessIdx(u32::from(ip < KERNEL));
    IpCount {
        event: EventIdx(event),
        process,
        ip: Va(ip),
        exact: true,
        hits,
        weight: hits * period,
    }
}

fn amounts(mix: &Mix) -> Vec<(String, f64, f64)> {
    mix.rows
        .iter()
        .map(|r| (r.key.join(" "), r.cells[0].amount, r.cells[1].amount))
        .collect()
}

#[test]
fn ebs_executions_are_samples_times_period_over_length() {
    let mut snapshot = snapshot(vec![
        event(EventUnit::Nanoseconds),
        event(EventUnit::Instructions),
    ]);
    let ips = vec![
        ip(1, USER, 3, 1000),
        ip(1, USER + 6, 5, 1000),
        ip(1, KERNEL + 2, 2, 1000),
        ip(0, USER, 9, 1),
    ];
    snapshot.intervals = vec![Interval {
        ips,
        ..Interval::default()
    }];
    let analysis = analyse(
        &snapshot,
        &Query::by([Dimension::Mnemonic]),
        &PAPER.parse().unwrap(),
    );
    assert_eq!(analysis.mix.unit, Unit::Executions);
    let expected = [("ADD", 0.0, 4000.0), ("JNE", 0.0, 2000.0), ("XOR", 0.0, 2000.0)];
    let kernel = [
        ("CLI", 500.0, 0.0),
        ("HLT", 500.0, 0.0),
        ("RET", 500.0, 0.0),
        ("STI", 500.0, 0.0),
    ];
    let expected: Vec<_> = expected
        .iter()
        .chain(&kernel)
        .map(|(k, a, b)| (String::from(*k), *a, *b))
        .collect();
    assert_eq!(amounts(&analysis.mix), expected);
    // Eight of ten samples: sqrt(8 - 64/10) of them, 1000 each, and half of each is an ADD.
    let error = analysis.mix.rows[0].cells[1].std_error.unwrap();
    assert!(
        (error - 1000.0 * (8.0f64 / 4.0 - 16.0 / 10.0).sqrt()).abs() < 1e-9,
        "{error}"
    );
    assert_eq!(analysis.samples(), PerRing { kernel: 2, user: 8 });
}

#[test]
fn halted_samples_are_not_in_the_mix() {
    let mut snapshot = snapshot(vec![event(EventUnit::Nanoseconds)]);
    let ips = vec![ip(0, KERNEL + 2, 90, 1), ip(0, KERNEL, 2, 1), ip(0, USER, 8, 1)];
    snapshot.intervals = vec![Interval {
        ips,
        ..Interval::default()
    }];
    let analysis = analyse(
        &snapshot,
        &Query::by([Dimension::Module, Dimension::Function]),
        &PAPER.parse().unwrap(),
    );
    assert_eq!(analysis.mix.unit, Unit::TimeWeightedSamples);
    assert_eq!(
        analysis.unresolved.get(Unresolved::Halted),
        PerRing { kernel: 90, user: 0 }
    );
    assert_eq!(
        amounts(&analysis.mix),
        [
            ("/bin/f f".to_owned(), 0.0, 8.0),
            ("[kernel] idle".to_owned(), 2.0, 0.0)
        ]
    );
}

#[test]
fn time_is_of_the_instruction_that_was_waited_for() {
    let mut snapshot = snapshot(vec![event(EventUnit::Nanoseconds)]);
    // After the second ADD and after the XOR, in four drains.
    let drain = Interval {
        ips: vec![ip(0, USER + 6, 80, 1), ip(0, USER + 8, 20, 1)],
        ..Interval::default()
    };
    snapshot.intervals = vec![drain; 4];
    let estimated = Estimated::new(&snapshot, &PAPER.parse().unwrap());
    let mix = |values: Vec<Value>| {
        let query = Query {
            values,
            ..Query::by([Dimension::Mnemonic])
        };
        estimated.mix(&query, &SourceLocations::new())
    };
    let of_time = mix(vec![Value::Executions, Value::Share]);
    assert_eq!(
        amounts(&of_time),
        [("ADD".to_owned(), 0.0, 320.0), ("XOR".to_owned(), 0.0, 80.0)]
    );
    let errors = of_time.rows.iter().map(|row| row.cells[1].std_error.unwrap());
    for error in errors {
        // The root of 400 * 0.8 * 0.2.
        assert!((error - 8.0).abs() < 0.1, "{error}");
    }
    // Samples are where they lie.
    let landed = mix(vec![Value::Executions, Value::Samples]);
    let landed: Vec<_> = landed
        .rows
        .iter()
        .map(|row| (row.key[0].as_str(), row.cells[1].samples))
        .collect();
    assert_eq!(landed, [("ADD", 0.0), ("XOR", 320.0), ("JNE", 80.0)]);
}

#[test]
fn short_blocks_use_streams_and_bad_streams_are_discarded() {
    let mut snapshot = snapshot(vec![
        event(EventUnit::Instructions),
        event(EventUnit::TakenBranches),
    ]);
    let stream = |start, end, hits: u64| StreamCount {
        event: EventIdx(1),
        process: ProcessIdx(1),
        start: Va(start),
        end: Va(end),
        source: None,
        hits,
        weight: hits as f64 * 100.0 / 3.0,
        cycles: None,
    };
    let branch = |oldest| BranchCount {
        event: EventIdx(1),
        process: ProcessIdx(1),
        from: Va(USER + 8),
        to: Va(USER),
        hits: 400,
        oldest,
        mispredicted: None,
    };
    snapshot.intervals = vec![Interval {
        ips: vec![ip(0, USER, 7, 1000)],
        // The loop, the loop up to an interrupt before the XOR, and a stream past the RET.
        streams: vec![
            stream(USER, USER + 8, 300),
            stream(USER, USER + 6, 30),
            stream(USER, USER + 11, 5),
        ],
        branches: vec![branch(100)],
        ..Interval::default()
    }];
    let analysis = analyse(
        &snapshot,
        &Query::by([Dimension::Source, Dimension::Mnemonic]),
        &PAPER.parse().unwrap(),
    );
    assert_eq!(
        analysis.discarded.get(Discard::Undecodable),
        PerRing { kernel: 0, user: 5 }
    );
    assert_eq!(analysis.interrupted.of_event(EventIdx(1)).total(), 30);
    let block = analysis.counts.blocks[0];
    // Half of the block's four instructions were executed 30 times more.
    assert_eq!(block.lbr.unwrap().hits, 315.0);
    assert!((block.lbr.unwrap().count - 10_500.0).abs() < 1e-6);
    assert_eq!(block.ebs.unwrap().count, 1750.0);
    assert_eq!(block.method, Method::Lbr);
    assert_eq!(analysis.mix.rows[0].key, ["LBR", "ADD"]);
    assert!((analysis.mix.rows[0].cells[1].amount - 21_000.0).abs() < 1e-6);
    assert_eq!(analysis.methods.len(), 1);
}

proptest! {
    #[test]
    fn samples_are_in_a_row_or_in_a_tally(
        drawn in prop::collection::vec((any::<bool>(), 0u64..20, 1u64..1000), 1..40),
    ) {
        let mut snapshot = snapshot(vec![event(EventUnit::Nanoseconds)]);
        let at = |kernel, offset| offset + if kernel { KERNEL } else { USER };
        let ips: Vec<IpCount> = drawn.iter().map(|&(k, offset, hits)| ip(0, at(k, offset), hits, 1)).collect();
        let mut counted = PerRing::default();
        ips.iter().for_each(|c| counted.add(c.ip.ring(), c.hits));
        snapshot.intervals = vec![Interval { ips, ..Interval::default() }];
        let analysis = analyse(&snapshot, &Query::by([Dimension::Mnemonic]), &PAPER.parse().unwrap());
        let mut sum = analysis.unresolved.of_event(EventIdx(0));
        for row in analysis.mix.whole_samples().unwrap() {
            sum.add(Ring::Kernel, row[0]);
            sum.add(Ring::User, row[1]);
        }
        prop_assert_eq!(sum, counted);
        prop_assert_eq!(analysis.samples(), counted);
    }
}
