//! Live kernel text against its static image: each differing byte has a cause.

use kernel_tests::kernel::Kernel;
use serde_json::Value;

use crate::support;

/// Switches what a running kernel patches: a tracepoint, two static keys, the function tracer, and a probe past the
/// ftrace site at the start of the function (5 bytes, after ENDBR if there is one). Then compares twice, the
/// second time with the file that the first wrote. At last records with a static image while symbols are hidden.
const SCRIPT: &str = "set -e
T=/sys/kernel/tracing
echo 1 > /proc/sys/kernel/bpf_stats_enabled
echo 0 > /proc/sys/kernel/timer_migration
echo 1 > $T/events/sched/sched_switch/enable
echo vfs_write > $T/set_ftrace_filter
echo function > $T/current_tracer
(echo 'p:probe_a vfs_read+5' > $T/kprobe_events) 2>/dev/null || echo 'p:probe_a vfs_read+9' > $T/kprobe_events
echo 1 > $T/events/kprobes/probe_a/enable
hbbp-sys kernel-text --format json --write /tmp/patched > /out/difference
hbbp-sys kernel-text --format json --vmlinux /tmp/patched > /out/patched
hbbp-sys kernel-text > /out/text
busybox cp /proc/kallsyms /out/kallsyms
echo 2 > /proc/sys/kernel/kptr_restrict
if hbbp-sys record --vmlinux /bin/busybox --duration 1 -o /tmp/other; then exit 1; fi
hbbp-sys record --vmlinux /tmp/patched --duration 1 -o /tmp/profile
hbbp-sys report /tmp/profile --format json > /out/hidden";

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn cause<'a>(difference: &'a Value, name: &str) -> &'a Value {
    let causes = difference["causes"].as_array().unwrap();
    causes.iter().find(|cause| cause["cause"] == name).unwrap()
}

fn every_byte_has_a_cause(series: &str) {
    let Some(machine) = support::machine(series) else {
        return;
    };
    let kernel = Kernel::get(series).unwrap();
    let mut machine = machine.cpus(2).randomized().without_driver();
    machine.files().hbbp_sys().unwrap();
    let image = format!("boot/vmlinuz-{}", kernel.release);
    machine.files().copy(&image, &kernel.image).unwrap();
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", SCRIPT]).unwrap();
    outcome.stdout().unwrap();
    println!(
        "{series}, {:.0} s:\n{}",
        outcome.took.as_secs_f64(),
        outcome.text("text").unwrap()
    );
    let [difference, patched, hidden] = ["difference", "patched", "hidden"]
        .map(|name| -> Value { serde_json::from_str(&outcome.text(name).unwrap()).unwrap() });

    let bytes = |name: &str| count(&difference[name]);
    assert_eq!(bytes("unreadable_bytes"), 0);
    assert_eq!(
        bytes("text_bytes"),
        bytes("same_bytes") + bytes("relocated_bytes") + bytes("differing_bytes")
    );
    let causes = difference["causes"].as_array().unwrap();
    let sum: u64 = causes.iter().map(|cause| count(&cause["bytes"])).sum();
    assert_eq!(sum, bytes("differing_bytes"));
    let unknown = count(&cause(&difference, "unknown")["bytes"]);
    println!(
        "{series}: {unknown} of {sum} bytes that differ have no cause, of {} bytes of .text",
        bytes("text_bytes")
    );
    // A thousandth of the bytes that differ, not of all text.
    assert!(
        (unknown as f64) < 0.001 * sum as f64,
        "{:#}",
        difference["unknown"]
    );
    assert_ne!(
        bytes("moved_by"),
        0,
        "the kernel was moved, so that relocations are seen"
    );
    for name in [
        "alternatives",
        "ftrace",
        "static-keys",
        "static-calls",
        "kprobes",
        "paravirt",
    ] {
        assert!(
            0 < count(&cause(&difference, name)["patched_sites"]),
            "{name}: {difference:#}"
        );
    }
    // What was written is the text that runs, but for what the kernel patched in between.
    assert!(count(&patched["differing_bytes"]) < 64, "{patched:#}");
    assert_eq!(count(&patched["relocated_bytes"]), 0);
    // Live text goes before the image, whose load address is that of kcore where symbols are hidden.
    assert_eq!(hidden["run"]["kernel_text"]["source"], "kcore");
}

#[test]
#[ignore = "runs in --all"]
fn differing_text_bytes_have_a_cause_on_6_1() {
    every_byte_has_a_cause("6.1");
}

#[test]
#[ignore = "runs in --all"]
fn differing_text_bytes_have_a_cause_on_6_12() {
    every_byte_has_a_cause("6.12");
}
