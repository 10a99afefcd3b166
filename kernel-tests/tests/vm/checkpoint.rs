//! A run from a checkpoint executes what it executes after a boot, to the instruction: so no figure depends on which
//! of the two a run was.

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

#[test]
fn run_from_a_checkpoint_executes_what_a_boot_does() {
    for series in support::SERIES {
        let (Some(warm), Some(cold)) = (support::machine(series), support::machine(series)) else {
            continue;
        };
        let (warm, cold) = (executed(warm), executed(cold.cold()));
        assert_eq!(warm.instructions, cold.instructions, "{series}");
        // Where the emulator cuts blocks hangs on the host, so blocks are not compared.
        let by_process = |of: &Reference| -> Vec<u64> {
            let owners = of.processes.keys();
            owners.map(|owner| of.instructions_of(*owner)).collect()
        };
        assert_eq!(by_process(&warm), by_process(&cold), "{series}");
    }
}
