//! Cycles follow from the cost model: the event counts what the exact counts cost, and branch records hold the same cycles.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::durations::Durations;
use kernel_tests::hardware_profile::HardwareProfile;
use kernel_tests::machine::{Clock, Marks};
use kernel_tests::outcome::Outcome;

use crate::support;

/// Divisions, loads and branches of both rings, interrupts and task switches among them.
const LOAD: &str =
    "kernels divide 1000000; for i in $(busybox seq 20); do busybox seq 300 | busybox md5sum; done";

/// A latency of its own for each class, so that one cannot replace another.
const HARDWARE_PROFILE: &str = "
latency.simple = 1
latency.load = 5
latency.store = 2
latency.multiply = 3
latency.divide = 29
latency.float = 4
latency.root = 19
latency.slow = 41
taken_cycles = 7
";

/// Cycles between two samples.
const PERIOD: u64 = 100_003;

/// The same where overflows are counted alone: the exact counts agree to a ten-thousandth.
const SHORT: u64 = 10_007;

fn recorded(hardware_profile: &str, command: &str) -> Option<Outcome> {
    let machine = support::machine("6.12")?;
    let mut machine = machine
        .clock(Clock::Instructions)
        .marks(Marks::Events)
        .hardware_profile(hardware_profile);
    support::add_workload(&mut machine, "kernels.c");
    machine.files().program("/usr/bin/perf".as_ref()).unwrap();
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", command]).unwrap();
    outcome.stdout().unwrap();
    assert_eq!(outcome.counters().unwrap()["anomalies"], 0);
    Some(outcome)
}

/// What the exact counts of a run cost by a hardware profile.
fn cost(outcome: &Outcome, hardware_profile: &str) -> u64 {
    let hardware_profile = HardwareProfile::parse(hardware_profile).unwrap();
    let mut durations = Durations::new(&hardware_profile);
    let reference = outcome.reference().unwrap();
    let mut cycles = reference.taken.iter().sum::<u64>() * u64::from(hardware_profile.taken_cycles);
    for block in &reference.blocks {
        for instruction in Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE) {
            cycles += u64::from(durations.of(&instruction)) * block.executions;
        }
    }
    cycles
}

/// Samples of both come from the driver's own count of overflows: the perf core may drop some.
#[test]
#[ignore = "runs in --all"]
fn cycles_are_what_the_executed_instructions_cost() {
    let command =
        format!("perf record -q -a -e cycles -c {SHORT} -o /tmp/perf.data -- busybox sh -c '{LOAD}' >&2");
    let Some(outcome) = recorded(HARDWARE_PROFILE, &command) else {
        return;
    };
    let overflows = outcome.counters().unwrap()["overflows"];
    let cost = cost(&outcome, HARDWARE_PROFILE);
    println!("{overflows} overflows of {SHORT} cycles; the exact counts cost {cost}");
    assert!(1000 < overflows, "{overflows}");
    // A period that has begun is in no overflow, and what runs between the mark and the event may end one.
    assert!((cost / SHORT).abs_diff(overflows) <= 1, "{cost}");
}

/// Lengths and durations of all executed user code, by process and address.
struct Code(BTreeMap<(u32, u64), (u64, u64)>);

impl Code {
    fn of(outcome: &Outcome, hardware_profile: &str) -> Self {
        let mut durations = Durations::new(&HardwareProfile::parse(hardware_profile).unwrap());
        let mut code = BTreeMap::new();
        for block in outcome.reference().unwrap().blocks {
            for instruction in Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE) {
                let cost = u64::from(durations.of(&instruction));
                code.insert((block.owner, instruction.ip()), (instruction.len() as u64, cost));
            }
        }
        Self(code)
    }

    /// What the instructions from one address to another one take.
    fn cost(&self, tgid: u32, start: u64, end: u64) -> u64 {
        let (mut at, mut cycles) = (start, 0);
        while at <= end {
            let (length, cost) = self.0[&(tgid, at)];
            (at, cycles) = (at + length, cycles + cost);
        }
        cycles
    }
}

/// A branch of `perf script`: `0xFROM/0xTO/P/-/-/CYCLES/...`.
fn branch(word: &str) -> (u64, u64, u64) {
    let parts: Vec<&str> = word.split('/').collect();
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap();
    (hex(parts[0]), hex(parts[1]), parts[5].parse().unwrap())
}

#[test]
#[ignore = "runs in --all"]
fn branch_records_hold_the_cycles_since_the_branch_before() {
    let command = format!(
        "perf record -q -a -b -e cycles -c {PERIOD} -o /tmp/perf.data -- busybox sh -c '{LOAD}' >&2 &&
         perf script -i /tmp/perf.data -F pid,brstack"
    );
    let Some(outcome) = recorded(HARDWARE_PROFILE, &command) else {
        return;
    };
    let code = Code::of(&outcome, HARDWARE_PROFILE);
    let taken_cycles = u64::from(HardwareProfile::parse(HARDWARE_PROFILE).unwrap().taken_cycles);
    let mut n = 0;
    for line in outcome.text("stdout").unwrap().lines() {
        let mut words = line.split_whitespace();
        let tgid = words.next().unwrap().parse().unwrap();
        // After a branch of the kernel another process may have run.
        let is_user = |(from, to, _): &(u64, u64, u64)| (from | to) >> 63 == 0;
        let entries: Vec<_> = words.map(branch).take_while(is_user).collect();
        for pair in entries.windows(2) {
            let [(from, _, cycles), (_, to, _)] = [pair[0], pair[1]];
            assert_eq!(
                cycles,
                code.cost(tgid, to, from) + taken_cycles,
                "{to:x} to {from:x}"
            );
            n += 1;
        }
    }
    println!("{n} streams have the cycles of their instructions");
    assert!(10_000 < n, "{n}");
}
