//! Samples on programs of a few bytes, and the instructions that they belong to.

use super::code::Code;
use super::executions::Executions;
use super::interrupts::Interrupts;
use super::times::Times;
use super::ways_in::WaysIn;
use crate::rule::PAPER;
use crate::{BlockCounts, Part, estimate};
use hbbp_code::blocks::{BlockMap, blocks};
use hbbp_code::locate::{TextIdx, locate};
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{
    Event, EventIdx, EventUnit, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind, Process,
    ProcessIdx, Snapshot, Symbol, Text,
};

mod interrupts;

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

/// 0: test al, 3; 2: jne 9. 4: xor edx, edx; 6: div rsi. 9: add eax, ecx; 11: dec ecx; 13: jne 0. 15: ret
const MEETING: [u8; 16] = [
    0xa8, 0x03, 0x75, 0x05, 0x31, 0xd2, 0x48, 0xf7, 0xf6, 0x01, 0xc8, 0xff, 0xc9, 0x75, 0xf1, 0xc3,
];

/// Where a loop of this has its samples, by a share of the rounds that divides and the cycles of a division: one a cycle.
fn met(rounds: u64, divide: u64, cycles: u64) -> [(u64, u64); 7] {
    [
        (0, rounds),
        (2, rounds),
        (4, divide),
        (6, divide),
        (9, rounds - divide + cycles * divide),
        (11, rounds),
        (13, rounds),
    ]
}

#[test]
fn ways_that_meet_share_samples_by_executions_and_time() {
    for (divide, cycles) in [(100, 25), (100, 10), (200, 40), (10, 90), (399, 25)] {
        let belong = belong(&mut program(&MEETING, &[0]), &met(400, divide, cycles));
        let division = belong.iter().find(|(at, _)| *at == 6).unwrap().1;
        let off = division - (divide * cycles) as f64;
        let all: f64 = belong.iter().map(|(_, samples)| samples).sum();
        assert!(
            off.abs() < 0.01 * all,
            "{divide} of {cycles} cycles: off by {off} of {all}"
        );
    }
    // The arm with the division is never executed.
    let never = belong(&mut program(&MEETING, &[0]), &met(400, 0, 25));
    let division = never.iter().find(|(at, _)| *at == 6).unwrap().1;
    assert!(division < 0.015 * 2400.0, "{division}");
}

/// A processor retires several instructions in a cycle.
#[test]
fn blocks_without_samples_are_not_taken_for_unexecuted() {
    // As sampled on a processor: neither the block before the arm nor the arm has samples, and a division takes most time.
    let belong = belong(&mut program(&MEETING, &[0]), &[(9, 295), (11, 35), (13, 28)]);
    let division = belong.iter().find(|(at, _)| *at == 6).unwrap().1;
    assert!(0.8 * 295.0 < division, "{belong:?}");
}

#[test]
fn ways_into_a_loop_share_its_samples() {
    // The loop takes 22 samples in 21 cycles, and what is above it was seen before its start alone.
    let mut program = program(&LOOP, &[0]);
    let [above, division, below] = belong(&mut program, &[(2, 8), (5, 22), (0, 1)])[..] else {
        panic!("three instructions have time");
    };
    assert_eq!(division, (2, 22.0));
    assert_eq!((above.0, below.0), (0, 7));
    assert!((above.1 + below.1 - 9.0).abs() < 1e-9 && 1.0 < above.1 && 1.0 < below.1);
    // The block above was never seen.
    assert_eq!(belong(&mut program, &[(2, 8), (7, 1)]), [(5, 1.0), (7, 8.0)]);
    // Nothing leads to the function.
    assert_eq!(belong(&mut program, &[(0, 3)]), [(0, 3.0)]);
}

/// A ladder of conditional branches, each a block, from which control comes to the one below and to one of eight others.
fn ladder(rungs: u8) -> Vec<u8> {
    let mut code: Vec<u8> = (0..rungs).flat_map(|rung| [0x74, 2 * (7 - rung % 8)]).collect();
    code.extend([0xc3; 20]);
    code
}

/// Conditional branches, all to one long block.
fn fan(branches: u8) -> Vec<u8> {
    let mut code: Vec<u8> = (0..branches).rev().flat_map(|n| [0x74, 2 * n]).collect();
    code.extend([0x90; 3000]);
    code.push(0xc3);
    code
}

/// Blocks and instructions that are looked at for the executions of all blocks of a program, and how many there are.
fn looked_at(code: &[u8]) -> (usize, usize) {
    let mut program = program(code, &[0]);
    program.intervals = vec![interval(&program, &[(0, 1)])];
    let (map, _) = estimated(&program);
    let hits = [((TextIdx(0), 0), 1.0)].into();
    let interrupts = Interrupts::new(Code::new(&program, &map).with_sources());
    let times = Times::known(&map);
    let mut executions = Executions::new(&interrupts, &hits, &times);
    let before = executions.work_left;
    let text = map.text(TextIdx(0)).unwrap();
    for _ in 0..100 {
        for at in 0..u32::try_from(text.n_instructions()).unwrap() {
            executions.of_end((TextIdx(0), at));
            executions.of_way((TextIdx(0), at), (TextIdx(0), at + 1));
        }
    }
    let looked_at = before - executions.work_left;
    assert_eq!(WaysIn::new(&mut executions, &hits).1, 0.0);
    // Where no more may be looked at, nothing is known.
    let mut executions = Executions::new(&interrupts, &hits, &times);
    executions.work_left = 0;
    assert_eq!(executions.of_end((TextIdx(0), 0)), 0.0);
    assert_eq!(interrupts.code.returns((TextIdx(0), 0), &mut 0), []);
    assert_eq!(
        WaysIn::new(&mut executions, &hits).1,
        1.0,
        "the sample is counted"
    );
    (looked_at, text.n_instructions())
}

#[test]
fn work_is_bounded_whatever_the_code() {
    for code in [ladder(240), fan(60)] {
        let (looked_at, instructions) = looked_at(&code);
        // Each block once for each distance of 0 to 3, and each instruction once.
        assert!(looked_at <= 5 * instructions, "{looked_at} of {instructions}");
    }
}

#[test]
fn the_heaviest_ways_share_the_samples() {
    // 0: nop; 1: call 8; 6: nop; 7: ret. 8: forty times je +1, ret.
    let mut code = vec![0x90, 0xe8, 2, 0, 0, 0, 0x90, 0xc3];
    code.extend([0x74, 0x01, 0xc3].repeat(40));
    code.push(0xc3);
    let mut program = program(&code, &[0, 8]);
    let mut samples: Vec<(u64, u64)> = (0..40).map(|n| (10 + 3 * n, 100 + n)).collect();
    samples.extend([(1, 10), (6, 160)]);
    let returns = belong(&mut program, &samples)
        .into_iter()
        .filter(|(at, _)| 8 < *at && (at - 8) % 3 == 2);
    let returns: Vec<_> = returns.collect();
    assert_eq!(returns.len(), 16);
    assert!((returns.iter().map(|(_, samples)| samples).sum::<f64>() - 160.0).abs() < 1e-9);
    assert!(returns.iter().all(|(at, _)| 8 + 3 * 24 <= *at), "{returns:?}");
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
