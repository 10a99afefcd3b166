//! Basic block vectors interval by interval: against those of the exact trace, and against Valgrind's exp-bbv of the same
//! program on the host.

mod files;
mod lost;
mod threads;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;

use hbbp_analysis::vectors::simpoint::{SimPoints, of_points, projected, projected_variance};
use kernel_tests::machine::{Clock, Marks};
use kernel_tests::outcome::Outcome;
use kernel_tests::{artifacts, host};

use crate::support;
use files::{
    INTERVAL, Vector, blocks_of, exact_vectors, lengths, mean_distance, read_functions, read_vectors,
};

/// Source, name of the program, argument: some ten to twenty million instructions, which a trace of every branch can hold.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("phases.c", "phases", "4"),
    ("heapsort.c", "heapsort", "30000"),
    ("virtual.cc", "virtual", "4000"),
];
/// Mean distance that is allowed.
const DISTANCE: f64 = 0.05;
/// Difference of weights that is allowed.
const WEIGHTS: f64 = 0.05;
/// Most phases that are chosen.
const MOST_PHASES: usize = 6;

/// Adds up what has the same name.
fn summed_by<K: Ord>(vector: &Vector<u32>, name: impl Fn(u32) -> K) -> Vector<K> {
    let mut sums = Vector::new();
    for (id, value) in vector {
        *sums.entry(name(*id)).or_default() += value;
    }
    sums
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

/// Simulation points of vectors, by the program's own choice, where chance leaves this variance.
fn points_of(vectors: &[Vector<u32>], chance: f64) -> SimPoints {
    let points = vectors.iter().map(|vector| {
        let vector: Vec<(u32, f64)> = vector.iter().map(|(id, n)| (*id, *n)).collect();
        projected(&vector)
    });
    of_points(
        &points.collect::<Vec<_>>(),
        MOST_PHASES,
        projected_variance(chance),
    )
}

/// The same of vectors by function. The projection is at random by the number of what it projects, and so is, at times, the
/// number of phases: both sets of vectors are to have the same numbers.
fn points_by_function(vectors: &[Vector<String>], numbers: &BTreeMap<&str, u32>, chance: f64) -> SimPoints {
    let numbered = |vector: &Vector<String>| {
        vector
            .iter()
            .map(|(name, n)| (numbers[name.as_str()], *n))
            .collect()
    };
    points_of(&vectors.iter().map(numbered).collect::<Vec<_>>(), chance)
}

/// The variance by chance that the file states.
fn chance_of(text: &str) -> f64 {
    let (_, rest) = text.split_once("Chance leaves a variance of ").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// The weights of the phases of a choice.
fn weights(points: &SimPoints) -> Vec<f64> {
    points.points.iter().map(|(_, weight)| *weight).collect()
}

/// The greatest difference of the weights of two choices, matched from the largest down. A phase that only one choice has is
/// compared with zero.
fn apart(ours: &[f64], theirs: &[f64]) -> f64 {
    let descending = |weights: &[f64]| {
        let mut weights = weights.to_vec();
        weights.sort_by(|a, b| b.total_cmp(a));
        weights.resize(MOST_PHASES, 0.0);
        weights
    };
    let pairs = descending(ours).into_iter().zip(descending(theirs));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The weights with two phases taken for one, for any two.
fn joined(weights: &[f64]) -> impl Iterator<Item = Vec<f64>> {
    let pairs = (0..weights.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
    pairs.map(|(a, b)| {
        let mut joined = weights.to_vec();
        joined[a] += joined.remove(b);
        joined
    })
}

/// The distance of the phases of two choices: the greatest difference of their weights, where one may have split a
/// phase of the other. Streams of one stack come together, so that chance is larger than by the hits alone. `virtual`
/// does the same all the time, and can have two phases for one.
///
/// The number of phases is not checked. The few intervals in which the program changes its phase form one phase or two, depending
/// on the borders of intervals. Any least weight of a phase would have such phases on either side of it.
fn phases_apart(ours: &SimPoints, theirs: &SimPoints) -> f64 {
    let (ours, theirs) = (weights(ours), weights(theirs));
    let as_they_are = apart(&ours, &theirs);
    let ours_joined = joined(&ours).map(|ours| apart(&ours, &theirs));
    let theirs_joined = joined(&theirs).map(|theirs| apart(&ours, &theirs));
    ours_joined.chain(theirs_joined).fold(as_they_are, f64::min)
}

/// The same phases as another, with such weights. An interval more than the other has is in one of the phases.
#[track_caller]
fn assert_alike(name: &str, (own, other): (&SimPoints, &SimPoints), (n, of_other): (usize, usize)) {
    let more = n.abs_diff(of_other) as f64 / n as f64;
    let apart = phases_apart(own, other);
    println!("{name}: weights of phases are {:.1} points apart", 100.0 * apart);
    assert!(apart <= WEIGHTS + more, "{name}: {apart}");
}

#[test]
#[ignore = "runs in --all"]
fn phases_are_alike_by_their_weights() {
    let of = |weights: &[f64]| SimPoints {
        labels: Vec::new(),
        points: (0..).zip(weights.iter().copied()).collect(),
    };
    let is_near = |ours: &[f64], theirs: &[f64]| phases_apart(&of(ours), &of(theirs)) <= WEIGHTS;
    // A small phase is missing in the other, or is two.
    assert!(is_near(
        &[0.48, 0.29, 0.09, 0.07, 0.07],
        &[0.51, 0.27, 0.09, 0.044, 0.044, 0.042]
    ));
    assert!(is_near(&[0.5, 0.5], &[0.52, 0.44, 0.04]));
    // A phase of one is split by the other; both by each other, or one twice, is too much.
    assert!(is_near(&[0.5, 0.3, 0.2], &[0.5, 0.5]) && is_near(&[1.0], &[0.6, 0.4]));
    assert!(!is_near(&[0.4, 0.3, 0.3], &[0.6, 0.2, 0.2]) && !is_near(&[1.0], &[0.5, 0.3, 0.2]));
    assert!(!is_near(&[0.6, 0.4], &[0.52, 0.48]) && !is_near(&[], &[1.0]));
}

/// Vectors of a program on the emulated machine of a hardware profile; `None` if there cannot be one.
fn recorded((source, name, argument): (&str, &str, &str), hardware_profile: &str) -> Option<Outcome> {
    let machine = support::machine("6.12")?;
    let machine = machine.clock(Clock::Instructions).marks(Marks::Events).traced();
    // The emulated PMU has room for some hundred records: at these periods they are taken out of it more often than
    // usual.
    let mut machine = machine.hardware_profile(hardware_profile).driver("drain_us=50");
    support::add_workload(&mut machine, source);
    machine.files().hbbp_sys().unwrap();
    let (path, size) = (format!("/bin/{name}"), INTERVAL.to_string());
    let bbv = ["/bin/hbbp-sys", "bbv", "--user", "--interval-size", &size];
    let most = MOST_PHASES.to_string();
    let points = ["--simpoints", &most, "-o", "/out", "--", &path, argument];
    let outcome = machine.run(&[&bbv[..], &points].concat()).unwrap();
    outcome.stdout().unwrap();
    Some(outcome)
}

/// The program's own file has the weights of these vectors, which are in `bb.out` without fractions.
#[track_caller]
fn assert_in_file(own: &SimPoints, weights: &str) {
    let in_file = weights.lines().map(|line| line.split(' ').next().unwrap());
    let own = own.points.iter().map(|(_, weight)| format!("{weight:.6}"));
    assert!(in_file.map(str::to_owned).eq(own), "{weights}");
}

#[test]
#[ignore = "runs in --all"]
fn vectors_are_those_of_the_trace_and_of_valgrind() {
    for program in PROGRAMS {
        let (source, name, argument) = program;
        let Some(outcome) = recorded(program, "") else {
            return;
        };
        let text = |name: &str| outcome.text(name).unwrap();
        let ours = read_vectors(&text("bb.out"));
        let lengths = lengths(&outcome);
        let blocks = blocks_of(&text("blocks.csv"), &lengths);
        let exact = exact_vectors(&outcome, &lengths, &blocks);
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
        // Phases that differ by less than the chance of samples cannot be distinguished by them: both choose what can be.
        let chance = chance_of(&text("bb.out"));
        let (own, of_trace) = (points_of(&ours, chance), points_of(&exact, chance));
        let [own_functions, of_valgrind] = by_function
            .each_ref()
            .map(|it| points_by_function(it, &numbers, chance));
        println!(
            "{name}: chance leaves {chance:.2e}; as if exact, {} phases of the trace, {} of valgrind, {} of ours",
            points_of(&exact, 0.0).points.len(),
            points_by_function(&by_function[1], &numbers, 0.0).points.len(),
            points_of(&ours, 0.0).points.len(),
        );
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
        assert_alike(name, (&own, &of_trace), (ours.len(), exact.len()));
        assert_alike(name, (&own_functions, &of_valgrind), (ours.len(), theirs.len()));
        assert_in_file(&own, &text("weights"));
    }
}
