//! Runs from a checkpoint are equal to the instruction. A boot of its own that stops there as well has the same counts
//! as far as a boot can: one may sleep a tick more, and then other random numbers, which interrupts feed, move stacks
//! elsewhere. A boot that does not stop cannot be compared: the stop moves the guest's clock by some instructions.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::machine::Machine;
use kernel_tests::reference::Reference;

use crate::support;

/// System calls and timer interrupts, with user code that depends little on the moment at which it runs, other than
/// that of shells and pipes.
const COMMAND: [&str; 3] = ["/bin/busybox", "md5sum", "/bin/busybox"];

fn executed(machine: Machine) -> Reference {
    let outcome = machine.run(&COMMAND).unwrap();
    outcome.stdout().unwrap();
    assert_eq!(outcome.counters().unwrap()["anomalies"], 0);
    outcome.reference().unwrap()
}

/// Executions by process and address. Where the emulator cut blocks hangs on the host, so blocks are not compared.
fn executions(of: &Reference) -> BTreeMap<(u32, u64), u64> {
    let mut executions = BTreeMap::new();
    for block in &of.blocks {
        let decoder = Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE);
        for instruction in decoder {
            *executions.entry((block.owner, instruction.ip())).or_default() += block.executions;
        }
    }
    executions
}

/// The owner of the kernel's blocks, and the process that starts all others and polls for their ends.
const KERNEL: u32 = u32::MAX;
const FIRST: u32 = 1;

/// A boot of its own may sleep one tick more or less than its checkpoint, in instructions of the kernel. Boots of one build all
/// do or none does; why is not known.
const ONE_TICK: u64 = 60_000;

/// Parameters that the kernel does not know: each makes a boot of its own, with other times of interrupts.
const BOOTS: [&str; 2] = ["phase=a", "phase=another"];

/// What differs, for a message.
fn differences(one: &BTreeMap<(u32, u64), u64>, other: &BTreeMap<(u32, u64), u64>) -> Vec<String> {
    let keys = one.keys().chain(other.keys());
    let differing = keys.filter(|key| one.get(key) != other.get(key));
    differing
        .map(|key| format!("{} {:x}: {:?} {:?}", key.0, key.1, one.get(key), other.get(key)))
        .collect()
}

/// Instructions of user code, but for the process that starts all others.
fn of_programs(of: &Reference) -> u64 {
    let owners: BTreeSet<u32> = of.blocks.iter().map(|block| block.owner).collect();
    let programs = owners
        .into_iter()
        .filter(|owner| *owner != KERNEL && *owner != FIRST);
    programs.map(|owner| of.instructions_of(owner)).sum()
}

#[test]
fn run_from_a_checkpoint_executes_what_a_boot_does() {
    for series in support::SERIES {
        for boot in BOOTS {
            let machine = || support::machine(series).map(|machine| machine.kernel_parameters(boot));
            let (Some(one), Some(two), Some(cold)) = (machine(), machine(), machine()) else {
                continue;
            };
            let [one, two, cold] = [executed(one), executed(two), executed(cold.cold())];
            let [all, again] = [&one, &two].map(executions);
            let found = differences(&all, &again);
            assert!(found.is_empty(), "{series} {boot}: {found:?}");
            let [of_one, of_cold] = [&one, &cold].map(|run| run.instructions_of(KERNEL));
            assert!(
                of_one.abs_diff(of_cold) <= ONE_TICK,
                "{series} {boot}: {of_one} {of_cold}"
            );
            let [of_one, of_cold] = [&one, &cold].map(of_programs);
            assert!(
                of_one.abs_diff(of_cold) <= of_cold / 1000,
                "{series} {boot}: {of_one} {of_cold}"
            );
            println!("{series} {boot}: user code {of_one} {of_cold}");
        }
    }
}
