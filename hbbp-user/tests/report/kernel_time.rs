//! Kernel code by process: the kernel is estimated once, and its processes sum to it.

use proptest::prelude::*;

use hbbp_analysis::mix::{Dimension, Mix, Query, analyse};
use hbbp_estimate::{Rule, rule};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::row::merge_rows;
use hbbp_model::snapshot::{BranchCount, Interval, IpCount, Process, ProcessIdx, Snapshot, StreamCount};

use super::program;

/// The snapshot with its kernel code divided between the idle task, the program, and another one, in these parts.
fn divided(mut snapshot: Snapshot, parts: [u64; 3]) -> Snapshot {
    snapshot.processes.push(Process {
        tgid: 4800,
        comm: "dd".to_owned(),
        mappings: Vec::new(),
        ..snapshot.processes[1].clone()
    });
    let all = parts.iter().sum::<u64>().max(1);
    let of = |n: u64| parts.map(|part| n * part / all);
    let named = |process: usize| ProcessIdx(u32::try_from(process).unwrap());
    for interval in &mut snapshot.intervals {
        let ips = std::mem::take(&mut interval.ips);
        for ip in ips {
            if ip.ip.ring() == Ring::User {
                interval.ips.push(ip);
                continue;
            }
            let (hits, weights) = (of(ip.hits), of(ip.weight));
            for (nth, (hits, weight)) in hits.into_iter().zip(weights).enumerate() {
                let process = named(nth);
                interval.ips.push(IpCount {
                    process,
                    hits,
                    weight,
                    ..ip
                });
            }
        }
        let streams = std::mem::take(&mut interval.streams);
        for stream in streams {
            if stream.start.ring() == Ring::User {
                interval.streams.push(stream);
                continue;
            }
            for (nth, hits) in of(stream.hits).into_iter().enumerate() {
                interval.streams.push(StreamCount {
                    process: named(nth),
                    hits,
                    weight: stream.weight * hits as f64 / stream.hits as f64,
                    ..stream
                });
            }
        }
        divide_branches(interval, of);
        interval.ips.retain(|ip| ip.hits != 0);
        interval.streams.retain(|stream| stream.hits != 0);
        interval.branches.retain(|branch| branch.hits != 0);
    }
    snapshot
}

/// Divides the kernel's branches of an interval.
fn divide_branches(interval: &mut Interval, of: impl Fn(u64) -> [u64; 3]) {
    let branches = std::mem::take(&mut interval.branches);
    for branch in branches {
        if branch.from.ring() == Ring::User {
            interval.branches.push(branch);
            continue;
        }
        let (hits, oldest) = (of(branch.hits), of(branch.oldest));
        for (nth, (hits, oldest)) in hits.into_iter().zip(oldest).enumerate() {
            let process = ProcessIdx(u32::try_from(nth).unwrap());
            interval.branches.push(BranchCount {
                process,
                hits,
                oldest,
                ..branch
            });
        }
    }
}

/// The same as profiles had it that counted the kernel once for the system.
fn together(mut snapshot: Snapshot) -> Snapshot {
    for interval in &mut snapshot.intervals {
        for ip in interval.ips.iter_mut().filter(|it| it.ip.ring() == Ring::Kernel) {
            ip.process = ProcessIdx::KERNEL;
        }
        for stream in interval
            .streams
            .iter_mut()
            .filter(|it| it.start.ring() == Ring::Kernel)
        {
            stream.process = ProcessIdx::KERNEL;
        }
        for branch in interval
            .branches
            .iter_mut()
            .filter(|it| it.from.ring() == Ring::Kernel)
        {
            branch.process = ProcessIdx::KERNEL;
        }
        merge_rows(&mut interval.ips, Vec::new());
        merge_rows(&mut interval.streams, Vec::new());
        merge_rows(&mut interval.branches, Vec::new());
    }
    snapshot
}

/// The snapshot as live profiles are: kernel streams counted once for the system, and samples of addresses by process.
fn divided_by_samples(snapshot: Snapshot, parts: [u64; 3]) -> Snapshot {
    let mut divided = divided(snapshot, parts);
    let once = together(divided.clone());
    for (interval, once) in divided.intervals.iter_mut().zip(once.intervals) {
        interval.streams = once.streams;
        interval.branches = once.branches;
    }
    divided
}

fn mix(snapshot: &Snapshot, dimensions: &[Dimension]) -> Mix {
    let rule: Rule = rule::DEFAULT.parse().unwrap();
    analyse(snapshot, &Query::by(dimensions.iter().copied()), &rule).mix
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// The kernel's amount of each row.
fn kernel(mix: &Mix) -> Vec<(Vec<String>, f64)> {
    let column = mix
        .columns
        .iter()
        .position(|column| column.key == ["kernel"])
        .unwrap();
    let mut rows: Vec<_> = mix
        .rows
        .iter()
        .map(|row| (row.key.clone(), row.cells[column].amount))
        .collect();
    rows.retain(|(_, amount)| 0.0 < *amount);
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

#[test]
fn kernel_code_counts_for_its_processes() {
    for snapshot in [
        program::clocked(),
        program::retired(),
        program::stacked(),
        program::classed(),
    ] {
        let mix = mix(&divided(snapshot, [0, 3, 1]), &[Dimension::Process]);
        let rows = kernel(&mix);
        let names: Vec<&str> = rows.iter().map(|(key, _)| key[0].as_str()).collect();
        assert_eq!(names, ["dd (4800)", "sum (4711)"]);
        assert!(is_near(3.0 * rows[0].1, rows[1].1), "{rows:?}");
    }
}

/// Where the streams are counted once, samples show their processes.
#[test]
fn kernel_streams_are_divided_by_samples() {
    let snapshot = divided_by_samples(program::stacked(), [0, 3, 1]);
    let rows = kernel(&mix(&snapshot, &[Dimension::Process]));
    let names: Vec<&str> = rows.iter().map(|(key, _)| key[0].as_str()).collect();
    assert_eq!(names, ["dd (4800)", "sum (4711)"]);
    let kernel_ips = snapshot.intervals.iter().flat_map(|interval| &interval.ips);
    let weight = |process| {
        let of = kernel_ips
            .clone()
            .filter(|it| it.ip.ring() == Ring::Kernel && it.process == ProcessIdx(process));
        of.map(|it| it.weight as f64).sum::<f64>()
    };
    assert!(is_near(rows[0].1 / rows[1].1, weight(2) / weight(1)), "{rows:?}");
}

#[test]
fn functions_and_classes_of_the_kernel_have_processes() {
    for snapshot in [divided, divided_by_samples].map(|by| by(program::stacked(), [0, 3, 1])) {
        functions_and_classes_have_processes(&snapshot);
    }
}

fn functions_and_classes_have_processes(snapshot: &Snapshot) {
    let rows = kernel(&mix(
        snapshot,
        &[Dimension::Function, Dimension::Process, Dimension::Mnemonic],
    ));
    assert!(rows.iter().all(|(key, _)| key[0] == "spin_wait"));
    let of = |name: &str| rows.iter().filter(|(key, _)| key[1].starts_with(name)).count();
    assert!(0 < of("dd") && of("dd") == of("sum"), "{rows:?}");
}

/// Kernel code of the idle task, and all of it in profiles that were recorded without processes.
#[test]
fn kernel_code_of_no_process_is_the_kernels() {
    let rows = kernel(&mix(
        &divided(program::stacked(), [2, 1, 1]),
        &[Dimension::Process],
    ));
    assert_eq!(rows[0].0, ["[kernel]"]);
    let all: f64 = rows.iter().map(|(_, amount)| amount).sum();
    assert!(is_near(2.0 * rows[0].1, all), "{rows:?}");
    let rows = kernel(&mix(&program::stacked(), &[Dimension::Process]));
    assert_eq!(
        (rows.len(), rows[0].0.as_slice()),
        (1, &["[kernel]".to_owned()][..])
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// However the kernel's code is divided between processes: the estimate of the system is the same, and rows by process sum
    /// to it.
    #[test]
    fn processes_sum_to_the_kernel(parts in prop::array::uniform3(0_u64..20)) {
        let programs = [program::clocked, program::retired, program::stacked, program::classed];
        let live = programs.map(|program| divided_by_samples(program(), parts));
        for snapshot in programs.map(|program| divided(program(), parts)).into_iter().chain(live) {
            let once = together(snapshot.clone());
            let (apart, whole) = (mix(&snapshot, &[Dimension::Mnemonic]), mix(&once, &[Dimension::Mnemonic]));
            prop_assert!(is_near(apart.total.amount, whole.total.amount));
            let (rows, expected) = (kernel(&apart), kernel(&whole));
            prop_assert_eq!(rows.len(), expected.len());
            for ((key, amount), (other, expected)) in rows.iter().zip(&expected) {
                prop_assert_eq!(key, other);
                prop_assert!(is_near(*amount, *expected), "{:?}: {} and {}", key, amount, expected);
            }
            let by_process = mix(&snapshot, &[Dimension::Process, Dimension::Mnemonic]);
            prop_assert!(is_near(by_process.total.amount, apart.total.amount));
            for (key, amount) in kernel(&apart) {
                let of_key = kernel(&by_process).into_iter().filter(|(it, _)| it[1..] == key);
                let sum: f64 = of_key.map(|(_, amount)| amount).sum();
                prop_assert!(is_near(sum, amount), "{:?}: {} of {}", key, sum, amount);
            }
        }
    }
}
