//! Counters that another user of the PMU holds, as the NMI watchdog or perf does.

use serde_json::Value;

use crate::support;

const SCRIPT: &str = "set -e
storms counters 6 &
busybox sleep 1
hbbp-sys record --duration 1 -o /tmp/none || echo record ended with $?
hbbp-sys daemon --dir /tmp/none || echo daemon ended with $?
wait %1
hbbp-sys daemon --dir /tmp/segments --interval 2s --period 1000003 --branch-period 100003 --cpu-budget 100% &
daemon=$!
busybox sleep 8
storms counters 2
heapsort 100000 > /tmp/sorted
busybox sleep 2
kill $daemon
wait $daemon
echo report
hbbp-sys report --format json --top 1 /tmp/segments";

/// A measurement that finds no counter ends and says why; one that has its counters keeps them.
#[test]
#[ignore = "runs in --all"]
fn counters_of_others_are_named_and_own_ones_stay() {
    let Some(mut machine) = support::machine("6.12") else {
        return;
    };
    machine.files().hbbp_sys().unwrap();
    support::add_workload(&mut machine, "storms.c");
    support::add_workload(&mut machine, "heapsort.c");
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", SCRIPT]).unwrap();
    let (said, stdout) = (outcome.text("stderr").unwrap(), outcome.stdout().unwrap());
    let (before, report) = stdout
        .split_once("report\n")
        .unwrap_or_else(|| panic!("{stdout}\n{said}"));
    // All of them at first; with the daemon, all but its two.
    let lines: Vec<&str> = before.lines().collect();
    let expected = [
        "8 counters taken",
        "record ended with 1",
        "daemon ended with 1",
        "6 counters taken",
    ];
    assert_eq!(lines, expected, "{said}");
    let reason = "lost its counter on CPU 0 to another user of the PMU";
    assert_eq!(said.matches(reason).count(), 2, "{said}");
    let report: Value = serde_json::from_str(report).unwrap();
    for event in report["events"].as_array().unwrap() {
        // Periods vary, so that a few more may come than the mean period says.
        let number = |name: &str| event[name].as_u64().unwrap();
        assert!(
            100 < number("due") && number("due") <= number("runs"),
            "{event:#}"
        );
    }
    assert_eq!(report["accounting"]["unexplained"], 0, "{report:#}");
}
