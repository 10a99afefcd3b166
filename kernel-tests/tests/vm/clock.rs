//! The timer of cycles: samples of the event cpu-clock lie after the instructions that take the time, and none where
//! interrupts are off. perf(1) reads them, so that these are facts about the machine alone.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use kernel_tests::artifacts;
use kernel_tests::durations::Durations;
use kernel_tests::hardware_profile::HardwareProfile;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::{Machine, Marks};
use kernel_tests::outcome::Outcome;
use kernel_tests::reference::KERNEL;

use crate::support;

/// Cycles between two samples: a prime, so that it keeps step with no loop.
const PERIOD: u64 = 10_007;

/// Samples of the system's clock while a load runs.
struct Sampled {
    outcome: Outcome,
    /// Samples by address, in both rings.
    at: BTreeMap<u64, u64>,
}

fn sample(machine: Machine, load: &str) -> Sampled {
    let mut machine = machine.marks(Marks::Events).driver("clock=1");
    machine.files().program("/usr/bin/perf".as_ref()).unwrap();
    let command = format!(
        "perf record -q -a -e cpu-clock -c {PERIOD} -o /tmp/perf.data -- busybox sh -c '{load}' >&2 &&
         perf script -i /tmp/perf.data -F ip"
    );
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", &command]).unwrap();
    assert_eq!(outcome.counters().unwrap()["anomalies"], 0);
    let mut at = BTreeMap::new();
    for line in outcome.stdout().unwrap().lines() {
        let address = u64::from_str_radix(line.trim(), 16).unwrap();
        *at.entry(address).or_default() += 1;
    }
    Sampled { outcome, at }
}

impl Sampled {
    /// Of each address in a block, the cycles of the instruction before it: samples lie there once for each period of them.
    /// Addresses where blocks begin are left out, unless that was hardly ever, as an interrupt's return begins one too.
    fn cycles_before(&self) -> BTreeMap<u64, u64> {
        let reference = self.outcome.reference().unwrap();
        let mut durations = Durations::new(&HardwareProfile::default());
        let mut starts: BTreeMap<u64, u64> = BTreeMap::new();
        let mut passed: BTreeMap<u64, Passed> = BTreeMap::new();
        for block in &reference.blocks {
            *starts.entry(block.start).or_default() += block.executions;
            let end = block.start + block.bytes.len() as u64;
            for instruction in Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE) {
                if instruction.next_ip() < end {
                    let passed = passed.entry(instruction.next_ip()).or_default();
                    passed.executions += block.executions;
                    passed.cycles += u64::from(durations.of(&instruction)) * block.executions;
                }
            }
        }
        passed.retain(|address, passed| 1000 * starts.get(address).unwrap_or(&0) < passed.executions);
        passed
            .into_iter()
            .map(|(address, passed)| (address, passed.cycles))
            .collect()
    }
}

/// What went on within blocks to an address.
#[derive(Default)]
struct Passed {
    executions: u64,
    /// Of the instruction before the address.
    cycles: u64,
}

#[test]
fn clock_samples_lie_after_the_instruction_that_waits() {
    let Some(mut machine) = support::machine("6.12") else {
        return;
    };
    support::add_workload(&mut machine, "kernels.c");
    let sampled = sample(machine, "kernels divide 1000000");
    let cycles = sampled.cycles_before();
    let mut hottest: Vec<(&u64, &u64)> = cycles
        .iter()
        .filter(|(address, _)| **address >> 63 == 0)
        .collect();
    hottest.sort_by_key(|(_, cycles)| std::cmp::Reverse(**cycles));
    let loop_of_divisions = &hottest[..3];
    for (address, cycles) in loop_of_divisions {
        let samples = sampled.at.get(address).copied().unwrap_or_default();
        let due = **cycles as f64 / PERIOD as f64;
        println!("{address:#x}: {samples} samples, {due:.1} periods of cycles before it");
        // A sample at the borders of the program, and one that an interrupt of the kernel took elsewhere.
        assert!((samples as f64 - due).abs() < 0.02 * due + 2.0, "{samples} {due}");
    }
    let (_, most) = loop_of_divisions[0];
    assert!(
        1_000 * PERIOD < *most,
        "{most} cycles before the address after the division"
    );
}

#[test]
fn clock_has_no_samples_while_interrupts_are_off() {
    let Some(mut machine) = support::machine("6.12") else {
        return;
    };
    let kernel = Kernel::get("6.12").unwrap();
    machine
        .module(&artifacts::module("workloads/holds", "holds", &kernel).unwrap())
        .unwrap();
    let sampled = sample(machine, "busybox dd if=/dev/holds of=/dev/null bs=8 count=1");
    // The loop of divisions, which CLI and STI enclose.
    let reference = sampled.outcome.reference().unwrap();
    let is_division = |code: &[u8]| {
        Decoder::new(64, code, DecoderOptions::NONE)
            .iter()
            .any(|instruction| instruction.mnemonic() == Mnemonic::Div)
    };
    let divisions = reference
        .blocks
        .iter()
        .filter(|block| block.owner == KERNEL && is_division(&block.bytes))
        .max_by_key(|block| block.executions)
        .unwrap();
    let rounds = 1_000;
    let end = divisions.start + divisions.bytes.len() as u64;
    println!(
        "divisions at {:#x} to {end:#x}, {} times",
        divisions.start, divisions.executions
    );
    assert!(990 * rounds <= divisions.executions);
    let of_function = sampled.at.range(divisions.start - 0x40..end + 0x80);
    for (address, samples) in of_function.clone() {
        println!("{address:#x}: {samples} samples");
    }
    let within: u64 = sampled
        .at
        .range(divisions.start..end)
        .map(|(_, samples)| samples)
        .sum();
    assert_eq!(within, 0, "interrupts are off there");
    // Each round takes longer than a period with interrupts off: one interrupt waits for their end.
    let waited = of_function.map(|(_, samples)| *samples).max().unwrap();
    assert!(rounds <= waited && waited <= rounds + rounds / 50, "{waited}");
}
