//! Planted defects in profiles of known samples: precise addresses of the loads, as often as chance has them.

use hbbp_estimate::stages::Stage;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::run::Counter;
use hbbp_model::snapshot::{
    Event, EventIdx, EventUnit, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind, Period, Process,
    ProcessIdx, Run, Snapshot, Symbol, Text,
};

use super::executions::{Executions, LoadProcess};
use super::image::{ADDRESS, TEXT};
use super::loads::program;
use super::program::{Counted, Program};
use super::run_loads::Ran;
use super::verdict::{Found, Tested};

const PERIOD: u64 = 10_007;
const TGID: u32 = 4711;
/// Rounds of the loads, and calls of the first of them.
const ROUNDS: u32 = 40;
const CALLS: u64 = 100_000;

/// The loads, each called another number of times.
fn loads() -> (Program, Vec<Ran>) {
    let program = program(ADDRESS, ROUNDS).unwrap();
    let calls = (0..program.loads.len() as u64).map(|n| Ran {
        calls: CALLS + 1_000 * n,
        cpu: 1,
    });
    let ran = calls.collect();
    (program, ran)
}

/// A number from 0 to 1 that looks like chance (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Samples where this many are expected: normal, by the sum of twelve, which Poisson's is near for many.
    #[expect(clippy::cast_sign_loss, reason = "it is not negative")]
    fn samples(&mut self, expected: f64) -> u64 {
        let normal: f64 = (0..12).map(|_| self.next()).sum::<f64>() - 6.0;
        expected.sqrt().mul_add(normal, expected).round().max(0.0) as u64
    }
}

/// Samples of retired instructions by chance, of what the loads executed.
fn samples(program: &Program, ran: &[Ran], seed: u64) -> Vec<IpCount> {
    let mut chance = Chance(seed);
    let loads = program.loads.iter().zip(ran);
    let instructions = loads.flat_map(|(load, ran)| load.instructions.iter().map(|it| (it, ran.calls)));
    let counts = instructions.map(|(instruction, calls)| {
        let executions = instruction.executions * calls;
        let hits = chance.samples(executions as f64 / PERIOD as f64);
        IpCount {
            event: EventIdx(0),
            process: ProcessIdx(1),
            ip: Va(ADDRESS + instruction.bytes.start as u64),
            exact: true,
            hits,
            weight: hits * PERIOD,
        }
    });
    counts.filter(|count| 0 < count.hits).collect()
}

fn symbols(program: &Program) -> Vec<Symbol> {
    let symbols = program.loads.iter().map(|load| {
        let first = load.instructions[0].bytes.start as u64;
        Symbol {
            start: ImageAddr(TEXT + first),
            len: load.instructions.last().unwrap().bytes.end as u64 - first,
            name: load.name.to_owned(),
        }
    });
    symbols.collect()
}

/// A profile of the loads.
fn sampled(program: &Program, ran: &[Ran], seed: u64) -> Snapshot {
    let ips = samples(program, ran, seed);
    let retired = program
        .loads
        .iter()
        .zip(ran)
        .map(|(load, ran)| load.retired() * ran.calls);
    let event = Event {
        name: "instructions".to_owned(),
        unit: EventUnit::Instructions,
        precise: 3,
        period: Period::Fixed(PERIOD),
        runs: ips.iter().map(|count| count.hits).sum(),
        counters: vec![Counter {
            count: retired.sum(),
            ..Counter::default()
        }],
        ..Event::default()
    };
    let mapping = Mapping {
        start: Va(ADDRESS),
        end: Va(ADDRESS + 0x10_000),
        module: ModuleIdx(0),
        image_start: ImageAddr(TEXT),
        from: 0,
    };
    let loads = Process {
        tgid: TGID,
        mappings: vec![mapping],
        ..Process::default()
    };
    Snapshot {
        run: Run {
            duration: 1_000_000_000,
            events: vec![event],
            ..Run::default()
        },
        modules: vec![Module {
            name: "/memfd:hbbp-selftest".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: symbols(program),
        }],
        processes: vec![Process::default(), loads],
        text: vec![Text {
            module: ModuleIdx(0),
            start: ImageAddr(TEXT),
            bytes: program.text.clone(),
            since: 0,
        }],
        intervals: vec![Interval {
            ips,
            ..Interval::default()
        }],
        ..Snapshot::default()
    }
}

/// What is off of a profile. Its samples count where they are: how late they are is not inferred from so few loads.
fn off(snapshot: &Snapshot, program: &Program, ran: &[Ran]) -> Vec<String> {
    let mut rule = crate::cmd::rule::read("balanced").unwrap();
    rule.stages = rule.stages.without(Stage::Landing);
    let process = LoadProcess::find(snapshot).unwrap();
    let executions = Executions::of(snapshot, &process, program, ran, &rule).unwrap();
    assert_eq!(executions.unseen, ["__x64_sys_getppid", "read_zero"]);
    Found::new(Tested::Executions(executions), &[]).off
}

#[test]
fn sound_profiles_pass() {
    let (program, ran) = loads();
    for seed in 0..20 {
        assert_eq!(
            off(&sampled(&program, &ran, seed), &program, &ran),
            [""; 0],
            "{seed}"
        );
    }
}

/// The weight of each sample is a hundredth too large.
#[test]
fn wrong_weights_are_found() {
    let (program, ran) = loads();
    for seed in 0..20 {
        let mut snapshot = sampled(&program, &ran, seed);
        for count in &mut snapshot.intervals[0].ips {
            count.weight += count.weight / 100;
        }
        let off = off(&snapshot, &program, &ran);
        assert!(off[0].starts_with("all loads together"), "{seed}: {off:?}");
    }
}

/// Text of another version of the program: a load that is elsewhere in it.
#[test]
fn text_of_another_file_is_found() {
    let (program, ran) = loads();
    let instructions = &program.loads[0].instructions;
    let [first, end] = [
        instructions[0].bytes.start,
        instructions.last().unwrap().bytes.end,
    ];
    for seed in 0..20 {
        let mut snapshot = sampled(&program, &ran, seed);
        // Lengths stay, as ADD, XOR and SUB of registers differ in one byte.
        for at in first..end {
            if snapshot.text[0].bytes[at..].starts_with(&[0x48, 0x31]) {
                snapshot.text[0].bytes[at + 1] = 0x01;
            }
        }
        let off = off(&snapshot, &program, &ran);
        assert!(
            off.iter().any(|it| it.starts_with("nested_loops: ")),
            "{seed}: {off:?}"
        );
    }
}

/// The period is a multiple of what a loop retires in a round: all its samples fall on one instruction.
#[test]
fn period_in_step_with_a_loop_is_found() {
    let (program, ran) = loads();
    for (name, seed) in ["short_blocks", "nested_loops"].iter().cycle().zip(0..20) {
        let load = program.loads.iter().find(|load| load.name == *name).unwrap();
        let hottest = load.instructions.iter().max_by_key(|it| it.executions).unwrap();
        let at = |it: &Counted| Va(ADDRESS + it.bytes.start as u64);
        let mut snapshot = sampled(&program, &ran, seed);
        let ips = &mut snapshot.intervals[0].ips;
        let inside = at(&load.instructions[0])..=at(load.instructions.last().unwrap());
        let (of_load, others): (Vec<_>, Vec<_>) = ips.drain(..).partition(|count| inside.contains(&count.ip));
        let hits = of_load.iter().map(|count| count.hits).sum();
        ips.extend(others);
        ips.push(IpCount {
            ip: at(hottest),
            hits,
            weight: hits * PERIOD,
            ..of_load[0]
        });
        let off = off(&snapshot, &program, &ran);
        assert!(
            off.iter().any(|it| it.starts_with(&format!("{name}: "))),
            "{seed}: {off:?}"
        );
    }
}
