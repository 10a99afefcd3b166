//! Samples on programs of a few bytes, and the instructions that they belong to.

use crate::rule::PAPER;
use crate::{BlockCounts, Part, estimate};
use hbbp_code::blocks::{BlockMap, blocks};
use hbbp_code::locate::locate;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{
    Event, EventIdx, EventUnit, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind, Process,
    ProcessIdx, Snapshot, Symbol, Text,
};

const BASE: u64 = 0x40_0000;
const KERNEL: u64 = 0xffff_ffff_8100_0000;

/// A program whose text is these bytes, with symbols at these offsets.
fn program(code: &[u8], symbols: &[u64]) -> Snapshot {
    let symbol = |at: &u64| Symbol {
        start: ImageAddr(BASE + at),
        len: 0,
        name: "f".to_owned(),
    };
    let mapping = Mapping {
        start: Va(BASE),
        end: Va(BASE + 0x1000),
        module: ModuleIdx(0),
        image_start: ImageAddr(BASE),
        from: 0,
    };
    let mut snapshot = Snapshot {
        modules: vec![Module {
            name: "/bin/f".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: symbols.iter().map(symbol).collect(),
        }],
        processes: vec![
            Process::default(),
            Process {
                tgid: 7,
                mappings: vec![mapping],
                ..Process::default()
            },
        ],
        text: vec![Text {
            module: ModuleIdx(0),
            start: ImageAddr(BASE),
            bytes: code.to_vec(),
            since: 0,
        }],
        ..Snapshot::default()
    };
    snapshot.run.events = vec![Event {
        unit: EventUnit::Nanoseconds,
        ..Event::default()
    }];
    snapshot
}

/// The same in the kernel.
fn of_kernel(code: &[u8], symbols: &[u64]) -> Snapshot {
    let mut program = program(code, symbols);
    program.modules[0].kind = ModuleKind::Kernel;
    let mapping = program.processes[1].mappings.pop().unwrap();
    program.processes[0].mappings = vec![Mapping {
        start: Va(KERNEL),
        end: Va(KERNEL + 0x1000),
        ..mapping
    }];
    program
}

/// An interval with these samples, by offset.
fn interval(snapshot: &Snapshot, samples: &[(u64, u64)]) -> Interval {
    let base = if snapshot.modules[0].kind.is_kernel() {
        KERNEL
    } else {
        BASE
    };
    let ip = |(offset, hits): &(u64, u64)| IpCount {
        event: EventIdx(0),
        process: ProcessIdx(1),
        ip: Va(base + offset),
        exact: false,
        hits: *hits,
        weight: *hits,
    };
    Interval {
        ips: samples.iter().map(ip).collect(),
        ..Interval::default()
    }
}

fn estimated(snapshot: &Snapshot) -> (BlockMap, BlockCounts) {
    let mut located = locate(snapshot);
    let map = blocks(snapshot, &located);
    let counts = estimate(snapshot, &mut located, &map, &PAPER.parse().unwrap());
    (map, counts)
}

/// The offsets of the instructions that these samples belong to.
fn belong(snapshot: &mut Snapshot, samples: &[(u64, u64)]) -> Vec<(u32, f64)> {
    snapshot.intervals = vec![interval(snapshot, samples)];
    let (map, counts) = estimated(snapshot);
    let n: u64 = samples.iter().map(|(_, hits)| hits).sum();
    let all: f64 = counts.parts.iter().map(|part| part.count).sum();
    assert!((all - n as f64).abs() < 1e-9, "{all} of {n}");
    let offset = |part: &Part| {
        let block = counts.blocks[part.block].block;
        let instruction = map.instructions(block)[part.instruction.unwrap() as usize];
        (instruction.offset, part.count)
    };
    counts.parts.iter().map(offset).collect()
}

/// 0: xor ecx, ecx. 2: div rsi; 5: add eax, ecx; 7: jne 2. 9: rep movsb; 11: ret.
const LOOP: [u8; 12] = [
    0x31, 0xc9, 0x48, 0xf7, 0xf6, 0x01, 0xc8, 0x75, 0xf9, 0xf3, 0xa4, 0xc3,
];

#[test]
fn samples_within_a_block_belong_to_the_instruction_above() {
    let mut program = program(&LOOP, &[0]);
    assert_eq!(
        belong(&mut program, &[(5, 531), (7, 20)]),
        [(2, 531.0), (5, 20.0)]
    );
    assert_eq!(belong(&mut program, &[(11, 4)]), [(9, 4.0)]);
    assert_eq!(
        belong(&mut program, &[(9, 4)]),
        [(9, 4.0)],
        "a string instruction spends its own"
    );
}

#[test]
fn ways_into_a_block_share_its_samples_by_their_own() {
    let mut program = program(&LOOP, &[0]);
    // What leads to the loop is itself, with 30 samples, and the block above, with 10.
    assert_eq!(
        belong(&mut program, &[(2, 8), (5, 22), (0, 10)]),
        [(0, 12.0), (2, 22.0), (7, 6.0)]
    );
    // The block above was never seen.
    assert_eq!(belong(&mut program, &[(2, 8)]), [(7, 8.0)]);
    // Nothing leads to the function.
    assert_eq!(belong(&mut program, &[(0, 3)]), [(0, 3.0)]);
}

#[test]
fn a_single_way_needs_no_samples() {
    // 0: je 4. 2: jmp 5. 4: nop. 5: nop; 6: ret
    let mut program = program(&[0x74, 0x02, 0xeb, 0x01, 0x90, 0x90, 0xc3], &[0]);
    assert_eq!(belong(&mut program, &[(2, 5)]), [(0, 5.0)]);
    assert_eq!(belong(&mut program, &[(4, 5)]), [(0, 5.0)]);
    // Of two ways, the blocks without samples stand for what leads to them: neither is known to be taken more often.
    let both = belong(&mut program, &[(5, 6), (0, 10)]);
    assert_eq!(both, [(0, 10.0), (2, 3.0), (4, 3.0)]);
}

#[test]
fn samples_after_a_call_belong_to_the_return_of_the_callee() {
    // 0: call 8; 5: nop; 6: ret. 8: nop; 9: ret
    let mut program = program(&[0xe8, 3, 0, 0, 0, 0x90, 0xc3, 0xcc, 0x90, 0xc3], &[0, 8]);
    assert_eq!(belong(&mut program, &[(5, 4)]), [(9, 4.0)]);
    // The callee is entered from a block that has samples, or it is not known from where.
    assert_eq!(belong(&mut program, &[(8, 4), (0, 1)]), [(0, 5.0)]);
    assert_eq!(belong(&mut program, &[(8, 4)]), [(8, 4.0)]);
}

#[test]
fn samples_after_an_indirect_call_or_a_precise_event_stay() {
    // 0: call rax; 2: nop; 3: ret
    let mut program = program(&[0xff, 0xd0, 0x90, 0xc3], &[0]);
    assert_eq!(belong(&mut program, &[(2, 4)]), [(2, 4.0)]);
    assert_eq!(belong(&mut program, &[(3, 4)]), [(2, 4.0)]);
    program.run.events[0].precise = 2;
    assert_eq!(belong(&mut program, &[(3, 4)]), [(3, 4.0)]);
}

#[test]
fn time_with_interrupts_off_belongs_to_what_is_between() {
    // 0: nop; 1: cli; 2: add eax, ecx; 4: inc eax; 6: sti; 7: nop; 8: ret
    let sti = [0x90, 0xfa, 0x01, 0xc8, 0xff, 0xc0, 0xfb, 0x90, 0xc3];
    assert_eq!(
        belong(&mut of_kernel(&sti, &[0]), &[(8, 6)]),
        [(2, 2.0), (4, 2.0), (6, 2.0)]
    );
    // 0: call 7; 5: nop; 6: ret. 7: cli; 8: push rax; 9: sti; 10: ret, behind which interrupts come.
    let called = [0xe8, 2, 0, 0, 0, 0x90, 0xc3, 0xfa, 0x50, 0xfb, 0xc3];
    assert_eq!(
        belong(&mut of_kernel(&called, &[0, 7]), &[(5, 4)]),
        [(8, 2.0), (9, 2.0)]
    );
    // The function of the STI begins behind the CLI; user code turns nothing off; a counter is not held back.
    let mut hidden = of_kernel(&sti, &[0, 2]);
    assert_eq!(belong(&mut hidden, &[(8, 6)]), [(7, 6.0)]);
    assert_eq!(estimated(&hidden).1.waited.unwrap().held_back, 1.0);
    assert_eq!(belong(&mut program(&sti, &[0]), &[(8, 6)]), [(7, 6.0)]);
    let mut counter = of_kernel(&sti, &[0]);
    counter.run.events[0].unit = EventUnit::Cycles;
    assert_eq!(belong(&mut counter, &[(8, 6)]), [(7, 6.0)]);
    // 0: cli; 1: ret; 2: push rax; 3: popf; 4: nop. What turned them off is on another path.
    let away = [0xfa, 0xc3, 0x50, 0x9d, 0x90, 0xc3];
    assert_eq!(belong(&mut of_kernel(&away, &[0]), &[(4, 3)]), [(3, 3.0)]);
    // 0: cli; 1: push rax; 2: popf; 3: nop; 4: ret
    let restored = [0xfa, 0x50, 0x9d, 0x90, 0xc3];
    assert_eq!(
        belong(&mut of_kernel(&restored, &[0]), &[(3, 3), (4, 1)]),
        [(1, 1.5), (2, 1.5), (3, 1.0)]
    );
}

#[test]
fn slices_and_landed_samples_add_up() {
    let mut program = program(&LOOP, &[0]);
    program.intervals = vec![
        interval(&program, &[(5, 5), (2, 1)]),
        interval(&program, &[(5, 7)]),
        interval(&program, &[(0, 2)]),
    ];
    let (_, counts) = estimated(&program);
    let waited = counts.waited.as_ref().unwrap();
    assert_eq!(waited.totals, [6.0, 7.0, 2.0]);
    let mut parts = vec![0.0; counts.parts.len()];
    for (part, samples) in waited.slices.iter().flatten() {
        parts[*part] += samples;
    }
    for (part, sum) in counts.parts.iter().zip(parts) {
        assert!((part.count - sum).abs() < 1e-9);
    }
    let landed: Vec<u64> = waited.landed.iter().map(|it| it.hits).collect();
    assert_eq!(landed, [5, 1, 7, 2]);
    let whole: f64 = counts
        .blocks
        .iter()
        .map(|block| block.chosen().count * f64::from(block.instructions))
        .sum();
    assert!((whole - 15.0).abs() < 1e-9);
}
