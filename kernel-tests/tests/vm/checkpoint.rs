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
        assert_eq!(warm.blocks.len(), cold.blocks.len(), "{series}");
        let executions = |of: &Reference| -> Vec<_> {
            let mut counts: Vec<_> = of
                .blocks
                .iter()
                .map(|it| (it.n_instructions, it.executions))
                .collect();
            counts.sort_unstable();
            counts
        };
        assert!(
            executions(&warm) == executions(&cold),
            "{series}: counts of blocks differ"
        );
    }
}
