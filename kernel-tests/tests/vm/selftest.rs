//! The self-test where every execution is counted: a sound machine passes, with and without the faults of a processor that are
//! corrected, and planted defects are found.

use kernel_tests::machine::{Clock, Marks};

use crate::support;

/// What the self-test of a machine with this hardware profile prints, and its exit code. At a hundredth of the usual periods it
/// has the samples of a run that is a hundred times as long.
fn tested(hardware_profile: &str) -> Option<(String, i32)> {
    let machine = support::machine("6.12")?;
    let mut machine = machine
        .clock(Clock::Instructions)
        .marks(Marks::Events)
        .hardware_profile(hardware_profile);
    machine.files().hbbp_sys().unwrap();
    let command = "/bin/hbbp-sys selftest --duration 300ms --period 10007 --branch-period 1009; echo code $?";
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", command]).unwrap();
    let printed = outcome.stdout().unwrap();
    println!("{printed}{}", outcome.text("stderr").unwrap_or_default());
    let (printed, code) = printed.trim_end().rsplit_once("code ").unwrap();
    Some((printed.to_owned(), code.parse().unwrap()))
}

#[test]
fn sound_machine_passes() {
    let Some((printed, code)) = tested(&support::hardware_profile("ideal")) else {
        return;
    };
    assert!(code == 0 && printed.contains("\nPASS: executions"), "{printed}");
}

/// Sixteen entries, skid and branches that stick to the oldest entry.
#[test]
fn faults_that_are_corrected_pass() {
    let Some((printed, code)) = tested(&support::hardware_profile("ivb")) else {
        return;
    };
    assert!(code == 0 && printed.contains("\nPASS: executions"), "{printed}");
}

#[test]
fn lost_tenth_of_the_samples_is_found() {
    let Some((printed, code)) = tested("fault.drop_percent = 10") else {
        return;
    };
    let is_named = |line: &str| line.starts_with("OFF: ") && line.contains("of the expected samples");
    assert!(code == 1 && printed.lines().any(is_named), "{printed}");
}
