//! Snapshots that are built by hand, with real instructions, so that their mix is known exactly.
//!
//! | function      | module     | instructions                                        | hits on each |
//! |---------------|------------|-----------------------------------------------------|--------------|
//! | `spin_wait`   | `[kernel]` | MOV, TEST, PAUSE, JMP                               | 100          |
//! | `count_up`    | `/bin/sum` | ADDSS, ADDPS, LOCK XADD, RET                        | 30           |
//! | `vector_copy` | `/bin/sum` | VMOVUPS load, VMOVUPS store, RET                    | 10           |
//!
//! Every instruction of a block has the same hits, so the mix does not depend on whether a sample counts for its
//! instruction or for its block.

use hbbp_model::addr::{ImageAddr, Ring, Va};
use hbbp_model::snapshot::run::Counter;
use hbbp_model::snapshot::{
    BranchCount, CgroupIdx, ClassCount, Event, EventIdx, EventUnit, HostFacts, InstructionClass, Interval,
    IpCount, KernelTextSource, Loss, Losses, Mapping, Module, ModuleIdx, ModuleKind, Overhead, Period,
    Process, ProcessIdx, Run, Snapshot, StreamCount, Symbol, Text, Thread, Turns,
};

/// Where the kernel function is.
const KERNEL: u64 = 0xffff_ffff_8100_0000;
/// Where the program is mapped, and where its own file says that it is.
const USER: u64 = 0x5555_5555_4000;
const IMAGE: u64 = 0x1000;

/// Instruction by instruction, as `objdump -d` shows them.
const SPIN_WAIT: [&[u8]; 4] = [
    &[0x8b, 0x07], // mov    (%rdi),%eax
    &[0x85, 0xc0], // test   %eax,%eax
    &[0xf3, 0x90], // pause
    &[0xeb, 0xf8], // jmp    to the mov
];
const COUNT_UP: [&[u8]; 4] = [
    &[0xf3, 0x0f, 0x58, 0xc1], // addss  %xmm1,%xmm0
    &[0x0f, 0x58, 0xc1],       // addps  %xmm1,%xmm0
    &[0xf0, 0x0f, 0xc1, 0x07], // lock xadd %eax,(%rdi)
    &[0xc3],                   // ret
];
const VECTOR_COPY: [&[u8]; 3] = [
    &[0xc5, 0xfc, 0x10, 0x06], // vmovups (%rsi),%ymm0
    &[0xc5, 0xfc, 0x11, 0x07], // vmovups %ymm0,(%rdi)
    &[0xc3],                   // ret
];

/// A clock has sampled two CPUs for a second; nothing was lost.
pub fn clocked() -> Snapshot {
    let counter = |cpu, count, runs| Counter {
        cpu: Some(cpu),
        count,
        enabled: 1_000_000_000,
        running: 1_000_000_000,
        runs: Some(runs),
        idle: None,
        steal: None,
        guest: None,
        due: None,
    };
    let event = Event {
        name: "cpu-clock".to_owned(),
        unit: EventUnit::Nanoseconds,
        period: Period::Fixed(1_000_000),
        runs: 550,
        counters: vec![counter(0, 300_000_999, 300), counter(1, 250_000_000, 250)],
        ..Event::default()
    };
    measured_by(event)
}

/// The same addresses, sampled by an event that counts retired instructions.
pub fn retired() -> Snapshot {
    let mut snapshot = measured_by(Event {
        name: "INST_RETIRED.PREC_DIST".to_owned(),
        unit: EventUnit::Instructions,
        precise: 3,
        period: Period::Fixed(1_000_003),
        runs: 550,
        counters: vec![Counter {
            count: 550 * 1_000_003,
            enabled: 9,
            running: 9,
            ..Counter::default()
        }],
        ..Event::default()
    });
    for count in &mut snapshot.intervals[0].ips {
        count.exact = true;
        count.weight = count.hits * 1_000_003;
    }
    snapshot
}

/// Samples of retired instructions, and branch stacks of four entries of retired taken branches, one in ten of which
/// cannot have happened.
pub fn stacked() -> Snapshot {
    const PERIOD: f64 = 100_003.0;

    let mut snapshot = retired();
    snapshot.run.events.push(Event {
        name: "BR_INST_RETIRED.NEAR_TAKEN".to_owned(),
        unit: EventUnit::TakenBranches,
        branch_stack: true,
        period: Period::Fixed(100_003),
        runs: 1_000,
        counters: vec![Counter {
            count: 1_000 * 100_003,
            ..Counter::default()
        }],
        ..Event::default()
    });
    let stream = |process, start, end, hits: u32| StreamCount {
        event: EventIdx(1),
        process: ProcessIdx(process),
        start: Va(start),
        end: Va(end),
        source: None,
        hits: hits.into(),
        weight: f64::from(hits) * PERIOD / 3.0,
        cycles: None,
    };
    let branch = |process, from, to, hits, oldest| BranchCount {
        event: EventIdx(1),
        process: ProcessIdx(process),
        from: Va(from),
        to: Va(to),
        hits,
        oldest,
        mispredicted: None,
    };
    let interval = &mut snapshot.intervals[0];
    // The loop of `spin_wait`, `count_up` from its first to its last instruction, and streams that run backwards.
    interval.streams = vec![
        stream(0, KERNEL, KERNEL + 6, 2_100),
        stream(1, USER, USER + 11, 600),
        stream(1, USER + 11, USER, 300),
    ];
    interval.branches = vec![
        branch(0, KERNEL + 6, KERNEL, 2_800, 700),
        branch(1, USER + 11, USER + 0x40, 1_200, 300),
    ];
    snapshot
}

/// [`clocked`], and twenty bursts of user code: `count_up` was executed twice as often as `vector_copy`, and each sample without a burst
/// has its cause.
pub fn followed() -> Snapshot {
    const PERIOD: u64 = 50_000_017;
    /// The cycles of the model that each burst took.
    const CYCLES: f64 = 500.0;

    let mut snapshot = clocked();
    let counter = |cpu, runs| Counter {
        cpu: Some(cpu),
        count: runs * PERIOD,
        enabled: 1_000_000_000,
        running: 1_000_000_000,
        runs: Some(runs),
        ..Counter::default()
    };
    snapshot.run.events.push(Event {
        name: "bursts of cpu-clock".to_owned(),
        unit: EventUnit::Nanoseconds,
        ring: Some(Ring::User),
        branch_stack: true,
        period: Period::Fixed(PERIOD),
        runs: 26,
        counters: vec![counter(0, 12), counter(1, 14)],
        ..Event::default()
    });
    snapshot.losses.add(Loss::BurstsFull, 1);
    snapshot.losses.add(Loss::BurstsGone, 2);
    snapshot.losses.add(Loss::BurstsOverBudget, 2);
    snapshot.losses.add(Loss::BurstsShort, 1);
    let stream = |start, end, hits: u32| StreamCount {
        event: EventIdx(1),
        process: ProcessIdx(1),
        start: Va(start),
        end: Va(end),
        source: Some(Va(USER + 11)),
        hits: hits.into(),
        weight: f64::from(hits) * PERIOD as f64 / CYCLES,
        cycles: None,
    };
    let oldest = |from, hits| BranchCount {
        event: EventIdx(1),
        process: ProcessIdx(1),
        from: Va(from),
        to: Va(0),
        hits,
        oldest: hits,
        mispredicted: None,
    };
    let interval = &mut snapshot.intervals[0];
    interval.streams = vec![
        stream(USER, USER + 11, 3_400),
        stream(USER + 0x40, USER + 0x48, 1_700),
    ];
    interval.branches = vec![oldest(USER + 11, 13), oldest(USER + 0x48, 7)];
    snapshot
}

/// [`stacked`] on a processor that counts classes of instructions: loads and returns of user code in some turns, and
/// locked loads of the kernel in too few to know their error.
pub fn classed() -> Snapshot {
    let mut snapshot = stacked();
    let count = |class: InstructionClass, ring, count, n| {
        let instructions = match class {
            InstructionClass::Instructions => count,
            _ => 46_500_000,
        };
        ClassCount {
            class,
            ring,
            event: format!("cpu/{}/", class.id()),
            count,
            enabled: 2_000_000_000,
            running: if class == InstructionClass::Instructions {
                1_990_000_000
            } else {
                500_000_000
            },
            instructions,
            turns: Turns {
                n,
                count: 1e10,
                product: 0.0,
                measure: 0.0,
            },
        }
    };
    snapshot.run.classes = vec![
        count(InstructionClass::Instructions, Ring::Kernel, 360_000_000, 40),
        count(InstructionClass::Instructions, Ring::User, 186_000_000, 40),
        count(InstructionClass::Loads, Ring::User, 25_500_000, 12),
        count(InstructionClass::Returns, Ring::User, 12_300_000, 12),
        count(InstructionClass::Locked, Ring::Kernel, 5_000, 3),
    ];
    snapshot
}

/// As [`clocked`], but much has gone wrong: samples were skipped, refused, or hit what is not known, one CPU is
/// late, and names are hostile.
pub fn troubled() -> Snapshot {
    let mut snapshot = clocked();
    let event = &mut snapshot.run.events[0];
    event.runs = 5_000;
    event.counters[0].count = 4_100_000_000;
    event.counters[0].runs = Some(4_090);
    event.counters[1].count = 1_400_000_000;
    event.counters[1].runs = Some(910);
    event.counters[1].idle = Some(100_000_000);
    event.counters[1].running = 900_000_000;
    snapshot.run.kernel_text = KernelTextSource::Vmlinux("/boot/vmlinux-6.1.0-13-amd64".to_owned());
    snapshot.run.notes = vec!["no branch stacks: this is a virtual machine without a PMU".to_owned()];
    snapshot.losses.add(Loss::CountsFull, 450);
    snapshot.losses.add(Loss::FileMissing, 2);
    let foreign: Losses = [("region.of_the_future".to_owned(), 7)].into_iter().collect();
    snapshot.losses += &foreign;
    let symbols = &mut snapshot.modules[1].symbols;
    symbols[0].name =
        "_ZN4core3ptr57drop_in_place$LT$std..collections..hash..map..HashMap$GT$17h0123456789abcdefE"
            .to_owned();
    symbols[1].name = "\u{1b}[31mred\u{1b}[0m, \"quoted\"".to_owned();
    let ips = &mut snapshot.intervals[0].ips;
    // No mapping, no text, and the middle of the VMOVUPS.
    ips.push(ip(ProcessIdx(1), 0x1234, 3_900));
    ips.push(ip(ProcessIdx(1), USER + 0x800, 90));
    ips.push(ip(ProcessIdx(1), USER + 0x42, 10));
    snapshot
}

/// The facts of a second on two CPUs.
fn run(event: Event) -> Run {
    Run {
        tool_version: "0.1.0".to_owned(),
        host: HostFacts {
            name: "myriad".to_owned(),
            cpu_model: "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz".to_owned(),
            kernel_release: "6.1.0-13-amd64".to_owned(),
            kernel_build_id: vec![0x5a; 20],
            n_cpus: 2,
        },
        started: 1_795_151_621_000_000_000,
        duration: 1_000_000_000,
        scope: "the whole system".to_owned(),
        events: vec![event],
        classes: Vec::new(),
        kernel_text: KernelTextSource::Probe,
        notes: Vec::new(),
        unmeasured: Default::default(),
        without_executions: String::new(),
        overhead: Overhead {
            cpu: 3_000_000,
            memory: 24_500_000,
            ..Overhead::default()
        },
    }
}

/// The small program, sampled by `event`.
fn measured_by(event: Event) -> Snapshot {
    let text = |module, start, code: &[&[u8]]| Text {
        module: ModuleIdx(module),
        start: ImageAddr(start),
        bytes: code.concat(),
        since: 0,
    };
    let hits = [
        at_each(ProcessIdx::KERNEL, KERNEL, &SPIN_WAIT, 100),
        at_each(ProcessIdx(1), USER, &COUNT_UP, 30),
        at_each(ProcessIdx(1), USER + 0x40, &VECTOR_COPY, 10),
    ];
    Snapshot {
        run: run(event),
        modules: vec![
            module("[kernel]", ModuleKind::Kernel, &[(KERNEL, 8, "spin_wait")]),
            module(
                "/bin/sum",
                ModuleKind::Elf64,
                &[(IMAGE, 12, "count_up"), (IMAGE + 0x40, 9, "vector_copy")],
            ),
        ],
        processes: vec![
            process(0, "kernel", KERNEL, 0, KERNEL),
            process(4711, "sum", USER, 1, IMAGE),
        ],
        text: vec![
            text(0, KERNEL, &SPIN_WAIT),
            text(1, IMAGE, &COUNT_UP),
            text(1, IMAGE + 0x40, &VECTOR_COPY),
        ],
        intervals: vec![Interval {
            start: 5,
            end: 1_000_000_005,
            ips: hits.concat(),
            ..Interval::default()
        }],
        ..Snapshot::default()
    }
}

/// As [`clocked`], with the process in a container and two of its threads counted separately; a third process is of unknown
/// cgroup, and has too many threads.
pub fn threaded() -> Snapshot {
    let mut snapshot = clocked();
    let id = "3f4e8a91b2c7d6e5".repeat(4);
    snapshot.cgroups = vec![
        "/init.scope".to_owned(),
        format!("/system.slice/docker-{id}.scope"),
    ];
    let sum = &mut snapshot.processes[1];
    sum.cgroup = Some(CgroupIdx(1));
    let thread = |tid, name: &str| {
        Some(Thread {
            tid,
            name: name.to_owned(),
        })
    };
    let other = Process {
        tgid: 4800,
        comm: "pool".to_owned(),
        cgroup: None,
        ..sum.clone()
    };
    let images = [
        (sum.clone(), thread(4711, "sum")),
        (sum.clone(), thread(4712, "worker")),
        (other, thread(Thread::OTHERS, "")),
    ];
    snapshot.processes.truncate(1);
    let images = images.map(|(process, thread)| Process { thread, ..process });
    snapshot.processes.extend(images);
    let user = snapshot.intervals[0].ips.iter_mut();
    for (n, count) in user
        .filter(|count| count.process != ProcessIdx::KERNEL)
        .enumerate()
    {
        count.process = ProcessIdx(1 + u32::try_from(n % 3).unwrap());
    }
    snapshot
}

/// This number of hits at each instruction of the code that runs at `start`.
fn at_each(process: ProcessIdx, start: u64, code: &[&[u8]], hits: u64) -> Vec<IpCount> {
    let mut next = start;
    let at = code.iter().map(|instruction| {
        let here = next;
        next += u64::try_from(instruction.len()).unwrap();
        ip(process, here, hits)
    });
    at.collect()
}

fn ip(process: ProcessIdx, ip: u64, hits: u64) -> IpCount {
    IpCount {
        event: EventIdx(0),
        process,
        ip: Va(ip),
        exact: false,
        hits,
        weight: hits * 1_000_000,
    }
}

fn module(name: &str, kind: ModuleKind, symbols: &[(u64, u64, &str)]) -> Module {
    let symbol = |(start, len, name): &(u64, u64, &str)| Symbol {
        start: ImageAddr(*start),
        len: *len,
        name: (*name).to_owned(),
    };
    Module {
        name: name.to_owned(),
        kind,
        build_id: vec![0xb1; 20],
        symbols: symbols.iter().map(symbol).collect(),
    }
}

fn process(tgid: u32, comm: &str, start: u64, module: u32, image_start: u64) -> Process {
    let mapping = Mapping {
        start: Va(start),
        end: Va(start + 0x1000),
        module: ModuleIdx(module),
        image_start: ImageAddr(image_start),
        from: 0,
    };
    Process {
        tgid,
        exec_id: 0,
        comm: comm.to_owned(),
        mappings: vec![mapping],
        ..Process::default()
    }
}
