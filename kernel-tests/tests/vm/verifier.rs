//! The cost of the programs for the kernel's verifier: at most a tenth above `results/verifier.txt`.
//!
//! The number of walked instructions bounds the size of a program, and jumps when the verifier walks a loop more than
//! once. It depends on the program and the kernel only, so it is equal in every run.

use std::collections::BTreeMap;
use std::fs;

use kernel_tests::artifacts;

use crate::support;

/// `bpf_prog_type` of programs on perf events (include/uapi/linux/bpf.h).
const PERF_EVENT: u64 = 7;

/// Instructions walked, by program: of the two on perf events, that on branch stacks is the larger. A program may have
/// several descriptors.
fn walked(fdinfo: &str) -> BTreeMap<&'static str, u64> {
    let (mut kind, mut id, mut all) = (0, 0, BTreeMap::new());
    for line in fdinfo.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let number = || value.trim().parse::<u64>().unwrap();
        match key {
            "prog_type" => kind = number(),
            "prog_id" => id = number(),
            "verified_insns" => {
                all.insert(id, (kind, number()));
            }
            _ => {}
        }
    }
    let on_events = all.into_values().filter(|(kind, _)| *kind == PERF_EVENT);
    let mut on_events: Vec<u64> = on_events.map(|(_, walked)| walked).collect();
    on_events.sort_unstable();
    let [on_ip, on_branch] = on_events[..] else {
        panic!("{on_events:?} are not two programs:\n{fdinfo}");
    };
    BTreeMap::from([("on_ip", on_ip), ("on_branch", on_branch)])
}

/// Records and shows the descriptors of the recorder, without messages of the programs and with them. Descriptors of files
/// come and go meanwhile; those of the programs stay.
const SCRIPT: &str = "set -e
for messages in '' --verbose; do
  hbbp-sys record $messages -o /tmp/profile --all -- busybox sh -c 'busybox cat /proc/$PPID/fdinfo/*; true' > /out/walked$messages
done";

#[test]
fn program_sizes_match_the_record() {
    let baseline = fs::read_to_string(artifacts::package().join("results/verifier.txt")).unwrap();
    // One kernel is enough to see a program grow.
    let series = "6.1";
    let Some(mut machine) = support::machine(series) else {
        return;
    };
    machine.files().hbbp_sys().unwrap();
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", SCRIPT]).unwrap();
    outcome.stdout().unwrap();
    for messages in ["", "--verbose"] {
        let fdinfo = outcome.text(&format!("walked{messages}")).unwrap();
        for (program, walked) in walked(&fdinfo) {
            let line = format!("{series} {program}{messages} ");
            println!("{line}{walked}");
            // For the programs with messages it is enough that the verifier accepts them.
            if !messages.is_empty() {
                continue;
            }
            let known: u64 = baseline
                .lines()
                .find_map(|known| known.strip_prefix(&line)?.trim().parse().ok())
                .unwrap_or_else(|| panic!("results/verifier.txt has no line for it: {line}{walked}"));
            assert!(
                walked * 10 <= known * 11,
                "the verifier walks {walked} instructions of {program} on {series}, and {known} stand in \
                 results/verifier.txt: make the program smaller, or write down the new number and why"
            );
        }
    }
}
