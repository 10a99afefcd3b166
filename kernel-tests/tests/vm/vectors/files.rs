//! The files of `hbbp-sys bbv` by a reader of these tests' own, written from the description of SimPoint 3.2's input:
//! lines that begin with `T`, pairs `:ID:COUNT` with an id of 1 at the least; other lines are ignored. Exact vectors
//! come with them.

use std::collections::{BTreeMap, HashMap};

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::outcome::Outcome;
use kernel_tests::trace;

/// Instructions in an interval: a two-hundredth of the default, as the programs run for milliseconds.
pub(super) const INTERVAL: u64 = 500_000;
/// Static programs are linked to 4 MiB; all other programs of the guest lie elsewhere.
pub(super) const PROGRAM_END: u64 = 1 << 32;

/// A vector: amount by block, or by what it is summed by.
pub(super) type Vector<K> = BTreeMap<K, f64>;

/// The vectors of a file, by SimPoint's rules.
pub(super) fn read_vectors(text: &str) -> Vec<Vector<u32>> {
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
pub(super) fn read_functions(text: &str) -> HashMap<u32, String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("F:"));
    let fields = lines.map(|line| line.splitn(3, ':').collect::<Vec<&str>>());
    fields
        .map(|fields| (fields[0].parse().unwrap(), fields[2].to_owned()))
        .collect()
}

/// Sum of the absolute differences of two vectors whose sums are 1.
pub(super) fn distance<K: Ord + Clone>(a: &Vector<K>, b: &Vector<K>) -> f64 {
    let sum = |vector: &Vector<K>| vector.values().sum::<f64>();
    let (of_a, of_b) = (sum(a), sum(b));
    let mut difference: Vector<K> = a.iter().map(|(key, value)| (key.clone(), value / of_a)).collect();
    for (key, value) in b {
        *difference.entry(key.clone()).or_default() -= value / of_b;
    }
    difference.values().map(|value| value.abs()).sum()
}

/// Mean distance of vectors of the same interval.
pub(super) fn mean_distance<K: Ord + Clone>(a: &[Vector<K>], b: &[Vector<K>]) -> f64 {
    let n = a.len().min(b.len());
    assert!(
        10 < n && a.len().abs_diff(b.len()) <= 1,
        "{} and {}",
        a.len(),
        b.len()
    );
    a.iter().zip(b).map(|(a, b)| distance(a, b)).sum::<f64>() / n as f64
}

/// The block of each instruction of the program, by `blocks.csv`, whose fields before the function hold no commas.
pub(super) fn blocks_of(csv: &str, lengths: &BTreeMap<u64, u64>) -> HashMap<u64, u32> {
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

/// Lengths of all executed instructions of the program.
pub(super) fn lengths(outcome: &Outcome) -> BTreeMap<u64, u64> {
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

/// The exact vectors of a traced run: the trace walked from branch to branch, user code of the program alone, and cut where that
/// has executed that number of instructions.
pub(super) fn exact_vectors(
    outcome: &Outcome,
    lengths: &BTreeMap<u64, u64>,
    blocks: &HashMap<u64, u32>,
) -> Vec<Vector<u32>> {
    let branches = trace::read_branches(&outcome.directory().join(trace::branch_file(0))).unwrap();
    let mut walked: HashMap<(u64, u64), Vec<u32>> = HashMap::new();
    let (mut vectors, mut vector, mut executed) = (Vec::new(), HashMap::<u32, u64>::new(), 0);
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
        let ids = walked.entry((from, to)).or_insert_with(walk);
        for id in &*ids {
            *vector.entry(*id).or_default() += 1;
        }
        let before = executed;
        executed += ids.len() as u64;
        if before / INTERVAL != executed / INTERVAL {
            vectors.push(vector.drain().map(|(id, n)| (id, n as f64)).collect());
        }
    }
    vectors
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
