//! Faults on demand: each hardware profile switch shows its fault, and every lost record is counted.

use std::collections::BTreeMap;

use kernel_tests::layout::{Branch, EVENT_INSTRUCTIONS, EVENT_TAKEN};
use kernel_tests::machine::{Clock, Marks};
use kernel_tests::outcome::Outcome;
use kernel_tests::witness::{EFLAGS_EXACT, Seen, spec};

use crate::support;

/// Forks and user code: user branches, system calls, interrupts and task switches.
const LOAD: &str = "for i in $(busybox seq 30); do busybox seq 300 | busybox md5sum; done";

/// The samples of the load under a hardware profile, by event, with the counters.
struct Witnessed {
    samples: Vec<Seen>,
    runs: u64,
    counters: BTreeMap<String, u64>,
    outcome: Outcome,
}

fn witnessed(hardware_profile: &str, precise: &str, load: &str) -> Option<Witnessed> {
    let machine = support::machine("6.12")?;
    // By the guest's own clock a tick holds as many samples on a busy host as on an idle one.
    let mut machine = machine
        .clock(Clock::Instructions)
        .marks(Marks::Events)
        .hardware_profile(hardware_profile);
    support::add_guest_program(&mut machine, "guest-witness");
    support::add_workload(&mut machine, "skid.c");
    support::add_workload(&mut machine, "kernels.c");
    let command = [
        "/bin/guest-witness",
        "both",
        precise,
        "10007",
        "1009",
        "/bin/busybox",
        "sh",
        "-c",
        load,
    ];
    let outcome = machine.run(&command).unwrap();
    outcome.stdout().unwrap();
    let samples = Seen::parse(&outcome.files["samples"]).unwrap();
    let runs = outcome.text("witness").unwrap().trim().parse().unwrap();
    let counters = outcome.counters().unwrap();
    let sum = |names: &[&str]| names.iter().map(|name| counters[*name]).sum::<u64>();
    assert_eq!(
        sum(&["overflows"]),
        sum(&["written", "lost_full", "lost_dropped", "lost_stopped"]),
        "{counters:?}"
    );
    assert_eq!(
        sum(&["written"]),
        sum(&["delivered", "orphaned", "throttled"]),
        "{counters:?}"
    );
    assert_eq!(sum(&["anomalies", "late"]), 0, "{counters:?}");
    assert_eq!(runs, counters["delivered"], "{counters:?}");
    assert!(100 < runs, "{counters:?}");
    Some(Witnessed {
        samples,
        runs,
        counters,
        outcome,
    })
}

impl Witnessed {
    fn stacks(&self) -> impl Iterator<Item = &Seen> {
        self.samples.iter().filter(|seen| seen.event == EVENT_TAKEN)
    }

    /// The share of the stacks that are so, in percent.
    fn percent(&self, is_so: impl Fn(&Seen) -> bool) -> f64 {
        let so = self.stacks().filter(|seen| is_so(seen)).count();
        100.0 * so as f64 / self.stacks().count() as f64
    }
}

#[test]
fn full_ring_is_counted() {
    let Some(seen) = witnessed("ring_slots = 4", "2", LOAD) else {
        return;
    };
    assert!(0 < seen.counters["lost_full"], "{:?}", seen.counters);
}

#[test]
#[ignore = "runs in --all"]
fn dropped_records_are_counted() {
    let Some(seen) = witnessed("fault.drop_percent = 25", "2", LOAD) else {
        return;
    };
    let share = seen.counters["lost_dropped"] as f64 / seen.counters["overflows"] as f64;
    assert!(0.2 < share && share < 0.3, "{share}: {:?}", seen.counters);
}

#[test]
#[ignore = "runs in --all"]
fn throttled_records_are_counted() {
    // 1000 samples a second are four in a tick of the guest's 250 Hz.
    let Some(seen) = witnessed("fault.sample_rate = 1000", "2", LOAD) else {
        return;
    };
    assert!(0 < seen.counters["throttled"], "{:?}", seen.counters);
}

#[test]
#[ignore = "runs in --all"]
fn newest_entry_is_duplicated() {
    let Some(seen) = witnessed("fault.duplicate_percent = 30", "2", LOAD) else {
        return;
    };
    let twice = seen.percent(|seen| seen.stack[0] == seen.stack[1]);
    // Tight loops repeat their branch also without the fault.
    assert!(25.0 < twice && twice < 60.0, "{twice}");
    assert!(seen.stacks().all(|seen| seen.stack.len() == 32));
}

#[test]
fn stack_is_wiped_at_a_task_switch() {
    let Some(seen) = witnessed("fault.zero_on_switch = true", "2", LOAD) else {
        return;
    };
    let zero = Branch::default();
    let short = seen.percent(|seen| seen.stack.last() == Some(&zero));
    assert!(0.0 < short && short < 50.0, "{short}");
    for seen in seen.stacks() {
        let valid = seen.stack.iter().take_while(|entry| **entry != zero).count();
        assert_eq!(seen.stack.len(), 32);
        assert!(
            seen.stack[valid..].iter().all(|entry| *entry == zero),
            "{seen:x?}"
        );
    }
}

#[test]
#[ignore = "runs in --all"]
fn entries_of_a_wrong_path_are_marked() {
    let Some(seen) = witnessed("fault.wrong_path_percent = 40", "2", LOAD) else {
        return;
    };
    let wrong = seen.percent(|seen| seen.details.iter().any(|details| spec(*details) == 1));
    assert!(35.0 < wrong && wrong < 45.0, "{wrong}");
}

#[test]
#[ignore = "runs in --all"]
fn interrupt_entries_are_filtered_out() {
    // From a user address to a kernel address: a system call or an interrupt; only the first is kept.
    let enters = |entry: &Branch| entry.from >> 63 == 0 && entry.to >> 63 == 1;
    let entered = |seen: &Witnessed| {
        let entries = seen
            .stacks()
            .flat_map(|seen| &seen.stack)
            .filter(|entry| enters(entry));
        entries
            .map(|entry| entry.to)
            .collect::<std::collections::BTreeSet<_>>()
    };
    let Some(all) = witnessed("", "2", LOAD) else {
        return;
    };
    let Some(filtered) = witnessed("fault.filter_interrupts = true", "2", LOAD) else {
        return;
    };
    assert!(1 < entered(&all).len(), "{:x?}", entered(&all));
    assert_eq!(entered(&filtered).len(), 1, "{:x?}", entered(&filtered));
}

/// Stacks of sixteen entries have sticky branches as the oldest more often.
#[test]
#[ignore = "runs in --all"]
fn sticky_branches_are_more_often_the_oldest() {
    // How much more often a branch is the oldest entry than any entry: the paper's bias, of the worst branch.
    let bias = |hardware_profile: &str| {
        let seen = witnessed(hardware_profile, "2", "kernels callchain 300000")?;
        assert!(seen.stacks().all(|seen| seen.stack.len() == 16));
        let mut counts: BTreeMap<u64, [f64; 2]> = BTreeMap::new();
        for seen in seen.stacks() {
            for entry in &seen.stack {
                counts.entry(entry.from).or_default()[0] += 1.0 / seen.stack.len() as f64;
            }
            counts.entry(seen.stack.last().unwrap().from).or_default()[1] += 1.0;
        }
        let often = seen.stacks().count() as f64 / 50.0;
        let often = counts.values().filter(|[any, _]| often < *any);
        often.map(|[any, oldest]| oldest / any).max_by(f64::total_cmp)
    };
    let sticky = bias("depth = 16\nsticky.one_in = 4\nsticky.percent = 50");
    let (Some(fair), Some(biased)) = (bias("depth = 16"), sticky) else {
        return;
    };
    println!("the worst branch's bias is {fair:.2}, with sticky branches {biased:.2}");
    assert!(fair < 1.2 && 1.5 < biased, "{fair} {biased}");
}

/// The loop of `workloads/skid.c`: one division and nine additions in eleven instructions with the jump.
/// Equation 2 of "Can We Trust Profiling Results?" (ICS 2019) gives the share of the samples of each instruction.
#[test]
#[ignore = "runs in --all"]
fn skid_follows_the_model_of_the_paper() {
    const SKID: u64 = 4;
    const ROUNDS: u64 = 1_500_000;
    let hardware_profile = format!("skid.0 = {SKID}\nskid.2 = {SKID}\nlatency.divide = 25");
    let load = format!("skid {ROUNDS}");
    let Some(seen) = witnessed(&hardware_profile, "0", &load) else {
        return;
    };
    // Division, nine additions, the decrement and the jump back.
    let cycles: Vec<u64> = std::iter::once(25).chain([1; 11]).collect();
    let mut expected = vec![0.0; cycles.len()];
    for overflow in 0..cycles.len() {
        let mut left = SKID as i64;
        let mut at = overflow;
        while 0 < left {
            at = (at + 1) % cycles.len();
            left -= cycles[at] as i64;
        }
        expected[at] += 1.0 / cycles.len() as f64;
    }
    let start = u64::from_str_radix(seen.outcome.text("stdout").unwrap().trim(), 16).unwrap();
    let lengths = [3_u64, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2];
    let places: Vec<u64> = lengths
        .iter()
        .scan(start, |at, length| {
            let here = *at;
            *at += length;
            Some(here)
        })
        .collect();
    let instructions = seen
        .samples
        .iter()
        .filter(|seen| seen.event == EVENT_INSTRUCTIONS);
    let hits: Vec<usize> = places
        .iter()
        .map(|place| instructions.clone().filter(|seen| seen.ip == *place).count())
        .collect();
    let all: usize = hits.iter().sum();
    println!(
        "{} runs; in the loop {hits:?}; expected {expected:.3?}",
        seen.runs
    );
    assert!(1000 < all, "{all} samples in the loop");
    for (hits, share) in hits.iter().zip(&expected) {
        // Four standard errors of a share.
        let error = 4.0 * (share * (1.0 - share) / all as f64).sqrt() + 0.002;
        assert!(
            (*hits as f64 / all as f64 - share).abs() < error,
            "{hits} of {all}, expected {share}"
        );
    }
    assert!(
        instructions.clone().all(|seen| seen.flags & EFLAGS_EXACT == 0),
        "no sample of level 0 is exact"
    );
}
