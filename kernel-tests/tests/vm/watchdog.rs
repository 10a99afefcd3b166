//! A guest that cannot end well is ended in time, and its log is shown.

use std::time::{Duration, Instant};

use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;

use crate::support;

/// Runs a shell command that must not give a verdict, and returns the error.
fn refused(script: &str, limit: Duration) -> Option<String> {
    let mut machine = support::machine("6.12")?;
    let hello = artifacts::module("workloads/hello", "hello", &Kernel::get("6.12").unwrap()).unwrap();
    machine.files().copy("opt/hello.ko", &hello).unwrap();
    let began = Instant::now();
    let outcome = machine.limit(limit).run(&["/bin/busybox", "sh", "-c", script]);
    // Building and writing the files is not in the limit; half a minute is more than they take.
    assert!(
        began.elapsed() < limit + Duration::from_secs(40),
        "{:?}",
        began.elapsed()
    );
    let error = outcome.err().map(|error| format!("{error:#}"));
    Some(error.unwrap_or_else(|| panic!("'{script}' gave a verdict")))
}

#[test]
fn panic_ends_the_run() {
    let Some(error) = refused("echo c > /proc/sysrq-trigger", Duration::from_secs(120)) else {
        return;
    };
    assert!(
        error.contains("the guest's kernel") && error.contains("sysrq"),
        "{error}"
    );
}

#[test]
fn stalled_cpu_ends_the_run() {
    // A soft lockup is reported after twice this threshold.
    let script =
        "echo 2 > /proc/sys/kernel/watchdog_thresh; busybox insmod /opt/hello.ko spin_seconds=100000";
    let Some(error) = refused(script, Duration::from_secs(120)) else {
        return;
    };
    assert!(error.contains("stuck") || error.contains("stalled"), "{error}");
}

#[test]
fn hung_guest_ends_at_its_limit() {
    let Some(error) = refused(
        "echo waiting > /dev/console; busybox sleep 10000",
        Duration::from_secs(40),
    ) else {
        return;
    };
    assert!(
        error.contains("no verdict within 40 s") && error.contains("waiting"),
        "{error}"
    );
}

#[test]
fn guest_that_powers_off_gave_no_verdict() {
    let Some(error) = refused(
        "echo leaving > /dev/console; busybox poweroff -f",
        Duration::from_secs(120),
    ) else {
        return;
    };
    assert!(
        error.contains("without a verdict") && error.contains("leaving"),
        "{error}"
    );
}
