//! The reference is exact: user code that was counted by hand, to the instruction, and a busy kernel whose
//! blocks add up to its counters.

use kernel_tests::machine::Marks;
use kernel_tests::reference::KERNEL;

use crate::support;

/// Loops, REP with a count and without, faults in plain and in REP instructions, self-modifying code, code across a
/// page end. One loop is long enough to be interrupted hundreds of times.
fn counted_by_hand(series: &str, cpus: u32) {
    let Some(machine) = support::machine(series) else {
        return;
    };
    let mut machine = machine.cpus(cpus).marks(Marks::Program);
    support::add_workload(&mut machine, "counted.c");
    let outcome = machine.run(&["/bin/counted"]).unwrap();
    let cases = outcome.stdout().unwrap();
    assert_eq!(cases.lines().count(), 8);
    for (n, case) in cases.lines().enumerate() {
        let (name, expected) = case.split_once(' ').unwrap();
        let reference = outcome.reference_of(n as u32).unwrap();
        let tgids = reference.tgids("counted");
        assert_eq!(tgids.len(), 1, "{name}: {:?}", reference.processes);
        assert_eq!(
            reference.instructions_of(tgids[0]).to_string(),
            expected,
            "{name}"
        );
    }
    assert_eq!(outcome.counters().unwrap()["anomalies"], 0);
}

#[test]
#[ignore = "runs in --all"]
fn hand_counted_code_on_6_1_with_one_cpu() {
    counted_by_hand("6.1", 1);
}

#[test]
fn hand_counted_code_on_6_12_with_two_cpus() {
    counted_by_hand("6.12", 2);
}

/// Fork, exec, exit and file system work: every instruction of both rings is in some block, on every CPU.
#[test]
#[ignore = "runs in --all"]
fn blocks_add_up_to_the_instructions_retired() {
    for series in support::SERIES {
        let Some(machine) = support::machine(series) else {
            continue;
        };
        let script = "for i in $(busybox seq 50); do busybox cat /proc/self/maps | busybox md5sum; done";
        let outcome = machine
            .cpus(2)
            .run(&["/bin/busybox", "sh", "-c", script])
            .unwrap();
        outcome.stdout().unwrap();
        let reference = outcome.reference().unwrap();
        let kernel = reference.instructions_of(KERNEL);
        let all: u64 = reference
            .blocks
            .iter()
            .map(|b| u64::from(b.n_instructions) * b.executions)
            .sum();
        assert_eq!([all - kernel, kernel], reference.instructions, "{series}");
        assert!(
            10_000_000 < kernel,
            "{series}: the kernel ran only {kernel} instructions"
        );
        assert_eq!(outcome.counters().unwrap()["anomalies"], 0);
    }
}

/// With `-icount`, guest time is a function of the instructions: two runs are one.
#[test]
#[ignore = "runs in --all"]
fn two_runs_with_icount_agree() {
    let runs = [0, 1].map(|_| {
        let machine = support::machine("6.12")?;
        let script = "for i in $(busybox seq 100); do busybox cat /proc/self/maps; done | busybox md5sum";
        let machine = machine.clock(kernel_tests::machine::Clock::Instructions);
        let outcome = machine.run(&["/bin/busybox", "sh", "-c", script]).unwrap();
        outcome.stdout().unwrap();
        assert_eq!(outcome.counters().unwrap()["anomalies"], 0);
        Some(outcome.reference().unwrap().instructions)
    });
    let [Some(first), Some(second)] = runs else { return };
    println!("with -icount: {first:?} and {second:?} instructions in user code and kernel");
    for ring in 0..2 {
        let difference = first[ring].abs_diff(second[ring]) as f64 / first[ring] as f64;
        assert!(
            difference < 0.001,
            "ring {ring}: {} and {} differ by {difference}",
            first[ring],
            second[ring]
        );
    }
}
