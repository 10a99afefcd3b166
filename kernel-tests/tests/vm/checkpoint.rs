//! Runs from a checkpoint are equal to the instruction. After a boot of its own that stops there as well, a run executes the
//! same user code, to the instruction.
//! A boot that does not stop cannot be compared: the stop moves the guest's clock by some instructions.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::machine::Machine;
use kernel_tests::reference::Reference;

use crate::support;

/// System calls and timer interrupts beside user code that does not hang on when it runs, as that of shells and pipes does.
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
fn differences(
    one: &BTreeMap<(u32, u64), u64>,
    other: &BTreeMap<(u32, u64), u64>,
    is_compared: impl Fn(u32) -> bool,
) -> Vec<String> {
    let keys = one.keys().chain(other.keys());
    let differing = keys.filter(|key| is_compared(key.0) && one.get(key) != other.get(key));
    differing
        .map(|key| format!("{} {:x}: {:?} {:?}", key.0, key.1, one.get(key), other.get(key)))
        .collect()
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
            let [all, again, booted] = [&one, &two, &cold].map(executions);
            let found = differences(&all, &again, |_| true);
            assert!(found.is_empty(), "{series} {boot}: {found:?}");
            let found = differences(&all, &booted, |owner| owner != KERNEL && owner != FIRST);
            assert!(found.is_empty(), "{series} {boot}: {found:?}");
            let [of_one, of_cold] = [&one, &cold].map(|run| run.instructions_of(KERNEL));
            assert!(
                of_one.abs_diff(of_cold) <= ONE_TICK,
                "{series} {boot}: {of_one} {of_cold}"
            );
        }
    }
}
