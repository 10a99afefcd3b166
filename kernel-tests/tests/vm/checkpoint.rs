//! A run from a checkpoint executes what it executes after a boot, to the instruction: so no figure depends on which
//! of the two a run was.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::machine::Machine;
use kernel_tests::reference::Reference;

use crate::support;

/// Forks, pipes, files and timer interrupts, in both rings.
const SCRIPT: &str = "for i in $(busybox seq 50); do busybox cat /proc/self/maps; done | busybox md5sum";

fn executed(machine: Machine) -> Reference {
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", SCRIPT]).unwrap();
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

#[test]
fn run_from_a_checkpoint_executes_what_a_boot_does() {
    for series in support::SERIES {
        let (Some(warm), Some(cold)) = (support::machine(series), support::machine(series)) else {
            continue;
        };
        let (warm, cold) = (executed(warm), executed(cold.cold()));
        assert_eq!(warm.instructions, cold.instructions, "{series}");
        let (warm, cold) = (executions(&warm), executions(&cold));
        let differing: Vec<_> = (warm.keys().chain(cold.keys()))
            .filter(|key| warm.get(key) != cold.get(key))
            .map(|key| (key, warm.get(key), cold.get(key)))
            .collect();
        assert!(
            differing.is_empty(),
            "{series}: {} addresses differ, as {:x?}",
            differing.len(),
            differing.get(..differing.len().min(10))
        );
    }
}
