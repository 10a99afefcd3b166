//! Call chains of a program of four functions, written by hand.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use hbbp_code::locate::TextIdx;
use hbbp_estimate::rule::PAPER;
use hbbp_model::addr::Va;
use hbbp_model::snapshot::Period;
use hbbp_model::snapshot::run::Counter;
use hbbp_model::snapshot::{
    ChainCount, Event, EventIdx, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind, Process,
    ProcessIdx, Snapshot, Symbol, Text,
};

const USER: u64 = 0x40_0000;

/// `main` calls `f` in a loop; `f` calls `leaf`, then itself; `bare`, which keeps no frame pointer, calls `leaf`.
///
/// ```text
/// main:  0: push rbp    1: mov rbp, rsp    4: call 10    9: jmp 4
/// f:    10: push rbp   11: mov rbp, rsp   14: call 20   19: call 10   1e: pop rbp   1f: ret
/// leaf: 20: nop        21: nop            22: ret
/// bare: 28: push rbx   29: call 20        2e: pop rbx   2f: ret
/// ```
const CODE: [u8; 0x30] = [
    0x55, 0x48, 0x89, 0xe5, 0xe8, 7, 0, 0, 0, 0xeb, 0xf9, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, //
    0x55, 0x48, 0x89, 0xe5, 0xe8, 7, 0, 0, 0, 0xe8, 0xf2, 0xff, 0xff, 0xff, 0x5d, 0xc3, //
    0x90, 0x90, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0x53, 0xe8, 0xf2, 0xff, 0xff, 0xff, 0x5b, 0xc3,
];

const FUNCTIONS: [(&str, u64, u64); 4] = [
    ("main", 0, 0xb),
    ("f", 0x10, 0x10),
    ("leaf", 0x20, 3),
    ("bare", 0x28, 8),
];

/// A sampled offset, the offset that is on top of the stack, and what the kernel unwound after it; samples of ten ns.
pub(crate) type Sampled<'a> = (u64, u64, &'a [u64], u64);

/// A profile of the program with these chains.
pub(crate) fn sampled(chains: &[Sampled<'_>]) -> Snapshot {
    let at = |offset: u64| Va(USER + offset);
    let (event, process) = (EventIdx(0), ProcessIdx(1));
    let ip = |(ip, _, _, hits): &Sampled<'_>| IpCount {
        event,
        process,
        ip: at(*ip),
        exact: false,
        hits: *hits,
        weight: 10 * hits,
    };
    let chain = |(ip, top, behind, hits): &Sampled<'_>| ChainCount {
        event,
        process,
        ip: at(*ip),
        frames: std::iter::once(ip)
            .chain(*behind)
            .map(|it| at(*it))
            .collect::<Arc<[Va]>>(),
        top: at(*top),
        hits: *hits,
        weight: 10 * hits,
    };
    let mut snapshot = program();
    snapshot.intervals = vec![Interval {
        ips: chains.iter().map(ip).collect(),
        chains: chains.iter().map(chain).collect(),
        ..Interval::default()
    }];
    snapshot.check().unwrap();
    snapshot
}

/// The same chains, and samples of instructions with a period of ten: offsets, with their samples.
pub(crate) fn sampled_beside(executed: &[(u64, u64)], chains: &[Sampled<'_>]) -> Snapshot {
    let mut snapshot = sampled(chains);
    let runs = executed.iter().map(|(_, hits)| hits).sum();
    snapshot.run.events.push(Event {
        unit: EventUnit::Instructions,
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
    });
    let ip = |(offset, hits): &(u64, u64)| IpCount {
        event: EventIdx(1),
        process: ProcessIdx(1),
        ip: Va(USER + offset),
        exact: true,
        hits: *hits,
        weight: 10 * hits,
    };
    snapshot.intervals[0].ips.extend(executed.iter().map(ip));
    snapshot.check().unwrap();
    snapshot
}

/// The program, without samples.
fn program() -> Snapshot {
    let at = |offset: u64| Va(USER + offset);
    let symbol = |(name, start, len): (&str, u64, u64)| Symbol {
        start: ImageAddr(start),
        len,
        name: name.to_owned(),
    };
    let program = Process {
        tgid: 7,
        mappings: vec![Mapping {
            start: at(0),
            end: at(0x1000),
            module: ModuleIdx(0),
            image_start: ImageAddr(0),
            from: 0,
        }],
        ..Process::default()
    };
    let mut snapshot = Snapshot {
        modules: vec![Module {
            name: "/bin/f".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: FUNCTIONS.map(symbol).to_vec(),
        }],
        processes: vec![Process::default(), program],
        text: vec![Text {
            module: ModuleIdx(0),
            start: ImageAddr(0),
            bytes: CODE.to_vec(),
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

fn time(sum: &mut Amount, charged: &Charged) {
    *sum += charged.amount;
}

/// The offsets of the calls of one chain, innermost first, and how it ended.
fn walked(chain: Sampled<'_>) -> (Vec<u64>, Ends) {
    let snapshot = sampled(&[chain]);
    let estimated = Estimated::new(&snapshot, &PAPER.parse().unwrap());
    let callers = Callers::new(&estimated).unwrap();
    let text = estimated.map.text(TextIdx(0)).unwrap();
    let offset = |(_, call): &At| text.addr(text.instruction(*call).unwrap()).0;
    let [charged] = &callers.charged[..] else { panic!() };
    (charged.calls.iter().map(offset).collect(), callers.ends)
}

#[test]
fn callers_are_proved_by_the_code_that_they_called() {
    let ends = Ends {
        samples: 1,
        ..Ends::default()
    };
    let without_caller = Ends {
        without_caller: 1,
        ..ends
    };
    let cases: [(Sampled<'_>, &[u64], Ends); 10] = [
        // In the body of a function with a frame pointer, the top of the stack does not matter.
        ((0x14, 0x9, &[0x9], 1), &[0x4], ends),
        // A function without a frame has its return address on top of the stack, and its caller's above the frame pointer.
        ((0x21, 0x19, &[0x9], 1), &[0x14, 0x4], ends),
        // So it is before a frame pointer is set up, and when it was taken back.
        ((0x10, 0x9, &[], 1), &[0x4], ends),
        ((0x1f, 0x9, &[], 1), &[0x4], ends),
        // Between push and mov it is elsewhere.
        ((0x11, 0x9, &[0x9], 1), &[], without_caller),
        // A function that keeps another register has it elsewhere, and an outer function is not its caller.
        ((0x29, 0x9, &[0x9], 1), &[], without_caller),
        // Time after a call belongs to the return of the callee, which was called from there.
        ((0x2e, 0x9, &[0x9], 1), &[0x29], without_caller),
        ((0x21, 0x2e, &[0x9], 1), &[0x29], Ends { cut_short: 1, ..ends }),
        // No call is there.
        ((0x14, 0, &[0xb], 1), &[], Ends { no_call: 1, ..ends }),
        // A recursion has each of its calls.
        (
            (0x21, 0x19, &[0x1e, 0x1e, 0x9], 1),
            &[0x14, 0x19, 0x19, 0x4],
            ends,
        ),
    ];
    for (chain, calls, ends) in cases {
        let (found, end) = walked(chain);
        assert_eq!((&found[..], end), (calls, ends), "{chain:x?}");
    }
}

#[test]
fn recursion_is_charged_once() {
    let snapshot = sampled(&[
        (0x21, 0x19, &[0x1e, 0x1e, 0x9], 3),
        (0x21, 0x19, &[0x1e, 0x9], 2),
        (0x21, 0x19, &[0x9], 1),
    ]);
    let estimated = Estimated::new(&snapshot, &PAPER.parse().unwrap());
    let callers = Callers::new(&estimated).unwrap();
    let text = estimated.map.text(TextIdx(0)).unwrap();
    let by_call: Vec<(u64, f64, f64)> = callers
        .by_call(time)
        .into_iter()
        .map(|((_, call), amount)| {
            let at = text.addr(text.instruction(call).unwrap());
            (at.0, amount.hits, amount.units)
        })
        .collect();
    assert_eq!(by_call, [(0x4, 6.0, 60.0), (0x14, 6.0, 60.0), (0x19, 5.0, 50.0)]);
    assert_eq!((callers.total.hits, callers.total.units), (6.0, 60.0));
}

proptest! {
    #[test]
    fn a_call_has_the_time_of_all_chains_that_hold_it(
        drawn in prop::collection::vec((prop::collection::vec(0u32..6, 0..9), 1u8..9), 0..12),
    ) {
        let charged = drawn.iter().map(|(calls, hits)| Charged {
            spender: (TextIdx(1), 0),
            calls: calls.iter().map(|call| (TextIdx(0), *call)).collect(),
            amount: Amount { hits: f64::from(*hits), units: 10.0 * f64::from(*hits) },
        });
        let callers = Callers {
            unit: EventUnit::Cycles,
            charged: charged.collect(),
            total: Amount::default(),
            ends: Ends::default(),
        };
        let by_call = callers.by_call(time);
        for call in 0u32..6 {
            let holding = drawn.iter().filter(|(calls, _)| calls.contains(&call));
            let hits: f64 = holding.map(|(_, hits)| f64::from(*hits)).sum();
            let found = by_call.get(&(TextIdx(0), call)).copied().unwrap_or_default();
            prop_assert_eq!((found.hits, found.units), (hits, 10.0 * hits));
        }
    }
}
