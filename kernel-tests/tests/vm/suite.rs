//! The suite is whole and fast enough: every workload runs, kernels that are missing say so, and a run
//! keeps to its time.

use std::time::{Duration, Instant};

use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Marks;
use kernel_tests::workload::{self, Source, Workload};

use crate::support;

/// Boot, driver, ten seconds of guest work and the reference file, on two CPUs.
#[test]
fn ten_seconds_of_guest_work_take_under_ninety() {
    let Some(machine) = support::machine("6.12") else {
        return;
    };
    // Both CPUs work for ten seconds of guest time.
    let script = "busybox timeout 10 busybox sh -c 'while true; do x=$((x+1)); done' &
        busybox timeout 10 busybox md5sum /dev/zero; wait; true";
    let began = Instant::now();
    let outcome = machine
        .cpus(2)
        .run(&["/bin/busybox", "sh", "-c", script])
        .unwrap();
    outcome.stdout().unwrap();
    let took = began.elapsed();
    let [user, kernel] = outcome.reference().unwrap().instructions;
    println!("10 s of guest work in {took:.1?}: {user} instructions of user code, {kernel} of the kernel");
    assert!(took < Duration::from_secs(90), "{took:?}");
}

/// Runs these workloads one after the other on one machine.
fn workloads_run(series: &str, wanted: impl Fn(&Workload) -> bool) {
    let Some(mut machine) = support::machine(series) else {
        return;
    };
    let kernel = Kernel::get(series).unwrap();
    let mut script = String::from("set -e\n");
    for workload in workload::ALL.iter().filter(|workload| wanted(workload)) {
        workload.install(&mut machine, &kernel).unwrap();
        let [.., command] = workload.words();
        script += &format!("echo workload {} >&2\n{command}\n", workload.name);
    }
    let outcome = machine
        .marks(Marks::Command)
        .run(&["/bin/busybox", "sh", "-c", &script])
        .unwrap();
    outcome.stdout().unwrap();
    let [user, kernel] = outcome.reference().unwrap().instructions;
    println!(
        "{user} instructions of user code, {kernel} of the kernel, in {:.1?}",
        outcome.took
    );
    assert_eq!(outcome.counters().unwrap()["anomalies"], 0);
}

#[test]
fn our_workloads_run() {
    // It loads hello.ko itself, which the other ones have loaded already.
    workloads_run("6.1", |it| {
        matches!(it.source, Source::Own(_)) && it.name != "modules"
    });
}

#[test]
fn modules_come_and_go() {
    workloads_run("6.12", |workload| workload.name == "modules");
}

#[test]
fn programs_of_the_distribution_run() {
    workloads_run("6.12", |workload| matches!(workload.source, Source::Host(_)));
}

/// A series of the future: where there is no such kernel, the reason is the harness' to print.
#[test]
fn missing_kernel_is_named() {
    let error = format!("{:#}", Kernel::get("99.9").unwrap_err());
    assert!(error.contains("99.9"), "{error}");
}

/// The newest kernels, where the distribution has one.
#[test]
fn current_kernel_boots_where_there_is_one() {
    let kernel = match Kernel::get("7") {
        Ok(kernel) => kernel,
        Err(error) => return println!("skipped: {error:#}"),
    };
    let mut machine = kernel_tests::machine::Machine::new(&kernel);
    machine
        .files()
        .copy("bin/busybox", "/bin/busybox".as_ref())
        .unwrap();
    let outcome = machine.run(&["/bin/busybox", "uname", "-r"]).unwrap();
    assert_eq!(outcome.stdout().unwrap().trim(), kernel.release);
}
