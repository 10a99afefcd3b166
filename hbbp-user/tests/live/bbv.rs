//! `hbbp-sys bbv` on this machine: intervals of time where it has a clock alone, threads, bad input, a full disk.

use std::io::Read as _;
use std::path::Path;
use std::process::{Output, Stdio};

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
    built(folder, "two", text, &[]).to_str().unwrap().to_owned()
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
    // Kernel work belongs to the thread that requested it.
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

    // The file states a total for each thread, which is the sum of its vectors.
    for (name, read) in [("bb.out", &first), ("bb.out.2", &second)] {
        let text = std::fs::read_to_string(directory.join(name)).unwrap();
        assert!(text.contains("#   Intervals are spans of time"), "{text}");
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

/// Names as exp-bbv's options have them: each process has its vectors and the addresses of its blocks.
#[test]
fn processes_have_files_of_their_own_where_asked() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = threaded(folder.path());
    let both = format!(
        "echo $$ > {0}/shell; {program} & echo $! > {0}/first; {program}; wait",
        folder.path().display()
    );
    let vectors = format!("{}/%q{{HBBP_TEST_RUN}}.%p", folder.path().display());
    let places = format!("{}/pc.%p", folder.path().display());
    let mut command = super::program(&["bbv", "--per-thread", "--event", "cpu-clock"]);
    command.args([
        "--interval-size",
        "20000000",
        "--bb-out-file",
        &vectors,
        "--pc-out-file",
        &places,
    ]);
    command.args(["--", "sh", "-c", &both]).env("HBBP_TEST_RUN", "bb");
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));

    let text = |name: String| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let first = text("first".to_owned());
    let first = first.trim();
    let names = |beginning: &str| {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(beginning)).count()
    };
    // Two threads of each of two processes, and the shell, if it has a sample.
    assert!((4..=5).contains(&names("bb.")), "{}", names("bb."));
    assert!((2..=3).contains(&names("pc.")));
    assert!(
        !folder.path().join("blocks.csv").exists(),
        "no directory was named"
    );
    let vectors = [text(format!("bb.{first}")), text(format!("bb.{first}.2"))];
    for (n, text) in vectors.iter().enumerate() {
        assert!(text.contains(&format!(" ({first}), thread ")), "{n}: {text}");
    }
    // The ids of a process's vectors are those of its blocks.
    let places: Vec<String> = text(format!("pc.{first}"))
        .lines()
        .map(|line| line.split(':').nth(1).unwrap().to_owned())
        .collect();
    let ids = vectors
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.contains("T:"));
    let ids = ids.flat_map(|line| {
        line.split_whitespace()
            .map(|pair| pair.split(':').nth(1).unwrap())
    });
    let mut n = 0;
    for id in ids {
        assert!(places.iter().any(|place| place == id), "{id} of {places:?}");
        n += 1;
    }
    assert!(10 < n, "{n} values");
}

/// Totals of threads are printed, and no file is made.
#[test]
fn totals_alone_are_printed() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = threaded(folder.path());
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    let mut command = super::program(&[
        "bbv",
        "--per-thread",
        "--instr-count-only",
        "--event",
        "cpu-clock",
    ]);
    command
        .args(["--interval-size", "3000000000", "--", &program])
        .current_dir(folder.path());
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    // It ends long before an interval does: no vector is asked for, so nothing is said of that.
    assert!(!said(&output).contains("was completed"), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("#   Total instructions: ").count(), 2, "{text}");
    assert_eq!(
        text.matches("#   Total fldcw instructions: 0, in units of time")
            .count(),
        2,
        "{text}"
    );
    assert!(!text.contains("T:"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before);
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

/// Threads that exceed the capacity are reported and have no vectors.
#[test]
fn threads_beyond_capacity_are_counted_without_vectors() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    // 400 threads of about 3 ms, one after the other.
    let text = "#include <pthread.h>\n\
                static void *work(void *n) { for (volatile long x = 0; x < 3000000; x++); return n; }\n\
                int main(void) { for (int i = 0; i < 400; i++) { pthread_t t; \
                pthread_create(&t, 0, work, 0); pthread_join(t, 0); } }\n";
    let program = built(folder.path(), "many", text, &[]);
    let directory = folder.path().join("vectors");
    // Room for a quarter as many threads.
    let words = [
        "bbv",
        "--per-thread",
        "--map-entries",
        "1024",
        "--event",
        "cpu-clock",
    ];
    let size = ["--interval-size", "1000000", "-o", directory.to_str().unwrap()];
    let output = run(&[&words[..], &size, &["--", program.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let said = said(&output);
    assert!(
        said.contains("samples and streams are in no interval, of threads that there was no room for"),
        "{said}"
    );
    let number = |text: &str| text.rsplit([' ', '\n']).next().unwrap().parse::<f64>().unwrap();
    let (share, _) = said
        .split_once(" % of what was executed is in no interval for that reason")
        .unwrap();
    // 144 of 400 threads, if all are alike.
    assert!((15.0..=60.0).contains(&number(share)), "{said}");
    let files = std::fs::read_dir(&directory).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_str().unwrap().starts_with("bb.out")
    });
    assert!((200..=256).contains(&files.count()));
    let text = std::fs::read_to_string(directory.join("bb.out")).unwrap();
    assert!(
        text.contains("#   ") && text.contains("there was no room for"),
        "{text}"
    );
}

/// A program that runs for some seconds of its own time, in 400 functions by turns.
fn of_many_functions(folder: &Path, seconds: u32) -> String {
    let functions: String = (0..400)
        .map(|i| format!("long f{i}(long x) {{ for (int n = 0; n < 400; n++) x = x * {i} + (x >> 3) % 7; return x; }}\n"))
        .collect();
    let table: String = (0..400).map(|i| format!("f{i},")).collect();
    let text = format!(
        "#include <time.h>\n{functions} long (*all[])(long) = {{ {table} }};\n\
         int main(void) {{ long x = 1; for (int n = 0; clock() < {seconds}L * CLOCKS_PER_SEC; n++) \
         for (int i = 0; i < 100; i++) x = all[n / 100 % 4 * 100 + i](x); return x == 3; }}\n"
    );
    built(folder, "functions", &text, &[])
        .to_str()
        .unwrap()
        .to_owned()
}

/// Runs the program; gives what it said and the most memory that it had, in bytes.
#[expect(
    clippy::zombie_processes,
    reason = "it is waited for by wait4, which reports its memory"
)]
fn with_memory(words: &[&str]) -> (String, u64) {
    let mut child = super::program(words).stderr(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    // SAFETY: all zeros are a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let (pid, mut status) = (child.id().cast_signed(), 0);
    // SAFETY: a child of ours that has no other waiter; both pointers are valid.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    assert!(waited == pid && status == 0, "{text}");
    (text, usage.ru_maxrss.cast_unsigned() << 10)
}

/// As many intervals as an hour of 100 million instructions has at a thousand million a second.
#[test]
fn an_hour_of_intervals_takes_less_than_200_mb() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = of_many_functions(folder.path(), 4);
    let directory = folder.path().join("vectors");
    let words = [
        "bbv",
        "--event",
        "cpu-clock",
        "--period",
        "10007",
        "--simpoints",
        "5",
    ];
    let size = ["--interval-size", "100000", "-o", directory.to_str().unwrap()];
    let (said, memory) = with_memory(&[&words[..], &size, &["--", &program]].concat());
    let read = read(&directory, "bb.out");
    println!("{} intervals, {memory} bytes; {said}", read.intervals);
    assert!(36_000 <= read.intervals && memory < 200_000_000);
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

    // Before anything is measured, too.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (place, sentence) in [
        (file.clone(), "it is not a directory"),
        (file.join("x"), "cannot make the directory"),
    ] {
        let output = run(&["bbv", "-o", place.to_str().unwrap(), "--", "true"]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(sentence), "{}", said(&output));
    }
}

#[test]
fn a_run_shorter_than_an_interval_says_so() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("vectors");
    let words = ["bbv", "--event", "cpu-clock", "-o", directory.to_str().unwrap()];
    let output = run(&[&words[..], &["--interval-size", "3600000000000", "--", "true"]].concat());
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("no interval of 3600000000000 was completed: shorten them"),
        "{}",
        said(&output)
    );
    // `true` may have no sample at all, and then it has no thread.
    assert!(!directory.join("bb.out").exists() || read(&directory, "bb.out").intervals == 0);
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
