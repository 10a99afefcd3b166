//! A program that calls a function ten times, which has a loop of four rounds in one of five: every stream of ten calls, and
//! samples of cycles.
//!
//! ```text
//! called:  0: nop    1: add    3: add    5: jne 3    7: dec    9: jne 1    b: ret
//! main:   20: call 0   25: jmp 20
//! ```

use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::run::Counter;
use hbbp_model::snapshot::{
    BranchCount, Event, EventIdx, EventUnit, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind,
    Period, Process, ProcessIdx, Snapshot, StreamCount, Symbol, Text,
};

/// Where the program is mapped, and where its own file says that it is.
const USER: u64 = 0x5555_5555_4000;
const IMAGE: u64 = 0x1000;

const CALLED: [u8; 12] = [
    0x90, 0x01, 0xc8, 0x01, 0xd0, 0x75, 0xfc, 0xff, 0xc9, 0x75, 0xf6, 0xc3,
];
const MAIN: [u8; 7] = [0xe8, 0xdb, 0xff, 0xff, 0xff, 0xeb, 0xf9];

/// First and last instruction of each stream, and its occurrences.
const STREAMS: [(u64, u64, u64); 7] = [
    (0x0, 0x5, 10),
    (0x1, 0x5, 40),
    (0x3, 0x5, 100),
    (0x3, 0x9, 40),
    (0x3, 0xb, 10),
    (0x20, 0x20, 10),
    (0x25, 0x25, 10),
];
const BRANCHES: [(u64, u64, u64); 5] = [
    (0x5, 0x3, 150),
    (0x9, 0x1, 40),
    (0xb, 0x25, 10),
    (0x20, 0x0, 10),
    (0x25, 0x20, 10),
];
/// Samples of ten cycles each.
const CYCLES: [(u64, u64); 5] = [(0x1, 5), (0x3, 70), (0x5, 20), (0x9, 4), (0x20, 1)];

const PROCESS: ProcessIdx = ProcessIdx(1);

/// The profile; `run` has facts of a run.
pub fn nested(run: Snapshot) -> Snapshot {
    let mut snapshot = Snapshot {
        run: run.run,
        ..code()
    };
    snapshot.run.events = vec![
        event(EventUnit::TakenBranches, true, 23),
        event(EventUnit::Cycles, false, 100),
    ];
    snapshot.intervals = vec![counts()];
    snapshot
}

fn event(unit: EventUnit, branch_stack: bool, runs: u64) -> Event {
    Event {
        name: format!("{unit:?}"),
        unit,
        branch_stack,
        precise: 2,
        period: Period::Fixed(10),
        runs,
        counters: vec![Counter {
            count: 10 * runs,
            enabled: 1,
            running: 1,
            ..Counter::default()
        }],
        ..Event::default()
    }
}

fn code() -> Snapshot {
    let symbol = |start, len, name: &str| Symbol {
        start: ImageAddr(start),
        len,
        name: name.to_owned(),
    };
    let mapping = Mapping {
        start: Va(USER),
        end: Va(USER + 0x1000),
        module: ModuleIdx(0),
        image_start: ImageAddr(IMAGE),
        from: 0,
    };
    let text = |start, bytes: &[u8]| Text {
        module: ModuleIdx(0),
        start: ImageAddr(start),
        bytes: bytes.to_vec(),
        since: 0,
    };
    Snapshot {
        modules: vec![Module {
            name: "/bin/nested".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: vec![symbol(IMAGE, 12, "called"), symbol(IMAGE + 0x20, 7, "main")],
        }],
        processes: vec![
            Process::default(),
            Process {
                tgid: 7,
                comm: "nested".to_owned(),
                mappings: vec![mapping],
                ..Process::default()
            },
        ],
        text: vec![text(IMAGE, &CALLED), text(IMAGE + 0x20, &MAIN)],
        ..Snapshot::default()
    }
}

fn counts() -> Interval {
    let stream = |(start, end, hits): (u64, u64, u64)| StreamCount {
        event: EventIdx(0),
        process: PROCESS,
        start: Va(USER + start),
        end: Va(USER + end),
        source: None,
        hits,
        weight: hits as f64,
        cycles: None,
    };
    let branch = |(from, to, hits): (u64, u64, u64)| BranchCount {
        event: EventIdx(0),
        process: PROCESS,
        from: Va(USER + from),
        to: Va(USER + to),
        hits,
        oldest: hits / 10,
        mispredicted: None,
    };
    let ip = |(offset, hits): (u64, u64)| IpCount {
        event: EventIdx(1),
        process: PROCESS,
        ip: Va(USER + offset),
        exact: true,
        hits,
        weight: 10 * hits,
    };
    Interval {
        ips: CYCLES.map(ip).to_vec(),
        streams: STREAMS.map(stream).to_vec(),
        branches: BRANCHES.map(branch).to_vec(),
        ..Interval::default()
    }
}
