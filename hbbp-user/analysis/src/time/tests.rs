//! Time on a program of nine bytes, whose samples are made up.

use super::*;
use hbbp_code::blocks::blocks;
use hbbp_code::locate::locate;
use hbbp_estimate::rule::PAPER;
use hbbp_estimate::{Untied, estimate};
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::run::Counter;
use hbbp_model::snapshot::{
    BranchCount, Event, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind, Period, Process,
    StreamCount, Text,
};

const USER: u64 = 0x40_0000;

/// A loop at 0 (add, dec, jne 0), then from 6 on rep movsb, ret.
const CODE: [u8; 9] = [0x01, 0xc8, 0xff, 0xc9, 0x75, 0xfa, 0xf3, 0xa4, 0xc3];

const PROCESS: ProcessIdx = ProcessIdx(1);

/// Stacks that show the loop nine times in ten.
fn counts() -> Interval {
    let stream = |start, end, hits: u64| StreamCount {
        event: EventIdx(0),
        process: PROCESS,
        start: Va(USER + start),
        end: Va(USER + end),
        source: None,
        hits,
        weight: hits as f64,
        cycles: None,
    };
    let back = BranchCount {
        event: EventIdx(0),
        process: PROCESS,
        from: Va(USER + 4),
        to: Va(USER),
        hits: 90,
        oldest: 1,
        mispredicted: None,
    };
    Interval {
        streams: vec![stream(0, 4, 90), stream(0, 8, 10)],
        branches: vec![back],
        ..Interval::default()
    }
}

fn snapshot(precise: u8) -> Snapshot {
    let event = |unit, precise, branch_stack| Event {
        unit,
        precise,
        branch_stack,
        ..Event::default()
    };
    let mapping = Mapping {
        start: Va(USER),
        end: Va(USER + 0x1000),
        module: ModuleIdx(0),
        image_start: ImageAddr(USER),
        from: 0,
    };
    let program = Process {
        tgid: 7,
        mappings: vec![mapping],
        ..Process::default()
    };
    let mut snapshot = Snapshot {
        modules: vec![Module {
            name: "/bin/f".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: Vec::new(),
        }],
        processes: vec![Process::default(), program],
        text: vec![Text {
            module: ModuleIdx(0),
            start: ImageAddr(USER),
            bytes: CODE.to_vec(),
            since: 0,
        }],
        ..Snapshot::default()
    };
    snapshot.run.events = vec![
        event(EventUnit::TakenBranches, 0, true),
        event(EventUnit::Cycles, precise, false),
    ];
    snapshot
}

/// The instructions that the time of samples at these offsets belongs to.
fn spent(precise: u8, at: &[(u64, u64)]) -> Vec<(u32, f64)> {
    let mut snapshot = snapshot(precise);
    let ip = |(offset, hits): &(u64, u64)| IpCount {
        event: EventIdx(1),
        process: PROCESS,
        ip: Va(USER + offset),
        exact: 0 < precise,
        hits: *hits,
        weight: hits * 1000,
    };
    snapshot.intervals = vec![Interval {
        ips: at.iter().map(ip).collect(),
        ..counts()
    }];
    let time = time(&snapshot, None);
    assert_eq!(
        time.total(),
        at.iter().map(|(_, hits)| *hits as f64 * 1000.0).sum::<f64>()
    );
    time.spent.iter().map(|it| (it.instruction, it.hits)).collect()
}

/// The time of a snapshot whose executions are scaled to counts, or not.
fn time(snapshot: &Snapshot, untied: Option<Untied>) -> Time {
    let mut located = locate(snapshot);
    let map = blocks(snapshot, &located);
    let mut counts = estimate(snapshot, &mut located, &map, &PAPER.parse().unwrap());
    counts.biases.untied = untied;
    Time::new(snapshot, &located, &map, &counts).unwrap()
}

#[test]
fn time_belongs_to_the_instruction_before_the_sampled_one() {
    // 0: add, 2: dec, 4: jne, 6: rep movsb, 8: ret. The loop is all that leads to its start.
    assert_eq!(
        spent(0, &[(2, 5), (4, 3), (8, 2)]),
        [(0, 5.0), (1, 3.0), (3, 2.0)]
    );
    assert_eq!(spent(0, &[(0, 7)]), [(2, 7.0)]);
    assert_eq!(
        spent(0, &[(6, 7)]),
        [(3, 7.0)],
        "a string instruction spends its own"
    );
}

#[test]
fn a_precise_sample_names_its_instruction() {
    assert_eq!(
        spent(2, &[(0, 7), (4, 3), (6, 1)]),
        [(0, 7.0), (2, 3.0), (3, 1.0)]
    );
}

#[test]
fn cycles_of_samples_that_were_not_received_are_shared_out() {
    let event = |unit, counted| Event {
        unit,
        period: Period::Fixed(10),
        counters: vec![Counter {
            count: counted,
            ..Counter::default()
        }],
        runs: 80,
        ..Event::default()
    };
    assert_eq!(due_for_each(&event(EventUnit::Cycles, 1000)), 1.25);
    assert_eq!(due_for_each(&event(EventUnit::Nanoseconds, 1000)), 1.0);
    assert_eq!(due_for_each(&event(EventUnit::Cycles, 0)), 1.0);
    assert_eq!(due_for_each(&Event::default()), 1.0);
}

#[test]
fn cycles_are_scaled_to_the_counter_with_executions() {
    let mut snapshot = snapshot(2);
    let cycles = &mut snapshot.run.events[1];
    cycles.period = Period::Fixed(1000);
    cycles.counters = vec![Counter {
        count: 10_000,
        ..Counter::default()
    }];
    cycles.runs = 8;
    let ip = IpCount {
        event: EventIdx(1),
        process: PROCESS,
        ip: Va(USER),
        exact: true,
        hits: 8,
        weight: 8000,
    };
    snapshot.intervals = vec![Interval {
        ips: vec![ip],
        ..counts()
    }];
    let untied = Untied {
        per_branch: 0.0,
        error: 0.0,
        taken: 0.0,
    };
    assert_eq!(time(&snapshot, Some(untied)).total(), 10_000.0);
    assert_eq!(time(&snapshot, None).total(), 8000.0);
}

#[test]
fn cycles_of_branch_records_are_shared_among_instructions() {
    let mut snapshot = snapshot(0);
    let mut counts = counts();
    for (stream, cycles) in counts.streams.iter_mut().zip([180, 50]) {
        stream.cycles = std::num::NonZeroU64::new(cycles);
    }
    snapshot.intervals = vec![counts];
    let time = time(&snapshot, None);
    assert_eq!(time.unit, EventUnit::Cycles);
    // Three instructions in 90 rounds of 2 cycles, and with two more in 10 rounds of 5.
    let amounts: Vec<_> = time
        .spent
        .iter()
        .map(|it| (it.instruction, it.amount.round()))
        .collect();
    assert_eq!(amounts, [(0, 70.0), (1, 70.0), (2, 70.0), (3, 10.0), (4, 10.0)]);
    assert!((time.total() - 230.0).abs() < 1e-6 && (time.samples - 100.0).abs() < 1e-6);
}

#[test]
fn nothing_is_divided_by_executions_that_are_not_known() {
    let figure = |value, std_error| Figure { value, std_error };
    let time = figure(300.0, 30.0);
    let known = cpi(time, figure(100.0, 10.0)).unwrap();
    assert!(
        (known.std_error - 3.0 * 0.02f64.sqrt()).abs() < 1e-12,
        "{known:?}"
    );
    assert_eq!(cpi(time, figure(100.0, 26.0)), None);
    assert_eq!(cpi(time, figure(0.0, 0.0)), None);
}

#[test]
fn errors_of_time_are_those_of_a_share_of_the_samples() {
    let amount = Amount {
        hits: 25.0,
        units: 100.0,
    };
    assert!((amount.figure(100.0).std_error - 20.0 * 0.75f64.sqrt()).abs() < 1e-9);
    assert_eq!(amount.figure(25.0).std_error, 0.0);
    assert_eq!(Amount::default().figure(10.0), Figure::default());
}
