//! perf(1) as a second consumer: Debian's own tool opens the same PMU and sees the same stacks.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::Path;

use kernel_tests::layout::Branch;
use kernel_tests::machine::Marks;
use kernel_tests::outcome::Outcome;
use kernel_tests::trace;

use crate::support;

/// Records every 1009th taken branch of the system while the load runs, and prints CPU, time, IP and stack.
const SCRIPT: &str = "
perf record -q -b -a -N -B -m 4M -e cpu/event=0xc4,umask=0x20/pp \
    -c 1009 -o /tmp/perf.data -- busybox sh -c 'busybox seq 3000 | busybox sort -r | busybox md5sum' >&2 &&
perf script -i /tmp/perf.data --ns -F cpu,time,ip,brstack";

/// One sample of `perf script`.
#[derive(PartialEq)]
struct Printed {
    cpu: usize,
    time: String,
    ip: u64,
    stack: Vec<Branch>,
}

/// A line is `[000]  5.751979726:  ffffffff81000000 0xFROM/0xTO/-/-/-/0/... ...`.
fn printed(line: &str) -> Option<Printed> {
    let mut words = line.split_whitespace();
    let cpu = words.next()?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let time = words.next()?.to_owned();
    let ip = u64::from_str_radix(words.next()?, 16).ok()?;
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let stack = words.map(|word| {
        let mut parts = word.split('/');
        Some(Branch {
            from: hex(parts.next()?)?,
            to: hex(parts.next()?)?,
        })
    });
    Some(Printed {
        cpu,
        time,
        ip,
        stack: stack.collect::<Option<_>>()?,
    })
}

/// How many samples there were: of those that are equal in CPU, time, IP and stack, at least one and at most all.
///
/// One run in ten, perf 6.1 prints one or two samples twice, although the machine wrote and delivered each once by its own
/// counters. And two samples of a loop may be equal: where the kernel does not trust the clock of the processor, its own
/// is stopped at the end of a tick.
fn number_of_samples(samples: &[Printed]) -> RangeInclusive<usize> {
    let mut sorted: Vec<&Printed> = samples.iter().collect();
    sorted.sort_by(|a, b| (a.cpu, &a.time).cmp(&(b.cpu, &b.time)));
    sorted.dedup();
    sorted.len()..=samples.len()
}

/// Looks each printed stack up in the trace of its CPU; returns how many there were.
fn check(outcome: &Outcome, text: &str, cpus: usize) -> RangeInclusive<usize> {
    let lines = text.lines();
    let samples = lines.map(|line| printed(line).unwrap_or_else(|| panic!("{line}")));
    let samples: Vec<Printed> = samples.collect();
    for cpu in 0..cpus {
        let file = outcome.directory().join(trace::branch_file(cpu));
        let branches: Vec<Branch> = trace::read_branches(&file)
            .unwrap()
            .iter()
            .filter(|entry| entry.is_recorded())
            .map(|e| e.branch)
            .collect();
        let mut places: HashMap<Branch, Vec<usize>> = HashMap::new();
        for (place, branch) in branches.iter().enumerate() {
            places.entry(*branch).or_default().push(place);
        }
        for sample in samples.iter().filter(|sample| sample.cpu == cpu) {
            let newest = sample.stack.first().unwrap();
            assert_eq!(
                newest.from, sample.ip,
                "the newest branch is the one that overflowed"
            );
            let stands_at = |place: usize| {
                let run = branches.get(..=place).unwrap().iter().rev();
                sample.stack.iter().eq(run.take(sample.stack.len()))
            };
            let found = places
                .get(newest)
                .is_some_and(|places| places.iter().any(|place| stands_at(*place)));
            assert!(found, "CPU {cpu}: no such run of branches: {:x?}", sample.stack);
        }
    }
    number_of_samples(&samples)
}

#[test]
#[ignore = "runs in --all"]
fn perf_record_sees_the_same_stacks() {
    for series in support::SERIES {
        let Some(machine) = support::machine(series) else {
            continue;
        };
        let mut machine = machine.cpus(2).marks(Marks::Events).traced();
        machine.files().program(Path::new("/usr/bin/perf")).unwrap();
        let outcome = machine.run(&["/bin/busybox", "sh", "-c", SCRIPT]).unwrap();
        let text = outcome.stdout().unwrap();
        let n = check(&outcome, &text, 2);
        let counters = outcome.counters().unwrap();
        println!("{series}: perf recorded {n:?} stacks, all in the trace; {counters:?}");
        let (least, most) = (*n.start(), *n.end());
        assert!(
            1000 < least,
            "{least} samples\n{}",
            outcome.text("stderr").unwrap()
        );
        assert!(most - least <= most / 100, "{n:?}: hardly any are equal");
        let delivered = usize::try_from(counters["delivered"]).unwrap();
        assert!(n.contains(&delivered), "{n:?} {counters:?}");
    }
}
