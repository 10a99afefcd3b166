//! Profiles that anybody could make on purpose so that a report takes long: one for each step that once took the square of
//! its input.
//!
//! A test and a benchmark include this file.

use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::run::Counter;
use hbbp_model::snapshot::{
    BranchCount, Event, EventIdx, EventUnit, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind,
    Period, Process, ProcessIdx, Snapshot, StreamCount, Symbol, Text,
};

/// A hostile profile of a size.
pub(crate) struct Shape {
    /// What it does.
    pub(crate) name: &'static str,
    /// Makes it.
    pub(crate) make: fn(u32) -> Snapshot,
    /// The smallest size that is measured.
    pub(crate) n: u32,
}

/// All of them.
pub(crate) const SHAPES: [Shape; 12] = [
    Shape {
        name: "streams through a sled of untaken jumps",
        make: sled,
        n: 500,
    },
    Shape {
        name: "short processes that run through a sled",
        make: sled_processes,
        n: 8,
    },
    Shape {
        name: "samples in a sled, without stacks",
        make: sled_of_samples,
        n: 500,
    },
    Shape {
        name: "a branch in the oldest slot, and a sled",
        make: biased_sled,
        n: 500,
    },
    Shape {
        name: "mappings over mappings, one an interval",
        make: mappings,
        n: 2_000,
    },
    Shape {
        name: "versions of one text, alike but for the end",
        make: versions,
        n: 2_000,
    },
    Shape {
        name: "functions that start at one address",
        make: symbols,
        n: 2_000,
    },
    Shape {
        name: "events with few samples each",
        make: events,
        n: 2_000,
    },
    Shape {
        name: "samples in many places",
        make: samples,
        n: 20_000,
    },
    Shape {
        name: "loops in loops, in functions of five blocks",
        make: loops,
        n: 4_000,
    },
    Shape {
        name: "the same in one function",
        make: loops_of_one_function,
        n: 4_000,
    },
    Shape {
        name: "distinct streams over 200 modules",
        make: distinct_streams,
        n: 20_000,
    },
];

const BASE: u64 = 0x40_0000;
/// The longest stream that is believed, in bytes.
const LONGEST: u64 = 64 << 10;

/// One process with some text of a program at [`BASE`].
fn program(bytes: Vec<u8>) -> Snapshot {
    let module = Module {
        name: "/bin/program".to_owned(),
        kind: ModuleKind::Elf64,
        build_id: vec![7; 20],
        symbols: Vec::new(),
    };
    let text = Text {
        module: ModuleIdx(0),
        start: ImageAddr(BASE),
        bytes,
        since: 0,
    };
    let mut snapshot = Snapshot {
        modules: vec![module],
        processes: vec![Process::default()],
        text: vec![text],
        ..Snapshot::default()
    };
    snapshot.processes.push(process(1));
    snapshot.run.events = vec![event(EventUnit::Instructions), event(EventUnit::TakenBranches)];
    snapshot
}

fn process(tgid: u32) -> Process {
    Process {
        tgid,
        comm: "program".to_owned(),
        mappings: vec![mapping(0)],
        ..Process::default()
    }
}

fn mapping(from: u64) -> Mapping {
    Mapping {
        start: Va(BASE),
        end: Va(BASE + (1 << 30)),
        module: ModuleIdx(0),
        image_start: ImageAddr(BASE),
        from,
    }
}

fn event(unit: EventUnit) -> Event {
    let counter = Counter {
        cpu: Some(0),
        count: 1_000_000,
        runs: Some(900),
        ..Counter::default()
    };
    Event {
        unit,
        branch_stack: unit == EventUnit::TakenBranches,
        period: Period::Fixed(1_000),
        runs: 900,
        counters: vec![counter],
        ..Event::default()
    }
}

fn ip(event: u32, process: u32, at: u64) -> IpCount {
    IpCount {
        event: EventIdx(event),
        process: ProcessIdx(process),
        ip: Va(BASE + at),
        exact: true,
        hits: 3,
        weight: 3_000,
    }
}

/// A stream that a branch at `source` led to.
fn stream(process: u32, start: u64, end: u64, source: u64) -> StreamCount {
    StreamCount {
        event: EventIdx(1),
        process: ProcessIdx(process),
        start: Va(BASE + start),
        end: Va(BASE + end),
        source: Some(Va(BASE + source)),
        hits: 31,
        weight: 31_000.0 / 31.0,
        cycles: None,
    }
}

fn oldest(process: u32, from: u64, hits: u64) -> BranchCount {
    BranchCount {
        event: EventIdx(1),
        process: ProcessIdx(process),
        from: Va(BASE + from),
        to: Va(0),
        hits,
        oldest: hits,
        mispredicted: None,
    }
}

/// `je` to the next instruction, for `len` bytes.
fn untaken(len: u64) -> Vec<u8> {
    [0x74, 0].repeat(usize::try_from(len / 2).unwrap())
}

/// `n` streams, each through nearly 64 KiB of untaken jumps, in one process.
fn sled(n: u32) -> Snapshot {
    let n = u64::from(n);
    let mut snapshot = program(untaken(LONGEST + 4 * n));
    let streams = (0..n).map(|n| stream(1, 2 * n, 2 * n + LONGEST - 2, 2 * n + LONGEST - 2));
    snapshot.intervals = vec![Interval {
        ips: (0..n).map(|n| ip(0, 1, 4 * n)).collect(),
        streams: streams.collect(),
        branches: (0..n).map(|n| oldest(1, 2 * n + LONGEST - 2, 1)).collect(),
        ..Interval::default()
    }];
    snapshot
}

/// `n` untaken jumps with a sample each, whose path no stack shows.
fn sled_of_samples(n: u32) -> Snapshot {
    let n = u64::from(n);
    let mut snapshot = program(untaken(2 * n));
    snapshot.intervals = vec![Interval {
        ips: (0..n).map(|n| ip(0, 1, 2 * n)).collect(),
        ..Interval::default()
    }];
    snapshot
}

/// As [`sled`], with one branch that is always the oldest: the streams are balanced.
fn biased_sled(n: u32) -> Snapshot {
    let mut snapshot = sled(n);
    snapshot.intervals[0].branches = vec![oldest(1, LONGEST - 2, 40 * u64::from(n))];
    snapshot
}

/// `n` processes, each with one stream through 64 KiB of untaken jumps.
fn sled_processes(n: u32) -> Snapshot {
    let mut snapshot = program(untaken(LONGEST + 64));
    snapshot.processes.extend((2..=n).map(process));
    snapshot.intervals = vec![Interval {
        streams: (1..=n).map(|n| stream(n, 0, LONGEST - 2, LONGEST - 2)).collect(),
        branches: (1..=n).map(|n| oldest(n, LONGEST - 2, 1)).collect(),
        ..Interval::default()
    }];
    snapshot
}

/// One process that maps its text again and again, with a sample in each interval between.
fn mappings(n: u32) -> Snapshot {
    let mut snapshot = program(vec![0x90; 4096]);
    snapshot.processes[1].mappings = (0..n).map(|n| mapping(u64::from(n) * 10)).collect();
    let interval = |n: u32| Interval {
        start: u64::from(n) * 10,
        end: u64::from(n) * 10 + 5,
        ips: vec![ip(0, 1, u64::from(n) % 4096)],
        ..Interval::default()
    };
    snapshot.intervals = (0..n).map(interval).collect();
    snapshot
}

/// `n` versions of a text that differ in their last byte or not at all.
fn versions(n: u32) -> Snapshot {
    let mut snapshot = program(Vec::new());
    let version = |since: u32| {
        let mut bytes = vec![0x90; 512];
        bytes.extend((since % 65_521).to_le_bytes());
        Text {
            module: ModuleIdx(0),
            start: ImageAddr(BASE),
            bytes,
            since,
        }
    };
    snapshot.text = (0..n).map(version).collect();
    let interval = |n: u32| Interval {
        end: u64::from(n) + 1,
        ips: vec![ip(0, 1, u64::from(n) % 512)],
        ..Interval::default()
    };
    snapshot.intervals = (0..n).map(interval).collect();
    snapshot
}

/// `n` functions at one address, and as many versions of the byte there.
fn symbols(n: u32) -> Snapshot {
    let mut snapshot = program(Vec::new());
    let symbol = |n: u32| Symbol {
        start: ImageAddr(BASE),
        len: 1,
        name: format!("f{n}"),
    };
    snapshot.modules[0].symbols = (0..n).map(symbol).collect();
    let version = |since: u32| Text {
        module: ModuleIdx(0),
        start: ImageAddr(BASE),
        bytes: vec![0x90],
        since,
    };
    snapshot.text = (0..n).map(version).collect();
    snapshot.intervals = vec![Interval {
        ips: vec![ip(0, 1, 0)],
        ..Interval::default()
    }];
    snapshot
}

/// `n` events on CPUs of their own, each with samples.
fn events(n: u32) -> Snapshot {
    let mut snapshot = program(vec![0x90; 4096]);
    let on_cpu = |cpu| {
        let mut event = event(EventUnit::Instructions);
        event.counters[0].cpu = Some(cpu);
        event
    };
    snapshot.run.events = (0..n).map(on_cpu).collect();
    snapshot.intervals = vec![Interval {
        ips: (0..n).map(|n| ip(n, 1, u64::from(n) % 4096)).collect(),
        ..Interval::default()
    }];
    snapshot
}

/// `n` samples and as many streams of a few instructions: what a report of honest code costs.
fn samples(n: u32) -> Snapshot {
    // nop; nop; nop; nop; nop; jmp 1
    let block = [0x90, 0x90, 0x90, 0x90, 0x90, 0xeb, 0x01, 0x90];
    let mut snapshot = program(block.repeat(n as usize));
    let n = u64::from(n);
    let streams = (0..n).map(|n| stream(1, 8 * n, 8 * n + 5, 8 * n + 5));
    snapshot.intervals = vec![Interval {
        ips: (0..n).map(|n| ip(0, 1, 8 * n)).collect(),
        streams: streams.collect(),
        branches: (0..n).map(|n| oldest(1, 8 * n + 5, 1)).collect(),
        ..Interval::default()
    }];
    snapshot
}

/// `n` functions of five blocks, of which two are loops, with samples of instructions and of cycles: a million blocks are
/// 200 000 of them.
fn loops(n: u32) -> Snapshot {
    let mut snapshot = loops_of_one_function(n);
    let symbol = |n: u32| Symbol {
        start: ImageAddr(BASE + 8 * u64::from(n)),
        len: 8,
        name: format!("f{n}"),
    };
    snapshot.modules[0].symbols = (0..n).map(symbol).collect();
    snapshot
}

/// As [`loops`], without the names of the functions.
fn loops_of_one_function(n: u32) -> Snapshot {
    // 0: nop   1: nop   2: nop   3: jne 2   5: jne 1   7: nop, and on with the next one
    let function = [0x90, 0x90, 0x90, 0x75, 0xfd, 0x75, 0xfa, 0x90];
    let mut snapshot = program(function.repeat(n as usize));
    snapshot.run.events.push(event(EventUnit::Cycles));
    let mut counts = Interval::default();
    for n in (0..u64::from(n)).map(|n| 8 * n) {
        let ends = [(0, 3), (1, 3), (2, 3), (2, 5)];
        let streams = ends.map(|(start, end)| stream(1, n + start, n + end, n + end));
        counts.streams.extend(streams);
        let branches = [(3, 2), (5, 1)].map(|(from, to)| BranchCount {
            to: Va(BASE + n + to),
            oldest: 2,
            ..oldest(1, n + from, 40)
        });
        counts.branches.extend(branches);
        counts.ips.push(ip(0, 1, n + 3));
        counts.ips.push(ip(2, 1, n + 3));
    }
    counts.ips.sort_by_key(|it| (it.event.0, it.ip.0));
    snapshot.intervals = vec![counts];
    snapshot
}

/// `n` distinct streams, of a process with [`N_MODULES`] modules, as of many programs on one host: each module has as many,
/// and from each branch target up to [`N_ENDS`] branches end one.
pub(crate) fn distinct_streams(n: u32) -> Snapshot {
    /// Modules of a large host.
    const N_MODULES: u32 = 200;
    /// Distinct streams that start at one target.
    const N_ENDS: u32 = 10;
    /// mov eax, [rdi]; add eax, edx; nop; nop; je 8
    const BLOCK: [u8; 8] = [0x8b, 0x07, 0x01, 0xd0, 0x90, 0x90, 0x74, 0x00];
    /// Addresses from module to module.
    const APART: u64 = 1 << 24;

    let of_module = n.div_ceil(N_MODULES);
    let n_starts = of_module.div_ceil(N_ENDS);
    let mut snapshot = program(Vec::new());
    let bytes = BLOCK.repeat((n_starts + N_ENDS) as usize);
    let module = |n: u32| Module {
        name: format!("/usr/lib/lib{n}.so"),
        build_id: n.to_le_bytes().repeat(5),
        ..snapshot.modules[0].clone()
    };
    snapshot.modules = (0..N_MODULES).map(module).collect();
    let text = |module: u32| Text {
        module: ModuleIdx(module),
        start: ImageAddr(BASE),
        bytes: bytes.clone(),
        since: 0,
    };
    snapshot.text = (0..N_MODULES).map(text).collect();
    let mapped = |module: u32| Mapping {
        start: Va(BASE + APART * u64::from(module)),
        end: Va(BASE + APART * u64::from(module) + bytes.len() as u64),
        module: ModuleIdx(module),
        image_start: ImageAddr(BASE),
        from: 0,
    };
    snapshot.processes[1].mappings = (0..N_MODULES).map(mapped).collect();
    let mut streams = Vec::with_capacity(n as usize);
    for module in 0..u64::from(N_MODULES) {
        for nth in 0..u64::from(of_module) {
            let start = APART * module + 8 * (nth / u64::from(N_ENDS));
            let end = start + 8 * (nth % u64::from(N_ENDS)) + 6;
            streams.push(StreamCount {
                source: None,
                hits: 1 + nth % 7,
                weight: 1000.0 * (1 + nth % 7) as f64 / 31.0,
                ..stream(1, start, end, 0)
            });
        }
    }
    snapshot.intervals = vec![Interval {
        streams,
        ..Interval::default()
    }];
    snapshot
}
