//! A guest that cannot end well is ended, and its log is shown. A guest that hangs ends at a limit of time, which the tests of
//! the watchdog itself reach (`hang_ends_at_the_limit`): here it would depend on how long the host takes to boot.

use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Clock;

use crate::support;

/// Runs a shell command that must not give a verdict, and returns the error.
fn refused(script: &str) -> Option<String> {
    // By its instructions, a CPU that spins on the time takes minutes for seconds.
    let mut machine = support::machine("6.12")?.clock(Clock::Host);
    let hello = artifacts::module("workloads/hello", "hello", &Kernel::get("6.12").unwrap()).unwrap();
    machine.files().copy("opt/hello.ko", &hello).unwrap();
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", script]);
    let error = outcome.err().map(|error| format!("{error:#}"));
    Some(error.unwrap_or_else(|| panic!("'{script}' gave a verdict")))
}

#[test]
fn panic_ends_the_run() {
    let Some(error) = refused("echo c > /proc/sysrq-trigger") else {
        return;
    };
    assert!(
        error.contains("the guest's kernel") && error.contains("sysrq"),
        "{error}"
    );
}

#[test]
#[ignore = "runs in --all"]
fn stalled_cpu_ends_the_run() {
    // A soft lockup is reported after twice this threshold.
    let script =
        "echo 2 > /proc/sys/kernel/watchdog_thresh; busybox insmod /opt/hello.ko spin_seconds=100000";
    let Some(error) = refused(script) else {
        return;
    };
    assert!(error.contains("stuck") || error.contains("stalled"), "{error}");
}

#[test]
#[ignore = "runs in --all"]
fn guest_that_powers_off_gave_no_verdict() {
    let Some(error) = refused("echo leaving > /dev/console; busybox poweroff -f") else {
        return;
    };
    assert!(
        error.contains("without a verdict") && error.contains("leaving"),
        "{error}"
    );
}
