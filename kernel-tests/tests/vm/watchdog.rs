//! A guest that cannot end well is ended at its limit at the latest, and its log is shown.

use std::time::Duration;

use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Clock;

use crate::support;

/// A limit that is never reached, however busy the host is.
const LONG: Duration = Duration::from_secs(1800);

/// Runs a shell command that must not give a verdict, and returns the error.
fn refused(script: &str, limit: Duration) -> Option<String> {
    let mut machine = support::machine("6.12")?;
    let hello = artifacts::module("workloads/hello", "hello", &Kernel::get("6.12").unwrap()).unwrap();
    machine.files().copy("opt/hello.ko", &hello).unwrap();
    // By its own clock a guest that sleeps would be done at once.
    let machine = machine.clock(Clock::Host).limit(limit);
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", script]);
    let error = outcome.err().map(|error| format!("{error:#}"));
    Some(error.unwrap_or_else(|| panic!("'{script}' gave a verdict")))
}

#[test]
fn a_panic_ends_the_run() {
    let Some(error) = refused("echo c > /proc/sysrq-trigger", LONG) else {
        return;
    };
    assert!(
        error.contains("the guest's kernel") && error.contains("sysrq"),
        "{error}"
    );
}

#[test]
fn a_stalled_cpu_ends_the_run() {
    // A soft lockup is told after twice this threshold.
    let script =
        "echo 2 > /proc/sys/kernel/watchdog_thresh; busybox insmod /opt/hello.ko spin_seconds=100000";
    let Some(error) = refused(script, LONG) else {
        return;
    };
    assert!(error.contains("stuck") || error.contains("stalled"), "{error}");
}

#[test]
fn a_hung_guest_ends_at_its_limit() {
    let Some(error) = refused("busybox sleep 10000", Duration::from_secs(40)) else {
        return;
    };
    // How far it came until then is up to the host.
    assert!(
        error.contains("no verdict within 40 s") && error.contains("the end of its log"),
        "{error}"
    );
}

#[test]
fn a_guest_that_powers_off_gave_no_verdict() {
    let Some(error) = refused("echo leaving > /dev/console; busybox poweroff -f", LONG) else {
        return;
    };
    assert!(
        error.contains("without a verdict") && error.contains("leaving"),
        "{error}"
    );
}
