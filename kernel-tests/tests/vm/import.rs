//! perf and hbbp-sys record one span side by side; what is imported of perf's file is what hbbp-sys measured.
//!
//! Both attach to the same waiting process, so they count the same branches of the same tasks, and one reference holds
//! for both. What is left between the two is chance: where in the work their samples fall. The recording itself shows
//! how large chance is: the variance from stack to stack, times the number of stacks, is that of a sum over independent
//! stacks. The variance of the difference of two such sums is twice that. Samples at a fixed distance are not independent,
//! though. Over most work they spread more evenly. But a repeated system call has a period of its own: if the two
//! nearly match, the samples stay in the same part of the call for long.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use iced_x86::Mnemonic;
use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::accuracy::Errors;
use kernel_tests::machine::{Clock, Marks};
use kernel_tests::outcome::Outcome;
use kernel_tests::{artifacts, host};

use crate::support;

/// User code, then a process that spends its time in the kernel. The guest's clock skips idle time, so waiting until
/// both tools are ready costs nothing. `perf record --kcore` finds no folder of modules in this guest and gives up;
/// `perf buildid-cache --kcore` makes the same copy.
/// A round of system calls takes 494.6 to some 497 branches, from build to build. Where a few periods nearly equal some rounds,
/// stacks stay in the same part of a round for long: at 1009, near twice a round, streams were off by 7.7 deviations and the mix by 4 %;
/// at 1187 five periods were twelve rounds to the branch, and streams were off by 7.6 deviations. 1181 is 2.376 to 2.388 rounds: no
/// fraction with a denominator up to ten is nearer than a hundredth, but for 3/8 at its lower end. So the part moves on by more than
/// a stack.
/// `branch_type=any` is `-b` for one event: hbbp-sys takes no stacks with its instructions event either.
const SCRIPT: &str = "
perf buildid-cache --kcore /proc/kcore >&2 || exit 1
busybox mkfifo /tmp/go
busybox sh -c 'read go < /tmp/go; heapsort 50000; exec storms syscalls 20000' > /dev/null &
load=$!
hbbp-sys record --duration 60 --pid $load --period 10007 --branch-period 1181 -o /out/live >&2 &
live=$!
perf record -q -m 4M -p $load -o /out/perf.data \
    -e cpu/event=0xc0,period=10007/pp -e cpu/event=0xc4,umask=0x20,period=1181,branch_type=any/pp >&2 &
perf=$!
busybox sleep 30
echo go > /tmp/go
wait $load && wait $perf || exit 2
busybox kill -TERM $live
wait $live || exit 3
busybox cp $HOME/.debug/*kernel.kcore*/*/*/* /out/
";

/// Instructions from sample to sample, as in [`SCRIPT`].
const PERIOD: f64 = 10_007.0;
/// Standard deviations that a count may be off. Were samples independent, chance would take one of some 360 hot streams
/// beyond four in one run of forty; with the distance of the system calls, five were seen. A stream that one side reads
/// wrongly, twice or not at all is off by more than ten.
const DEVIATIONS: f64 = 6.0;
/// Share of the streams that either side may discard: those that the tools' own interrupts cut.
const DISCARDED: f64 = 1e-3;
/// A stream in fewer stacks than this has no normal distribution to speak of.
const HOT: f64 = 30.0;

/// Streams of a full stack of the hardware profile.
const STREAMS: f64 = 31.0;

/// A stream, by module and the addresses of its ends.
type Stream = (String, u64, u64);

/// Sums over stacks of what one stack holds, and of its square.
#[derive(Default)]
struct Spread<K>(BTreeMap<K, (f64, f64, f64)>);

impl<K: Ord> Spread<K> {
    fn add(&mut self, stack: BTreeMap<K, f64>) {
        for (key, n) in stack {
            let (stacks, sum, squares) = self.0.entry(key).or_default();
            *stacks += 1.0;
            *sum += n;
            *squares += n * n;
        }
    }

    /// Variance of the difference of two sums over a number of independent stacks.
    fn variance(&self, key: &K, stacks: f64) -> f64 {
        let (_, sum, squares) = self.0.get(key).copied().unwrap_or_default();
        2.0 * (squares - sum * sum / stacks)
    }
}

struct Recordings {
    program: PathBuf,
    folder: PathBuf,
}

impl Recordings {
    fn keep(outcome: &Outcome) -> Self {
        let folder = outcome.directory().to_owned();
        for (name, bytes) in &outcome.files {
            fs::write(folder.join(name), bytes).unwrap();
        }
        let program = artifacts::hbbp_sys().unwrap();
        Self { program, folder }
    }

    fn said(&self, words: &[&str]) -> String {
        host::output(Command::new(&self.program).current_dir(&self.folder).args(words)).unwrap()
    }

    fn import(&self) {
        let [heapsort, storms] =
            ["heapsort.c", "storms.c"].map(|source| artifacts::workload(source).unwrap());
        let [heapsort, storms] = [&heapsort, &storms].map(|path| path.to_str().unwrap());
        let files = [
            "--binary",
            "/bin/busybox",
            "--binary",
            heapsort,
            "--binary",
            storms,
        ];
        let import = ["import", "perf.data", "--kcore", ".", "-o", "imported"];
        self.said(&[&import[..], &files].concat());
    }

    /// Streams, and how many were discarded.
    fn streams(&self, profile: &str) -> (BTreeMap<Stream, f64>, f64) {
        let (mut streams, mut discarded) = (BTreeMap::new(), 0.0);
        let mut module = String::new();
        for line in self.said(&["export", "--format", "streams", profile]).lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                // Paths differ where a file was found on the host; names do not.
                ["M", path, ..] => {
                    let name = Path::new(path).file_name().unwrap();
                    module = name.to_string_lossy().into_owned();
                }
                ["S", start, end, n] => {
                    let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
                    let n: f64 = n.parse().unwrap();
                    *streams.entry((module.clone(), start, end)).or_default() += n;
                }
                ["#", "discarded", _, n] => discarded += n.parse::<f64>().unwrap(),
                _ => panic!("{line}"),
            }
        }
        (streams, discarded)
    }

    /// The stacks of the recording as runs from a target to the next branch. All programs of the load lie at fixed
    /// addresses, so that these are ELF addresses.
    fn stacks(&self) -> Vec<Vec<(u64, u64)>> {
        let text = self.said(&["export", "--format", "entries", "perf.data"]);
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let branch = |word: &str| {
            let mut parts = word.split('/');
            Some((hex(parts.next()?), hex(parts.next()?)))
        };
        let stack = |line: &str| -> Vec<(u64, u64)> {
            let entries = line.split_whitespace().filter(|word| word.contains('/'));
            let branches: Vec<_> = entries.filter_map(branch).collect();
            branches.windows(2).map(|pair| (pair[1].1, pair[0].0)).collect()
        };
        text.lines()
            .map(stack)
            .filter(|stack| !stack.is_empty())
            .collect()
    }

    fn errors(&self, profile: &str) -> Errors {
        let words = [
            "eval",
            "--reference",
            "reference",
            "--top",
            "all",
            "--format",
            "json",
            profile,
        ];
        serde_json::from_str(&self.said(&words)).unwrap()
    }
}

fn recorded(series: &str) -> Option<Outcome> {
    let machine = support::machine(series)?;
    let mut machine = machine.clock(Clock::Instructions).marks(Marks::Events);
    support::add_workload(&mut machine, "heapsort.c");
    support::add_workload(&mut machine, "storms.c");
    machine.files().program(Path::new("/usr/bin/perf")).unwrap();
    machine.files().hbbp_sys().unwrap();
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", SCRIPT]).unwrap();
    outcome.stdout().unwrap();
    Some(outcome)
}

/// Every hot stream, and all streams together: the mean of a difference is at most its standard deviation.
fn compare_streams(series: &str, recordings: &Recordings, stacks: &[Vec<(u64, u64)>]) {
    let n = stacks.len() as f64;
    let mut spread = Spread::default();
    for stack in stacks {
        let mut here = BTreeMap::new();
        for stream in stack {
            *here.entry(*stream).or_default() += 1.0;
        }
        spread.add(here);
    }
    let (live, live_discarded) = recordings.streams("live");
    let (imported, discarded) = recordings.streams("imported");
    let total = |streams: &BTreeMap<Stream, f64>| streams.values().sum::<f64>();
    println!(
        "{series}: {n} stacks; streams live {} + {live_discarded}, imported {} + {discarded} discarded",
        total(&live),
        total(&imported)
    );
    let (mut hot, mut worst) = (0, 0.0_f64);
    let both: BTreeSet<&Stream> = imported.keys().chain(live.keys()).collect();
    for stream in both {
        let count = imported.get(stream).copied().unwrap_or(0.0);
        let key = (stream.1, stream.2);
        let in_stacks = spread.0.get(&key).map_or(0.0, |(stacks, ..)| *stacks);
        let other = live.get(stream).copied().unwrap_or(0.0);
        // What only hbbp-sys saw has no spread to go by; in this number it cannot be chance.
        if in_stacks < HOT && other < HOT * STREAMS {
            continue;
        }
        let off = (count - other).abs() / spread.variance(&key, n).max(1.0).sqrt();
        assert!(
            off <= DEVIATIONS,
            "{stream:x?}: imported {count}, live {other}, {off} deviations"
        );
        (hot, worst) = (hot + 1, worst.max(off));
    }
    println!("{series}: {hot} hot streams, the worst {worst:.2} deviations off");
    assert!(50 < hot, "{hot} hot streams");
    // Both see the same branches at the same distance: a stack more or less at the ends of the span.
    let most = DISCARDED * total(&imported);
    assert!(
        discarded < most && live_discarded < most,
        "{discarded} and {live_discarded} discarded"
    );
    let (all, all_live) = (total(&imported) + discarded, total(&live) + live_discarded);
    assert!((all - all_live).abs() <= 4.0 * STREAMS, "{all} {all_live}");
}

/// An error is a sum of differences from the reference over mnemonics, so two errors differ by no more than the sum
/// of the differences of their mnemonics; of each the mean is at most its standard deviation.
fn compare_errors(series: &str, recordings: &Recordings, outcome: &Outcome, stacks: &[Vec<(u64, u64)>]) {
    let mut code: BTreeMap<u64, Mnemonic> = BTreeMap::new();
    for block in outcome.reference().unwrap().blocks {
        let decoder = Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE);
        code.extend(decoder.into_iter().map(|one| (one.ip(), one.mnemonic())));
    }
    let mut spread = Spread::default();
    for stack in stacks {
        let mut here = BTreeMap::new();
        for (start, end) in stack.iter().filter(|(start, end)| start <= end) {
            for (_, mnemonic) in code.range(*start..=*end) {
                *here.entry(*mnemonic as usize).or_default() += 1.0;
            }
        }
        spread.add(here);
    }
    let n = stacks.len() as f64;
    let chance: f64 = spread.0.keys().map(|key| spread.variance(key, n).sqrt()).sum();
    let bound = chance / spread.0.values().map(|(_, sum, _)| sum).sum::<f64>();
    let [live, imported] = ["live", "imported"].map(|profile| recordings.errors(profile));
    let [a, b] = [&live, &imported].map(|errors| errors.whole.average_weighted_error);
    println!("{series}: live {a:?}, imported {b:?}, LBR bound {bound}");
    // In a live run, a stack right after a far branch represents two, since none is taken at that one; an import gives
    // all the same weight. That moves this share of the stacks, and a sum of differences by at most twice that.
    let is_kernel = |address: u64| address >> 63 == 1;
    let is_behind_far = |stack: &&Vec<(u64, u64)>| matches!(stack[..], [(start, _), (_, end), ..] if is_kernel(start) != is_kernel(end));
    let far = stacks.iter().filter(is_behind_far).count() as f64 / n;
    println!("{series}: {far} of the stacks stand right after a far branch");
    let difference = (a.lbr.unwrap() - b.lbr.unwrap()).abs();
    assert!(difference <= bound + 2.0 * far, "{difference} {bound} {far}");

    // A sample of an instruction is one event, so the variance of a count of samples is at most the count.
    let sampled = live.whole.mnemonics.iter().chain(&imported.whole.mnemonics);
    let mut samples: BTreeMap<&str, f64> = BTreeMap::new();
    for one in sampled {
        *samples.entry(&one.mnemonic).or_default() += one.executions.ebs / PERIOD;
    }
    let bound = samples.values().map(|n| n.sqrt()).sum::<f64>() / imported.samples;
    println!("{series}: EBS bound {bound}");
    let difference = (a.ebs.unwrap() - b.ebs.unwrap()).abs();
    assert!(difference <= bound, "{difference} {bound}");
    assert!(b.hybrid.is_some(), "{b:?}");
}

fn import_is_what_was_measured(series: &str) {
    let Some(outcome) = recorded(series) else {
        return;
    };
    let recordings = Recordings::keep(&outcome);
    recordings.import();
    let stacks = recordings.stacks();
    assert!(1000 < stacks.len(), "{}", stacks.len());
    compare_streams(series, &recordings, &stacks);
    compare_errors(series, &recordings, &outcome, &stacks);
}

#[test]
#[ignore = "runs in --all"]
fn import_is_what_was_measured_on_6_1() {
    import_is_what_was_measured("6.1");
}

#[test]
fn import_is_what_was_measured_on_6_12() {
    import_is_what_was_measured("6.12");
}
