//! `hbbp-sys bbv` on this machine: intervals of time where it has a clock alone, threads, bad input, a full disk.

use std::path::Path;
use std::process::Output;

use super::load::{SmallDisk, built};
use super::{kernel, run};

/// Sums of the blocks in a file of vectors, all lines; and how many whole intervals it has.
struct Read {
    intervals: usize,
    kernel: f64,
    user: f64,
}

fn read(directory: &Path, name: &str) -> Read {
    let text = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let blocks = text("blocks.csv");
    let kernel: Vec<bool> = blocks
        .lines()
        .skip(1)
        .map(|line| line.contains(",kernel,"))
        .collect();
    let mut read = Read {
        intervals: 0,
        kernel: 0.0,
        user: 0.0,
    };
    for line in text(name).lines() {
        let line = match line.strip_prefix("#T") {
            Some(rest) => rest,
            None if line.starts_with('T') => {
                read.intervals += 1;
                &line[1..]
            }
            None => continue,
        };
        for pair in line.split_whitespace() {
            let (id, count) = pair.strip_prefix(':').unwrap().split_once(':').unwrap();
            let (id, count): (usize, f64) = (id.parse().unwrap(), count.parse().unwrap());
            *(if kernel[id - 1] {
                &mut read.kernel
            } else {
                &mut read.user
            }) += count;
        }
    }
    read
}

/// A program whose second thread calls the kernel all the time, while the first one counts.
fn threaded(folder: &Path) -> String {
    let text = "#include <pthread.h>\n#include <unistd.h>\n\
                static void *calls(void *n) { for (long i = 0; i < 1000000; i++) getppid(); return n; }\n\
                int main(void) { pthread_t t; volatile long x = 0; pthread_create(&t, 0, calls, 0); \
                for (long i = 0; i < 300000000; i++) x += i; pthread_join(t, 0); }\n";
    built(folder, "two", text).to_str().unwrap().to_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn threads_have_vectors_of_their_own_that_sum_to_the_process() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = threaded(folder.path());
    let directory = folder.path().join("vectors");
    let size = ["--interval-size", "20000000", "--event", "cpu-clock"];
    let words = [
        "bbv",
        "--per-thread",
        "--simpoints",
        "5",
        "-o",
        directory.to_str().unwrap(),
    ];
    let output = run(&[&words[..], &size, &["--", &program]].concat());
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("Intervals are spans of time"),
        "{}",
        said(&output)
    );

    let (first, second) = (read(&directory, "bb.out"), read(&directory, "bb.out.2"));
    assert!(
        2 < first.intervals && 2 < second.intervals,
        "{} {}",
        first.intervals,
        second.intervals
    );
    // The work of the kernel belongs to the thread that asked for it.
    assert!(second.user < second.kernel && first.kernel < first.user / 2.0);
    for name in [
        "simpoints",
        "weights",
        "phases.svg",
        "simpoints.2",
        "weights.2",
        "phases.2.svg",
        "pc.out",
    ] {
        assert!(directory.join(name).is_file(), "{name}");
    }
    let weights = std::fs::read_to_string(directory.join("weights")).unwrap();
    let sum: f64 = weights
        .lines()
        .map(|line| line.split(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert!((sum - 1.0).abs() < 1e-4, "{weights}");

    // Of each thread, the file says a total that is the sum of its vectors.
    for (name, read) in [("bb.out", &first), ("bb.out.2", &second)] {
        let text = std::fs::read_to_string(directory.join(name)).unwrap();
        let (_, total) = text.split_once("Total instructions: ").unwrap();
        let total: f64 = total
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let sum = read.kernel + read.user;
        assert!((sum - total).abs() <= 0.001 * total, "{name}: {sum} of {total}");
    }
}

#[test]
fn intervals_of_the_whole_system_are_of_all_threads_together() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = threaded(folder.path());
    let directory = folder.path().join("vectors");
    let words = [
        "bbv",
        "--all",
        "--interval-size",
        "50000000",
        "--event",
        "cpu-clock",
        "-o",
    ];
    let output = run(&[&words[..], &[directory.to_str().unwrap(), "--", &program]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let read = read(&directory, "bb.out");
    assert!(2 < read.intervals && 0.0 < read.kernel && 0.0 < read.user);
    assert!(!directory.join("bb.out.2").exists());
}

#[test]
fn intervals_that_cannot_be_are_refused_in_one_sentence() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("vectors");
    let refused = |words: &[&str], code: i32| {
        let all = [
            &["bbv", "-o", directory.to_str().unwrap()],
            words,
            &["--", "true"],
        ]
        .concat();
        let output = run(&all);
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert_eq!(said(&output).trim().lines().count(), 1, "{}", said(&output));
        said(&output)
    };
    let shorter = refused(&["--event", "cpu-clock", "--interval-size", "50000"], 1);
    assert!(
        shorter.contains("an interval of 50000 is shorter than the period of cpu-clock, 100003"),
        "{shorter}"
    );
    let frequency = refused(&["--frequency", "1000"], 2);
    assert!(frequency.contains("intervals need a period"), "{frequency}");
    assert!(!directory.join("bb.out").exists());
}

#[test]
fn full_disk_saves_the_vectors_elsewhere() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let Some(disk) = SmallDisk::mount(path) else {
        return;
    };
    let load = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let words = [
        "bbv",
        "--event",
        "cpu-clock",
        "--interval-size",
        "20000000",
        "-o",
        path,
    ];
    let output = run(&[&words[..], &["--", "sh", "-c", load]].concat());
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    drop(disk);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("No space left") && left.len() <= 1,
        "{} {left:?}",
        said(&output)
    );
    let said = said(&output);
    let (_, elsewhere) = said.split_once("the vectors were saved in ").unwrap();
    let elsewhere = Path::new(elsewhere.split_once(" instead").unwrap().0);
    assert!(0 < read(elsewhere, "bb.out").intervals);
    std::fs::remove_dir_all(elsewhere).unwrap();
}
