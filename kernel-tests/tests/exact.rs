//! The reference is exact: code that was counted by hand, in the guest, to the instruction.

use kernel_tests::kernel::Kernel;
use kernel_tests::machine::{Machine, Marks};
use kernel_tests::artifacts;

fn counted(case: &str, cpus: u32) {
    let kernel = Kernel::get("6.1").unwrap();
    let mut machine = Machine::new(&kernel).cpus(cpus).marks(Marks::Program);
    let program = artifacts::workload("counted.c").unwrap();
    machine.files().copy("bin/counted", &program).unwrap();
    let outcome = machine.run(&["/bin/counted", case]).unwrap();
    let expected: u64 = outcome.stdout().unwrap().trim().parse().unwrap();
    let reference = outcome.reference().unwrap();
    let tgid = reference.tgids("counted");
    println!("{} {:?} {:?}\n{}", outcome.took.as_secs_f32(), reference.processes, reference.instructions, outcome.text("counters").unwrap());
    let total: u64 = tgid.iter().map(|t| reference.instructions_of(*t)).sum();
    for b in reference.of(tgid[0]).take(20) { println!("{b:x?}"); }
    assert_eq!(total, expected, "{case}");
}

#[test]
fn all() {
    for case in ["loop", "repeat", "repeat-nothing", "repeat-faulting", "faults", "modified", "crossing", "interrupted"] {
        counted(case, 1);
    }
}
