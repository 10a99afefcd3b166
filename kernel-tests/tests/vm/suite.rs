//! The suite is whole: every workload runs, its files are the same in every checkout, and kernels that are missing say so.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Marks;
use kernel_tests::workload::{self, Source, Workload};
use kernel_tests::{artifacts, host};

use crate::skip::skip;
use crate::support;

/// Runs these workloads one after the other on one machine.
fn workloads_run<'a>(series: &str, workloads: impl Iterator<Item = &'a Workload>) {
    let Some(mut machine) = support::machine(series) else {
        return;
    };
    let kernel = Kernel::get(series).unwrap();
    let mut script = String::from("set -e\n");
    for workload in workloads {
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
#[ignore = "runs in --all"]
fn our_workloads_run() {
    // It loads hello.ko itself, which the other ones have loaded already.
    let own = |it: &&Workload| matches!(it.source, Source::Own(_)) && it.name != "modules";
    workloads_run("6.1", workload::ALL.iter().filter(own));
}

#[test]
fn modules_come_and_go() {
    workloads_run("6.12", workload::ALL.iter().filter(|it| it.name == "modules"));
}

#[test]
#[ignore = "runs in --all"]
fn programs_of_the_distribution_run() {
    let of_host = |it: &&Workload| matches!(it.source, Source::Host(_));
    workloads_run("6.12", workload::ALL.iter().filter(of_host));
}

#[test]
#[ignore = "runs in --all"]
fn held_out_programs_run() {
    workloads_run("6.12", workload::HELD_OUT.iter());
}

/// With the clock of instructions, a run repeats itself only where the guest's files are the same. They are not where one holds the path of
/// the checkout, or the hashes that LLVM makes of it.
#[test]
fn files_of_the_guest_do_not_name_their_checkout() {
    if support::machine("6.12").is_none() {
        return;
    }
    let kernel = Kernel::get("6.12").unwrap();
    let files = [
        artifacts::hbbp_sys(),
        artifacts::kernel_functions(),
        artifacts::guest_program("guest-init"),
        artifacts::module("driver", "hbbp_emu", &kernel),
        artifacts::module("workloads/nested", "nested", &kernel),
        artifacts::workload("heapsort.c"),
        artifacts::workload("virtual.cc"),
    ];
    let checkout = host::workspace();
    let checkout = checkout.as_os_str().as_bytes();
    for file in files.map(Result::unwrap) {
        let bytes = fs::read(&file).unwrap();
        let mut parts = bytes.windows(checkout.len());
        assert!(!parts.any(|part| part == checkout), "{}", file.display());
        let is_hash = |part: &[u8]| part.starts_with(b".llvm.") && part[6..].iter().all(u8::is_ascii_digit);
        assert!(!bytes.windows(16).any(is_hash), "{}", file.display());
    }
}

/// A series of the future: without such a kernel, the reason is the harness' to print.
#[test]
fn missing_kernel_is_named() {
    let error = format!("{:#}", Kernel::get("99.9").unwrap_err());
    assert!(error.contains("99.9"), "{error}");
}

/// The newest kernels, where the distribution has one.
#[test]
#[ignore = "runs in --all"]
fn current_kernel_boots_where_there_is_one() {
    let kernel = match Kernel::get("7") {
        Ok(kernel) => kernel,
        Err(error) => return skip(&format!("{error:#}")),
    };
    let mut machine = kernel_tests::machine::Machine::new(&kernel).randomized();
    machine
        .files()
        .copy("bin/busybox", "/bin/busybox".as_ref())
        .unwrap();
    let outcome = machine.run(&["/bin/busybox", "uname", "-r"]).unwrap();
    assert_eq!(outcome.stdout().unwrap().trim(), kernel.release);
}
