//! Time with interrupts off, in one function and at the ends of system calls.

use super::{BASE, KERNEL, belong, estimated, of_kernel, program};
use crate::Part;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{EventIdx, EventUnit, Interval, IpCount, ModuleIdx, ProcessIdx, Snapshot, Symbol};

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
    // POPF loads, which takes twice the time of a plain instruction or a store.
    assert_eq!(
        belong(&mut of_kernel(&restored, &[0]), &[(3, 3), (4, 1)]),
        [(1, 1.0), (2, 2.0), (3, 1.0)]
    );
    // 0: cli; 1: div rsi; 4: dec ecx; 6: jne 1. 8: sti; 9: nop; 10: ret
    let looped = [0xfa, 0x48, 0xf7, 0xf6, 0xff, 0xc9, 0x75, 0xf9, 0xfb, 0x90, 0xc3];
    let all = 22 * 32 + 1;
    assert_eq!(
        belong(&mut of_kernel(&looped, &[0]), &[(10, all)]),
        [(1, 640.0), (4, 32.0), (6, 32.0), (8, 1.0)]
    );
}

/// User code at [`BASE`] that calls the system at two places, and a kernel at [`KERNEL`] with this text.
fn with_calls(kernel: &[u8]) -> Snapshot {
    // 0: syscall; 2: inc eax; 4: syscall; 6: inc eax; 8: jmp 0
    let user = [0x0f, 0x05, 0xff, 0xc0, 0x0f, 0x05, 0xff, 0xc0, 0xeb, 0xf6];
    let mut snapshot = program(&user, &[0]);
    let mut of_kernel = of_kernel(kernel, &[]);
    let symbol = |(name, at): (&str, u64)| Symbol {
        start: ImageAddr(BASE + at),
        len: 0,
        name: name.to_owned(),
    };
    of_kernel.modules[0].symbols = [("entry_SYSCALL_64", 0), ("do_syscall_64", DO)]
        .map(symbol)
        .into();
    snapshot.modules.append(&mut of_kernel.modules);
    of_kernel.text[0].module = ModuleIdx(1);
    snapshot.text.append(&mut of_kernel.text);
    let mapping = &mut of_kernel.processes[0].mappings[0];
    mapping.module = ModuleIdx(1);
    snapshot.processes[0].mappings = vec![*mapping];
    snapshot.processes.push(snapshot.processes[1].clone());
    snapshot
}

/// Where `do_syscall_64` begins in [`SYSTEM_CALL`].
const DO: u64 = 22;

/// 0: swapgs; 3: push rax; 4: call 22; 9: test al, al; 11: je 20; 13: pop rax; 14: swapgs; 17: sysretq; 20: iretq.
/// 22: sti; 23: nop; 24: four times inc eax; 32: cli; 33: nop; 34: ret
const SYSTEM_CALL: [u8; 35] = [
    0x0f, 0x01, 0xf8, 0x50, 0xe8, 0x0d, 0, 0, 0, 0x84, 0xc0, 0x74, 0x07, 0x58, 0x0f, 0x01, 0xf8, 0x48, 0x0f,
    0x07, 0x48, 0xcf, 0xfb, 0x90, 0xff, 0xc0, 0xff, 0xc0, 0xff, 0xc0, 0xff, 0xc0, 0xfa, 0x90, 0xc3,
];

/// The time of the instructions at these addresses of a process, where the kernel is at [`KERNEL`].
fn spent(snapshot: &mut Snapshot, samples: &[(u32, u64, u64)]) -> impl Fn(u32, u64) -> f64 + use<> {
    let count = |(process, ip, hits): &(u32, u64, u64)| IpCount {
        event: EventIdx(0),
        process: ProcessIdx(*process),
        ip: Va(*ip),
        exact: false,
        hits: *hits,
        weight: *hits,
    };
    let interval = Interval {
        ips: samples.iter().map(count).collect(),
        ..Interval::default()
    };
    snapshot.intervals = vec![interval];
    let (map, counts) = estimated(snapshot);
    let n: u64 = samples.iter().map(|(.., hits)| hits).sum();
    let all: f64 = counts.parts.iter().map(|part| part.count).sum();
    assert!((all - n as f64).abs() < 1e-9, "{all} of {n}");
    let at = |part: &Part| {
        let block = counts.blocks[part.block].block;
        let instruction = map.instructions(block)[part.instruction.unwrap() as usize];
        let base = [BASE, KERNEL][block.text.0 as usize];
        (part.process.0, base + u64::from(instruction.offset), part.count)
    };
    let parts: Vec<(u32, u64, f64)> = counts.parts.iter().map(at).collect();
    move |process, address| {
        let here = parts
            .iter()
            .filter(|(of, at, _)| (*of, *at) == (process, address));
        here.map(|(.., time)| time).sum()
    }
}

#[test]
fn time_of_system_calls_changes_rings() {
    // A hundred calls, 75 of them at the first place: what is behind STI is of the way in, what is behind SYSCALL of the way out.
    let way_in = [0, 3, 4, DO, DO + 1].map(|at| KERNEL + at);
    let body = [26, 28, 30, 32].map(|at| (1, KERNEL + at, 100));
    let (first, second) = (BASE, BASE + 4);
    let mut samples = vec![
        (1, first + 2, 7500),
        (1, second + 2, 2500),
        (1, KERNEL + 24, 9000),
    ];
    samples.extend(body);
    let mut snapshot = with_calls(&SYSTEM_CALL);
    let time = spent(&mut snapshot, &samples);
    let calls = time(1, first) + time(1, second);
    assert!((time(1, first) - 0.75 * calls).abs() < 1e-9);
    assert!((calls + way_in.map(|at| time(1, at)).iter().sum::<f64>() - 9000.0).abs() < 1e-9);
    // SWAPGS and SYSCALL are of one kind, which takes nearly all.
    assert!(
        (time(1, way_in[0]) - calls).abs() < 1e-9 && 4000.0 < calls,
        "{calls}"
    );
    let way_out = [33, 34, 9, 11, 13, 14, 17].map(|at| time(1, KERNEL + at));
    assert!(
        (way_out.iter().sum::<f64>() - 10_000.0).abs() < 1e-9,
        "{way_out:?}"
    );
    assert!(way_out.iter().all(|time| 10.0 < *time), "{way_out:?}");
    assert_eq!(time(1, KERNEL + 20), 0.0, "the way by IRET is longer");

    // Functions end in a jump to a thunk that returns, which has no samples.
    let mut with_thunks = SYSTEM_CALL.to_vec();
    with_thunks.splice(34.., [0xeb, 0x40]);
    let time = spent(&mut with_calls(&with_thunks), &samples);
    let through_thunks = [33, 34, 9, 11, 13, 14, 17].map(|at| time(1, KERNEL + at));
    assert!((through_thunks.iter().sum::<f64>() - 10_000.0).abs() < 1e-9);

    // Where no call of a process was seen, the kernel has the way in.
    samples.push((2, KERNEL + 24, 90));
    let time = spent(&mut snapshot, &samples);
    assert!((way_in.map(|at| time(2, at)).iter().sum::<f64>() - 90.0).abs() < 1e-9);
    assert_eq!(time(2, first) + time(2, second), 0.0);

    // Where the way out is not known, its time stays in user code, and that of the way in where interrupts are turned on.
    let mut snapshot = with_calls(&[0x90; 35]);
    let time = spent(&mut snapshot, &samples);
    assert_eq!((time(1, first), time(1, second)), (7500.0, 2500.0));
}

#[test]
fn times_of_instructions_are_those_of_the_same_form_elsewhere() {
    // 0: cli; 1: div rsi; 4: inc eax; 6: sti; 7: nop; 8: ret. 9: div rcx; 12: inc eax; 14: inc eax; 16: ret
    let code = [
        0xfa, 0x48, 0xf7, 0xf6, 0xff, 0xc0, 0xfb, 0x90, 0xc3, 0x48, 0xf7, 0xf1, 0xff, 0xc0, 0xff, 0xc0, 0xc3,
    ];
    for cycles in [5, 40, 90] {
        let mut kernel = of_kernel(&code, &[0, 9]);
        let belong = belong(
            &mut kernel,
            &[(8, 1000), (12, 100 * cycles), (14, 100), (16, 100)],
        );
        let off = belong.iter().filter(|(at, _)| *at < 9);
        let (division, all) = off.fold((0.0, 0.0), |(division, all), (at, time)| {
            (if *at == 1 { *time } else { division }, all + time)
        });
        assert!((all - 1000.0).abs() < 1e-9);
        // The division, an addition and STI: all three are in the region.
        let others = 1000.0 - division;
        let plain = belong.iter().find(|(at, _)| *at == 4).unwrap().1;
        assert!(
            (division / plain / cycles as f64 - 1.0).abs() < 0.03,
            "{division} of {cycles}, others {others}"
        );
    }
}
