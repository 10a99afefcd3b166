//! Records match the trace: what an eBPF program and perf(1) read in the guest is in the trace of the emulated PMU.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::layout::EVENT_INSTRUCTIONS;
use kernel_tests::machine::{Clock, Machine, Marks};
use kernel_tests::outcome::Outcome;
use kernel_tests::reference::KERNEL;
use kernel_tests::trace::{self, Entry, Sample};
use kernel_tests::witness::{EFLAGS_EXACT, Seen};

use crate::support;

/// Forks, execs, pipes and user code, short enough for a trace of every branch.
const LOAD: &str = "for i in $(busybox seq 9); do busybox seq 3000 | busybox sort -r | busybox md5sum; done";
/// A processor on which the kernel has page tables of its own (PTI): interrupts come in on other stacks.
const INTEL: &str = "cpu = vendor=GenuineIntel,family=6,model=58,stepping=9";
/// Depth of the default hardware profile's stack.
const DEPTH: usize = 32;

/// Everything the emulated PMU kept of one CPU.
struct Traced {
    /// All branches.
    branches: Vec<Entry>,
    /// Those that stacks can show.
    recorded: Vec<Entry>,
    samples: Vec<Sample>,
}

impl Traced {
    fn read(outcome: &Outcome, cpu: usize) -> Self {
        let file = |name: String| outcome.directory().join(name);
        let branches = trace::read_branches(&file(trace::branch_file(cpu))).unwrap();
        let samples = trace::read_samples(&file(trace::sample_file(cpu))).unwrap();
        let recorded = branches.iter().copied().filter(Entry::is_recorded);
        let recorded: Vec<Entry> = recorded.collect();
        for pair in recorded.windows(2) {
            assert_eq!(pair[0].number + 1, pair[1].number, "the trace has every branch");
        }
        Self {
            branches,
            recorded,
            samples,
        }
    }

    /// The branch of this number.
    fn branch(&self, number: u64) -> Option<&Entry> {
        self.recorded
            .get(number.checked_sub(self.recorded.first()?.number)? as usize)
    }

    /// The instruction that was the `executed`th of the CPU: by walking from the branch before it.
    fn instruction(&self, executed: u64, code: &Code, tgid: u32) -> Option<u64> {
        let after = self.branches.partition_point(|entry| entry.executed < executed);
        let before = self.branches.get(after.checked_sub(1)?)?;
        let mut ip = before.branch.to;
        for _ in before.executed + 1..executed {
            ip += code.length(ip, tgid)?;
        }
        Some(ip)
    }
}

/// Lengths of all executed instructions, from the bytes in the reference.
struct Code(BTreeMap<(u32, u64), u64>);

impl Code {
    fn of(outcome: &Outcome) -> Self {
        let mut lengths = BTreeMap::new();
        for block in outcome.reference().unwrap().blocks {
            for instruction in Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE) {
                lengths.insert((block.owner, instruction.ip()), instruction.len() as u64);
            }
        }
        Self(lengths)
    }

    fn length(&self, ip: u64, tgid: u32) -> Option<u64> {
        let owner = if ip >> 63 == 1 { KERNEL } else { tgid };
        self.0.get(&(owner, ip)).copied()
    }
}

/// Runs the load with the witness on both events, and a trace.
fn witnessed(machine: Machine, rings: &str, load: &str) -> Outcome {
    // The span is the whole command, so that the reference has the bytes of all code in the trace.
    // What is compared is exact by any clock, and a trace takes twice the time by that of instructions.
    let mut machine = machine.clock(Clock::Host).marks(Marks::Command).traced();
    support::add_guest_program(&mut machine, "guest-witness");
    let command = [
        "/bin/guest-witness",
        rings,
        "2",
        "10007",
        "1009",
        "/bin/busybox",
        "sh",
        "-c",
        load,
    ];
    let outcome = machine.run(&command).unwrap();
    outcome.stdout().unwrap();
    outcome
}

/// Every overflow is a record or counted as lost, every record delivered or counted as lost, and nothing
/// was delivered to the wrong task.
fn check_counters(outcome: &Outcome) -> BTreeMap<String, u64> {
    let counters = outcome.counters().unwrap();
    let sum = |names: &[&str]| names.iter().map(|name| counters[*name]).sum::<u64>();
    assert_eq!(
        sum(&["overflows"]),
        sum(&["written", "lost_full", "lost_dropped", "lost_stopped"]),
        "{counters:?}"
    );
    assert_eq!(
        sum(&["written"]),
        sum(&["delivered", "orphaned", "throttled"]),
        "{counters:?}"
    );
    assert_eq!(sum(&["strangers", "late", "anomalies"]), 0, "{counters:?}");
    counters
}

/// Every sample that the witness got is the emulated PMU's, in the same order; returns how many there were.
fn check_samples(outcome: &Outcome, cpus: usize, rings: &str) -> usize {
    let runs: usize = outcome.text("witness").unwrap().trim().parse().unwrap();
    let seen = Seen::parse(&outcome.files["samples"]).unwrap();
    assert_eq!(seen.len(), runs, "the witness kept every sample");
    let code = Code::of(outcome);
    for cpu in 0..cpus {
        let traced = Traced::read(outcome, cpu);
        let mine: Vec<&Seen> = seen.iter().filter(|seen| seen.cpu as usize == cpu).collect();
        assert_eq!(mine.len(), traced.samples.len(), "samples of CPU {cpu}");
        for (sample, seen) in traced.samples.iter().zip(mine) {
            assert_eq!(
                (seen.ip, seen.tgid),
                (sample.ip, sample.tgid),
                "{sample:x?} {seen:x?}"
            );
            assert_eq!(seen.flags & EFLAGS_EXACT, EFLAGS_EXACT, "{seen:x?}");
            if rings == "both" {
                let ip = traced.instruction(sample.executed, &code, sample.tgid);
                assert_eq!(
                    ip,
                    Some(seen.ip),
                    "the instruction of the overflow: {sample:x?} {seen:x?}"
                );
            } else {
                assert_eq!(seen.ip >> 63 == 1, rings == "kernel", "{seen:x?}");
            }
            check_stack(&traced, sample, seen);
        }
        check_periods(&traced.samples);
    }
    seen.len()
}

/// A stack is a run of consecutive branches, and its newest branch is the one that overflowed.
fn check_stack(traced: &Traced, sample: &Sample, seen: &Seen) {
    if seen.event == EVENT_INSTRUCTIONS {
        assert_eq!(
            seen.result,
            -i64::from(libc::ENOENT),
            "the instruction event has no stack: {seen:x?}"
        );
        return;
    }
    assert_eq!(seen.stack.len(), DEPTH.min(sample.branches as usize), "{seen:x?}");
    for (age, entry) in seen.stack.iter().enumerate() {
        let number = sample.branches - age as u64;
        assert_eq!(
            traced.branch(number).map(|entry| entry.branch),
            Some(*entry),
            "entry {age} of {seen:x?}"
        );
    }
    assert_eq!(seen.stack[0].from, seen.ip, "{seen:x?}");
}

/// Between two overflows of a counter it counted exactly its period. The perf core switches all counters of a CPU off and
/// on when it adds an event (kernel/events/core.c, `ctx_resched`). So this compares events that the counter counted, not those
/// that the CPU executed.
fn check_periods(samples: &[Sample]) {
    for (counter, period) in [(0, 10007), (1, 1009)] {
        let samples = samples.iter().filter(|sample| sample.counter == counter);
        let counted: Vec<u64> = samples.map(|sample| sample.counted).collect();
        assert_eq!(
            counted.first(),
            Some(&period),
            "the first period of counter {counter}"
        );
        assert!(
            counted.windows(2).all(|pair| pair[1] - pair[0] == period),
            "counter {counter}: {counted:?}"
        );
    }
}

fn records_are_true(series: &str, cpus: u32, rings: &str, hardware_profile: &str) {
    let Some(machine) = support::machine(series) else {
        return;
    };
    let outcome = witnessed(machine.cpus(cpus).hardware_profile(hardware_profile), rings, LOAD);
    let counters = check_counters(&outcome);
    let n = check_samples(&outcome, cpus as usize, rings);
    assert_eq!(counters["delivered"], n as u64, "{counters:?}");
    println!(
        "{series}, {cpus} CPUs, {rings}: {n} samples, all true, in {:.0} s",
        outcome.took.as_secs_f64()
    );
    assert!(1000 < n, "only {n} samples");
}

#[test]
#[ignore = "runs in --all"]
fn records_of_both_rings_are_true_on_6_1() {
    records_are_true("6.1", 2, "both", "");
}

#[test]
fn records_of_both_rings_are_true_on_6_12() {
    records_are_true("6.12", 2, "both", INTEL);
}

#[test]
#[ignore = "runs in --all"]
fn records_of_user_code_are_true() {
    records_are_true("6.12", 1, "user", "");
}

#[test]
#[ignore = "runs in --all"]
fn records_of_the_kernel_are_true() {
    records_are_true("6.1", 1, "kernel", INTEL);
}
