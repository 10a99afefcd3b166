//! Faults of branch stacks, one by one: each counter of `hbbp-sys` matches the stacks of the emulated PMU.
//!
//! The emulated PMU keeps every stack that it writes into a ring, faults and all. Here they are judged once more, entry by
//! entry, by rules written anew; every counter of the report must then be exact.

use std::collections::BTreeMap;

use kernel_tests::accuracy::{Measured, Setup, measure_command};
use kernel_tests::layout::Branch;
use kernel_tests::machine::Marks;
use kernel_tests::trace::{self, Stack};

use crate::{recorded, support};

/// Forks, execs and pipes: task switches, system calls, interrupts.
const LOAD: &str = "for i in $(busybox seq 9); do busybox seq 300 | busybox sort -r | busybox md5sum; done; \
                    busybox cp /proc/kallsyms /out/kallsyms";
/// A period that distinguishes the stacks from the samples of instructions, and some ten thousand stacks.
const PERIODS: (u64, u64) = (1_000_037, 1_009);
/// The CPU model, for the quirks of its branch records (hbbp-user/collect/src/uarch.rs).
const SKYLAKE: &str = "cpu = vendor=GenuineIntel,family=6,model=94,stepping=3\n";
const ZEN_4: &str = "cpu = vendor=AuthenticAMD,family=25,model=17,stepping=1\n";
/// Streams of this many bytes and more are no straight-line code (hbbp-ebpf/src/stream.rs).
const LONG: u64 = 64 << 10;

/// What a processor's records need, in addition to the common part.
#[derive(Clone, Copy, PartialEq)]
enum Quirk {
    None,
    RepeatsNewest,
    WrongPaths,
}

/// What should be counted, by the id of the loss; `streams` are those that are sound.
fn judged(stacks: &[Stack], quirk: Quirk, switch: &std::ops::Range<u64>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for stack in stacks {
        let mut count = |what| *counts.entry(what).or_insert(0) += 1;
        let mut sound = Vec::new();
        for (i, entry) in stack.entries.iter().enumerate() {
            if quirk == Quirk::WrongPaths && stack.wrong_path >> i & 1 == 1 {
                count("entry.wrong_path");
            } else {
                sound.push(*entry);
            }
        }
        sound.truncate(
            sound
                .iter()
                .position(|entry| *entry == Branch::default())
                .unwrap_or(sound.len()),
        );
        if sound.is_empty() {
            count("sample.no_stack");
        } else if sound.len() < stack.entries.len() - usize::from(stack.wrong_path != 0) {
            // Not a loss, and in no report.
            count("short");
        }
        if quirk == Quirk::RepeatsNewest && !sound.is_empty() {
            count("entry.newest_unused");
            sound.remove(0);
        }
        let mut switched = false;
        for pair in sound.windows(2) {
            let [younger, older] = pair else { continue };
            switched |= switch.contains(&younger.from);
            let (start, end) = (older.to, younger.from);
            let is_kernel = |at: u64| at >> 63 == 1;
            count(match () {
                () if switched && !is_kernel(start) => "stream.switched",
                () if is_kernel(start) != is_kernel(end) => "stream.crossing",
                () if end < start => "stream.backward",
                () if LONG <= end - start => "stream.long",
                () => "streams",
            });
        }
    }
    counts
}

/// The function in which the kernel changes from one task to the next.
fn switch_range(kallsyms: &str) -> std::ops::Range<u64> {
    let mut symbols: Vec<(u64, &str)> = kallsyms
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?;
            kind.eq_ignore_ascii_case("t").then_some((address, words.next()?))
        })
        .collect();
    symbols.sort_unstable();
    let start = symbols
        .iter()
        .find(|(_, name)| *name == "__switch_to_asm")
        .unwrap()
        .0;
    let end = symbols.iter().map(|(at, _)| *at).find(|at| start < *at).unwrap();
    start..end
}

/// Runs the load under a hardware profile and compares every counter; gives what was counted.
fn exact(hardware_profile: &str, quirk: Quirk) -> Option<BTreeMap<&'static str, u64>> {
    let machine = support::machine("6.12")?;
    let mut setup = Setup::new(hardware_profile.to_owned());
    (setup.period, setup.branch_period) = PERIODS;
    // Drains at patches of the kernel's text skip samples, and here every sample should reach the programs.
    setup.options = vec!["--text-once".to_owned()];
    let machine = machine
        .clock(setup.clock)
        .marks(Marks::Events)
        .hardware_profile(hardware_profile)
        .keep_stacks();
    let measured = measure_command(machine, &["/bin/busybox", "sh", "-c", LOAD], &setup).unwrap();
    let counters = &measured.counters;
    assert_eq!(
        counters["written"], counters["delivered"],
        "every record reached the programs: {counters:?}"
    );
    let file = measured.outcome.directory().join(trace::stack_file(0));
    let mut stacks = trace::read_stacks(&file).unwrap();
    stacks.retain(|stack| stack.period == setup.branch_period);
    let switch = switch_range(&measured.outcome.text("kallsyms").unwrap());
    let expected = judged(&stacks, quirk, &switch);
    let mut refused = expected.clone();
    refused.remove("short");
    assert_eq!(counted(&measured), refused, "{:#}", measured.report);
    println!("{} stacks: {expected:?}", stacks.len());
    if quirk != Quirk::RepeatsNewest {
        recorded::compare(measured.profile(), &stacks);
    }
    assert!(1000 < stacks.len());
    Some(expected)
}

/// What the report says of the same things, and of everything else that can happen to a stack.
fn counted(measured: &Measured) -> BTreeMap<&'static str, u64> {
    const ALL: [&str; 7] = [
        "entry.wrong_path",
        "sample.no_stack",
        "entry.newest_unused",
        "stream.crossing",
        "stream.backward",
        "stream.long",
        "stream.switched",
    ];
    let losses = measured.report["losses"].as_array().unwrap();
    let mut said: BTreeMap<&'static str, u64> = ALL
        .iter()
        .filter_map(|id| {
            let loss = losses.iter().find(|loss| loss["id"] == *id)?;
            Some((*id, loss["count"].as_u64()?))
        })
        .collect();
    said.insert("streams", measured.reported("/streams/counted"));
    said
}

/// Between user code and a task switch the kernel takes more branches than a stack holds, so that no stream here is
/// older than a switch; and nothing else is refused of a processor without faults.
#[test]
fn without_faults_nothing_is_refused() {
    let Some(seen) = exact("", Quirk::None) else {
        return;
    };
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&"streams"], "{seen:?}");
}

#[test]
#[ignore = "runs in --all"]
fn zero_entries_end_a_stack() {
    let Some(seen) = exact("fault.zero_on_switch = true", Quirk::None) else {
        return;
    };
    assert!(0 < seen["short"], "no stack ends in zero entries: {seen:?}");
}

/// Where the newest entry may be a copy none is used, and then nothing is left to be refused.
#[test]
fn newest_entries_that_may_be_copies_are_left_out() {
    let hardware_profile = format!("{SKYLAKE}fault.duplicate_percent = 30");
    let Some(seen) = exact(&hardware_profile, Quirk::RepeatsNewest) else {
        return;
    };
    assert_eq!(
        seen.keys().collect::<Vec<_>>(),
        [&"entry.newest_unused", &"streams"],
        "{seen:?}"
    );
}

#[test]
#[ignore = "runs in --all"]
fn entries_of_wrong_paths_are_removed() {
    let hardware_profile = format!("{ZEN_4}fault.wrong_path_percent = 40");
    let Some(seen) = exact(&hardware_profile, Quirk::WrongPaths) else {
        return;
    };
    assert!(0 < seen["entry.wrong_path"], "{seen:?}");
}

/// Two entries with missing ones in between do not form a stream.
#[test]
fn gaps_of_filtered_interrupts_are_classified() {
    let Some(seen) = exact("fault.filter_interrupts = true", Quirk::None) else {
        return;
    };
    // The handlers of interrupts lie above all other kernel code, so that what leads to them is never backward.
    for reason in ["stream.crossing", "stream.long"] {
        assert!(0 < *seen.get(reason).unwrap_or(&0), "{reason}: {seen:?}");
    }
}

/// On a processor that is not known for it, a repeated entry is a stream from a branch's target to the branch.
#[test]
#[ignore = "runs in --all"]
fn streams_that_end_before_they_start_are_counted() {
    let Some(seen) = exact("fault.duplicate_percent = 30", Quirk::None) else {
        return;
    };
    assert!(0 < seen["stream.backward"], "{seen:?}");
}
