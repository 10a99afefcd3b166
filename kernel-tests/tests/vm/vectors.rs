//! Basic block vectors interval by interval: against those of the exact trace, and against Valgrind's exp-bbv of the same
//! program on the host.
//!
//! The files are read by a reader of this test's own, written from the description of SimPoint 3.2's input: lines that begin
//! with `T`, pairs `:ID:COUNT` with an id of 1 at the least; other lines are ignored.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;

use hbbp_user::vectors::simpoint::{SimPoints, of_points, projected};
use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::machine::{Clock, Marks};
use kernel_tests::outcome::Outcome;
use kernel_tests::trace::{self, Entry, Sample};
use kernel_tests::{artifacts, host};

use crate::support;

/// Source, name of the program, argument: some ten to twenty million instructions, which a trace of every branch can hold.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("phases.c", "phases", "4"),
    ("heapsort.c", "heapsort", "30000"),
    ("virtual.cc", "virtual", "4000"),
];
/// A program that does the same all the time. Its vectors differ by chance alone, which BIC does not know to be chance: it chose
/// 4 phases where the trace has 2, so that issue 20's bound on phases does not hold for it.
const STEADY: &str = "virtual";
/// Instructions in an interval: a two-hundredth of the default, as the programs run for milliseconds.
const INTERVAL: u64 = 500_000;
/// Instructions between two samples, as `hbbp-sys bbv` chooses it for such an interval.
const PERIOD: u64 = 1_009;
/// Number of the counter of instructions, which is opened before that of branches.
const INSTRUCTIONS: u32 = 0;
/// Mean distance that is allowed (issue 20).
const DISTANCE: f64 = 0.05;
/// Static programs are linked to 4 MiB; all other programs of the guest lie elsewhere.
const PROGRAM_END: u64 = 1 << 32;

/// A vector: amount by block, or by what it is summed by.
type Vector<K> = BTreeMap<K, f64>;

/// The vectors of a file, by SimPoint's rules.
fn read_vectors(text: &str) -> Vec<Vector<u32>> {
    let lines = text.lines().filter(|line| line.starts_with('T'));
    let vector = |line: &str| {
        let pairs = line[1..].split_whitespace();
        let pairs = pairs.map(|pair| {
            let (id, count) = pair.strip_prefix(':').unwrap().split_once(':').unwrap();
            let (id, count): (u32, f64) = (id.parse().unwrap(), count.parse().unwrap());
            assert!(0 < id && 0.0 < count, "{pair}");
            (id, count)
        });
        let all: Vec<(u32, f64)> = pairs.collect();
        let vector: Vector<u32> = all.iter().copied().collect();
        assert!(vector.len() == all.len() && !vector.is_empty(), "{line}");
        vector
    };
    lines.map(vector).collect()
}

/// Function of each block, from `F:ID:ADDRESS:FUNCTION`.
fn read_functions(text: &str) -> HashMap<u32, String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("F:"));
    let fields = lines.map(|line| line.splitn(3, ':').collect::<Vec<&str>>());
    fields
        .map(|fields| (fields[0].parse().unwrap(), fields[2].to_owned()))
        .collect()
}

/// Sum of the absolute differences of two vectors whose sums are 1.
fn distance<K: Ord + Clone>(a: &Vector<K>, b: &Vector<K>) -> f64 {
    let sum = |vector: &Vector<K>| vector.values().sum::<f64>();
    let (of_a, of_b) = (sum(a), sum(b));
    let mut difference: Vector<K> = a.iter().map(|(key, value)| (key.clone(), value / of_a)).collect();
    for (key, value) in b {
        *difference.entry(key.clone()).or_default() -= value / of_b;
    }
    difference.values().map(|value| value.abs()).sum()
}

/// Mean distance of vectors of the same interval.
fn mean_distance<K: Ord + Clone>(a: &[Vector<K>], b: &[Vector<K>]) -> f64 {
    let n = a.len().min(b.len());
    assert!(
        10 < n && a.len().abs_diff(b.len()) <= 1,
        "{} and {}",
        a.len(),
        b.len()
    );
    a.iter().zip(b).map(|(a, b)| distance(a, b)).sum::<f64>() / n as f64
}

/// Adds up what has the same name.
fn summed_by<K: Ord>(vector: &Vector<u32>, name: impl Fn(u32) -> K) -> Vector<K> {
    let mut sums = Vector::new();
    for (id, value) in vector {
        *sums.entry(name(*id)).or_default() += value;
    }
    sums
}

/// The block of each instruction of the program, by `blocks.csv`, whose fields before the function hold no commas.
fn blocks_of(csv: &str, lengths: &BTreeMap<u64, u64>) -> HashMap<u64, u32> {
    let mut of = HashMap::new();
    for line in csv.lines().skip(1).filter(|line| line.contains(",user,")) {
        let fields: Vec<&str> = line.split(',').collect();
        let mut at = u64::from_str_radix(fields[3], 16).unwrap();
        for _ in 0..fields[4].parse::<u32>().unwrap() {
            of.insert(at, fields[0].parse().unwrap());
            at += lengths.get(&at).copied().unwrap_or(1);
        }
    }
    of
}

/// Lengths of all instructions of the program that ran.
fn lengths(outcome: &Outcome) -> BTreeMap<u64, u64> {
    let mut lengths = BTreeMap::new();
    for block in outcome.reference().unwrap().blocks {
        for it in Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE) {
            if block.start < PROGRAM_END {
                lengths.insert(it.ip(), it.len() as u64);
            }
        }
    }
    lengths
}

/// Where the intervals end, in instructions that the CPU executed: at the sample that completes each, of user code of the
/// program.
fn borders(samples: &[Sample]) -> Vec<u64> {
    let counting = samples
        .iter()
        .filter(|it| it.counter == INSTRUCTIONS && it.ip < PROGRAM_END);
    let ends = counting
        .zip(1..)
        .filter(|(_, n)| (n * PERIOD) / INTERVAL != ((n - 1) * PERIOD) / INTERVAL);
    ends.map(|(sample, _)| sample.executed).collect()
}

/// The exact vectors: the trace walked from branch to branch, user code of the program alone.
fn exact(
    branches: &[Entry],
    borders: &[u64],
    lengths: &BTreeMap<u64, u64>,
    blocks: &HashMap<u64, u32>,
) -> Vec<Vector<u32>> {
    let mut walked: HashMap<(u64, u64), Vec<u32>> = HashMap::new();
    let (mut vectors, mut vector, mut borders) = (Vec::new(), HashMap::<u32, u64>::new(), borders.iter());
    let mut border = borders.next();
    for pair in branches.windows(2) {
        let (from, to) = (pair[0].branch.to, pair[1].branch.from);
        if PROGRAM_END <= from || PROGRAM_END <= to || to < from {
            continue;
        }
        let walk = || {
            let mut at = from;
            let mut ids = Vec::new();
            while at <= to {
                // What no sample saw is in no block of the vectors.
                ids.push(blocks.get(&at).copied().unwrap_or(0));
                at += lengths.get(&at).copied().unwrap_or(1);
            }
            ids
        };
        for id in walked.entry((from, to)).or_insert_with(walk) {
            *vector.entry(*id).or_default() += 1;
        }
        if border.is_some_and(|border| *border <= pair[1].executed) {
            vectors.push(vector.drain().map(|(id, n)| (id, n as f64)).collect());
            border = borders.next();
        }
    }
    vectors
}

/// The vectors and the functions of Valgrind's exp-bbv.
fn by_valgrind(program: &Path, argument: &str) -> (Vec<Vector<u32>>, HashMap<u32, String>) {
    let name = program.file_name().unwrap().to_string_lossy();
    let directory = host::work_directory().unwrap();
    let (bb, pc) = (
        directory.join(format!("bb.{name}")),
        directory.join(format!("pc.{name}")),
    );
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args([
            "--tool=exp-bbv",
            "--demangle=no",
            &format!("--interval-size={INTERVAL}"),
        ])
        .arg(format!("--bb-out-file={}", bb.display()))
        .arg(format!("--pc-out-file={}", pc.display()))
        .arg(program)
        .arg(argument);
    host::run(valgrind.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/")).unwrap();
    let read = |path| std::fs::read_to_string(path).unwrap();
    (read_vectors(&read(bb)), read_functions(&read(pc)))
}

/// Simulation points of vectors, by the program's own choice.
fn points_of(vectors: &[Vector<u32>]) -> SimPoints {
    let points = vectors.iter().map(|vector| {
        let vector: Vec<(u32, f64)> = vector.iter().map(|(id, n)| (*id, *n)).collect();
        projected(&vector)
    });
    of_points(&points.collect::<Vec<_>>(), 6)
}

/// The same of vectors by function. The projection is at random by the number of what it projects, and so is, at times, the
/// number of phases: both sets of vectors are to have the same numbers.
fn points_by_function(vectors: &[Vector<String>], numbers: &BTreeMap<&str, u32>) -> SimPoints {
    let numbered = |vector: &Vector<String>| {
        vector
            .iter()
            .map(|(name, n)| (numbers[name.as_str()], *n))
            .collect()
    };
    points_of(&vectors.iter().map(numbered).collect::<Vec<_>>())
}

/// The greatest difference of the weights of two choices, the largest beside the largest.
fn weights_apart(ours: &SimPoints, theirs: &SimPoints) -> f64 {
    let weights = |points: &SimPoints| {
        let mut weights: Vec<f64> = points.points.iter().map(|(_, weight)| *weight).collect();
        weights.sort_by(|a, b| b.total_cmp(a));
        weights.resize(16, 0.0);
        weights
    };
    let pairs = weights(ours).into_iter().zip(weights(theirs));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Vectors of a program on the emulated machine; `None` where there cannot be one.
fn recorded(source: &str, name: &str, argument: &str) -> Option<Outcome> {
    let machine = support::machine("6.12")?;
    let machine = machine.clock(Clock::Instructions).marks(Marks::Events).traced();
    // The emulated PMU has room for some hundred records: at these periods they are taken out of it more often than
    // usual, as lost samples would shift the borders.
    let mut machine = machine.driver("drain_us=50");
    support::add_workload(&mut machine, source);
    machine.files().hbbp_sys().unwrap();
    let (path, size) = (format!("/bin/{name}"), INTERVAL.to_string());
    let bbv = ["/bin/hbbp-sys", "bbv", "--user", "--interval-size", &size];
    let points = ["--simpoints", "6", "-o", "/out", "--", &path, argument];
    let outcome = machine.run(&[&bbv[..], &points].concat()).unwrap();
    outcome.stdout().unwrap();
    Some(outcome)
}

/// The program's own file has the weights of these vectors, which stand in `bb.out` without fractions.
#[track_caller]
fn assert_in_file(own: &SimPoints, weights: &str) {
    let in_file = weights.lines().map(|line| line.split(' ').next().unwrap());
    let own = own.points.iter().map(|(_, weight)| format!("{weight:.6}"));
    assert!(in_file.map(str::to_owned).eq(own), "{weights}");
}

#[test]
fn vectors_are_those_of_the_trace_and_of_valgrind() {
    for (source, name, argument) in PROGRAMS {
        let Some(outcome) = recorded(source, name, argument) else {
            return;
        };
        let text = |name: &str| outcome.text(name).unwrap();
        let ours = read_vectors(&text("bb.out"));
        let lengths = lengths(&outcome);
        let blocks = blocks_of(&text("blocks.csv"), &lengths);
        let branches = trace::read_branches(&outcome.directory().join(trace::branch_file(0))).unwrap();
        let samples = trace::read_samples(&outcome.directory().join(trace::sample_file(0))).unwrap();
        let exact = exact(&branches, &borders(&samples), &lengths, &blocks);
        let (theirs, names) = by_valgrind(&artifacts::workload(source).unwrap(), argument);
        let own_names = read_functions(&text("pc.out"));
        let functions = |vectors: &[Vector<u32>], names: &HashMap<u32, String>| -> Vec<Vector<String>> {
            let of = |vector| summed_by(vector, |id| names.get(&id).cloned().unwrap_or_default());
            vectors.iter().map(of).collect()
        };
        let to_trace = mean_distance(&ours, &exact);
        let by_function = [functions(&ours, &own_names), functions(&theirs, &names)];
        let to_valgrind = mean_distance(&by_function[0], &by_function[1]);
        let all: BTreeSet<&str> = by_function
            .iter()
            .flatten()
            .flat_map(|it| it.keys().map(String::as_str))
            .collect();
        let numbers: BTreeMap<&str, u32> = all.into_iter().zip(0..).collect();
        println!(
            "{name}: user samples say {} intervals; {:?}",
            borders(&samples).len(),
            outcome.counters()
        );
        let (own, of_trace) = (points_of(&ours), points_of(&exact));
        let [own_functions, of_valgrind] = by_function.each_ref().map(|it| points_by_function(it, &numbers));
        println!(
            "{name}: {} intervals, distance {:.2} % to the trace, {:.2} % by function to valgrind; {} and {}, {} and {} phases",
            ours.len(),
            100.0 * to_trace,
            100.0 * to_valgrind,
            own.points.len(),
            of_trace.points.len(),
            own_functions.points.len(),
            of_valgrind.points.len(),
        );
        println!(
            "{:?}\n{:?}\n{:?}\n{:?}",
            own.points, of_trace.points, own_functions.points, of_valgrind.points
        );
        assert!(to_trace <= DISTANCE, "{name}: {to_trace}");
        assert!(to_valgrind <= DISTANCE, "{name}: {to_valgrind}");
        let pairs = [(&own, &of_trace), (&own_functions, &of_valgrind)];
        for (own, other) in pairs.into_iter().filter(|_| name != STEADY) {
            assert!(own.points.len().abs_diff(other.points.len()) <= 1, "{name}");
            // Where one has a phase more, it split one of the other's: of thirty intervals, two are more than the bound.
            let is_split = own.points.len() != other.points.len();
            assert!(is_split || weights_apart(own, other) <= DISTANCE, "{name}");
        }
        assert_in_file(&own, &text("weights"));
    }
}

#[test]
fn files_are_read_by_simpoints_rules() {
    let text = "# a comment\nT:1:4   :22:2   \n#T:3:9\nT:3:7\n\n# Thread 1: all\n";
    let vectors = read_vectors(text);
    assert_eq!(
        vectors,
        [Vector::from([(1, 4.0), (22, 2.0)]), Vector::from([(3, 7.0)])]
    );
    assert!((distance(&vectors[0], &vectors[1]) - 2.0).abs() < 1e-9);
    assert_eq!(read_functions("F:3:401000:main::x\n")[&3], "main::x");
}
