//! Bursts of a running program, with the clock, as JSON on one line: what `kernel-tests/experiments/bursts.py` compares
//! with exact counts. As root. Words are the process and seconds.
//!
//! The program must be static and not movable: the symbols of its file are its addresses.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints figures, and fails like a test"
)]

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hbbp_bursts::{Followed, Followers};
use hbbp_collect::bursts::Bursts;
use hbbp_collect::choice::Choice;
use hbbp_collect::object::Messages;
use hbbp_collect::{ClassCounting, Collector, ModuleWatch, Plan, Scope};
use hbbp_ebpf::burst::BurstStats;
use hbbp_emulate::Limits;
use hbbp_model::streams::ThreadCounts;
use object::{Object as _, ObjectSymbol as _, SymbolKind};
use serde_json::json;

/// As the trial has it.
const LIMITS: Limits = Limits {
    branches: 256,
    steps: 1 << 14,
};

/// How often bursts are read: what was read late should not be old.
const EVERY: Duration = Duration::from_millis(10);

/// Where the functions of a program begin.
fn functions(pid: u32) -> Vec<u64> {
    let bytes = fs::read(format!("/proc/{pid}/exe")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbols = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
    let mut starts: Vec<u64> = symbols.map(|symbol| symbol.address()).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// What was measured of a process.
#[derive(Default)]
struct Measured {
    /// Where each burst began, and how it went.
    followed: Vec<(u64, Followed)>,
    /// Samples of the clock by address.
    clock: BTreeMap<u64, u64>,
    /// What the program took for each burst, in ns.
    took: Vec<u64>,
    emulated: Duration,
    stats: BurstStats,
}

fn plan(pid: u32) -> Plan {
    Plan {
        scope: Scope::Process(pid),
        choice: Choice {
            event: Some("cpu-clock".to_owned()),
            ..Choice::default()
        },
        threads: ThreadCounts::Together,
        modules: ModuleWatch::Untold,
        map_entries: None,
        messages: Messages::Off,
        classes: ClassCounting::Off,
    }
}

fn measure(pid: u32, seconds: u32) -> Measured {
    let plan = plan(pid);
    let mut collector = Collector::open(&plan).unwrap();
    let mut bursts = Bursts::open(&plan.scope).unwrap();
    collector.enable().unwrap();
    bursts.enable().unwrap();
    let mut followers = Followers::default();
    let mut all = Measured::default();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds.into()) {
        sleep(EVERY);
        for burst in bursts.read() {
            all.took.push(burst.head.took);
            let began = Instant::now();
            let end = followers.follow(&burst.head, &burst.pages, LIMITS);
            all.emulated += began.elapsed();
            let end = end.unwrap();
            bursts.want(burst.head.tgid, end.wanted.iter().copied()).unwrap();
            all.followed.push((burst.head.rip, end));
        }
    }
    collector.stop().unwrap();
    for (key, tally) in collector.drain().unwrap().iter().flatten() {
        *all.clock.entry(key.address).or_default() += tally.hits;
    }
    all.took.sort_unstable();
    all.stats = bursts.stats().unwrap();
    all
}

/// A burst, as far as its weight depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Weighed<P> {
    /// The part of the program that it began in, such as a function.
    part: P,
    /// What it takes on a common core, in cycles.
    cycles: f64,
}

/// How often each burst was executed, but for one factor of all: the time that the clock gives to its part, by its bursts, by what
/// it takes itself. Bursts begin where time is spent, and a slow one has fewer executions in that time.
///
/// The factor is the frequency of the core over how wrong its model is. Parts that no burst began in have no executions.
fn weights<P: Copy + Ord>(bursts: &[Weighed<P>], clock: &BTreeMap<P, f64>) -> Vec<f64> {
    let mut begun = BTreeMap::<P, f64>::new();
    for burst in bursts.iter().filter(|burst| 0.0 < burst.cycles) {
        *begun.entry(burst.part).or_default() += 1.0;
    }
    let weight = |burst: &Weighed<P>| {
        let time = clock.get(&burst.part).copied().unwrap_or(0.0);
        let n = begun.get(&burst.part).copied().unwrap_or(0.0);
        if 0.0 < burst.cycles && 0.0 < n {
            time / n / burst.cycles
        } else {
            0.0
        }
    };
    bursts.iter().map(weight).collect()
}

/// Start and end of each stream with its weights, by the model and where all instructions take the same time.
fn streams(all: &Measured, starts: &[u64]) -> Vec<(u64, u64, f64, f64)> {
    let function = |address: u64| starts.partition_point(|start| *start <= address);
    let mut by_function = BTreeMap::<usize, f64>::new();
    for (address, n) in &all.clock {
        *by_function.entry(function(*address)).or_default() += *n as f64;
    }
    let weighed = |cycles: fn(&Followed) -> f64| {
        let bursts = all.followed.iter().map(|(start, burst)| Weighed {
            part: function(*start),
            cycles: cycles(burst),
        });
        weights(&bursts.collect::<Vec<_>>(), &by_function)
    };
    let (modelled, alike) = (weighed(|burst| burst.cycles), weighed(|burst| burst.steps as f64));
    let mut streams = BTreeMap::<(u64, u64), [f64; 2]>::new();
    for ((_, burst), weights) in all.followed.iter().zip(modelled.iter().zip(&alike)) {
        for pair in burst.branches.windows(2) {
            let sum = streams.entry((pair[0].to, pair[1].from)).or_default();
            sum[0] += weights.0;
            sum[1] += weights.1;
        }
    }
    let rows = streams.into_iter();
    rows.map(|((start, end), [modelled, alike])| (start, end, modelled, alike))
        .collect()
}

fn main() {
    let words: Vec<u32> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let [pid, seconds] = words[..] else {
        println!("words: a process, and seconds");
        return;
    };
    let starts = functions(pid);
    let all = measure(pid, seconds);
    let mut ends = BTreeMap::<String, u64>::new();
    for (_, burst) in &all.followed {
        let end = format!("{:?}", burst.end);
        *ends.entry(end.split('(').next().unwrap().to_owned()).or_default() += 1;
    }
    let took = |percent: usize| all.took.get(all.took.len() * percent / 100);
    println!(
        "{}",
        json!({
            "clock": all.clock.iter().collect::<Vec<_>>(),
            "streams": streams(&all, &starts),
            "bursts": all.followed.len(),
            "ends": ends,
            "steps": all.followed.iter().map(|(_, burst)| burst.steps).sum::<u64>(),
            "late": all.followed.iter().map(|(_, burst)| burst.late).sum::<usize>(),
            "took": [took(50), took(99)],
            "emulation_ns": all.emulated.as_nanos() as u64,
            "stats": format!("{:?}", all.stats),
        })
    );
}
