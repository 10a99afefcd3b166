//! Threads that are counted separately, and cgroups of processes that live for a moment.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::load::{Load, built};
use super::{kernel, number, program, report_by, run, skip_outside_ci};

/// Samples of both rings by the values of these dimensions.
fn amounts(file: &str, rows: &str) -> BTreeMap<Vec<String>, u64> {
    let report = report_by(file, rows);
    let rows = report["mix"]["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let key = row["key"].as_array().unwrap().iter();
        let key = key.map(|value| value.as_str().unwrap().to_owned()).collect();
        (key, number(&row["total"]["amount"]))
    })
    .collect()
}

/// Two threads with names of their own, and the one that waits for them.
fn threads(folder: &Path) -> PathBuf {
    let text = "#define _GNU_SOURCE\n#include <pthread.h>\n\
                static void *work(void *name) { pthread_setname_np(pthread_self(), name); volatile long x = 0;\n\
                for (long i = 0; i < 400000000; i++) x += i; return name; }\n\
                int main(void) { pthread_t a, b; pthread_create(&a, 0, work, \"first\");\n\
                pthread_create(&b, 0, work, \"second\"); pthread_join(a, 0); pthread_join(b, 0); }\n";
    built(folder, "named", text, &[])
}

#[test]
fn threads_have_rows_of_their_own_and_sum_to_their_process() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let named = threads(folder.path());
    let file = folder.path().join("threads.hbbp");
    let file = file.to_str().unwrap();
    let args = [
        "record",
        "--per-thread",
        "-o",
        file,
        "--",
        named.to_str().unwrap(),
    ];
    let output = run(&args);
    assert!(output.status.success(), "{output:?}");

    let processes = amounts(file, "process");
    let threads = amounts(file, "process,thread");
    for (process, amount) in &processes {
        let of_process = threads.iter().filter(|(key, _)| key[0] == process[0]);
        let sum: u64 = of_process.map(|(_, amount)| amount).sum();
        assert_eq!(sum, *amount, "{process:?}");
    }
    for name in ["first (", "second ("] {
        let of_name = || threads.iter().filter(|(key, _)| key[1].starts_with(name));
        assert_eq!(of_name().count(), 1, "{name}: {threads:?}");
        assert!(of_name().all(|(key, amount)| key[0].starts_with("named (") && 20 < *amount));
    }
    // Without being asked, they are counted together.
    let together = run(&["record", "-o", file, "--", "true"]);
    assert!(together.status.success(), "{together:?}");
    let threads = amounts(file, "thread");
    let known = ["[kernel]", "(all threads)"];
    assert!(
        threads.keys().all(|key| known.contains(&key[0].as_str())),
        "{threads:?}"
    );
}

/// Each task begins a period of its own, and the last one of it is not over when it ends. What that takes is among the missing
/// samples, with this reason.
#[test]
fn samples_that_short_tasks_miss_have_their_reason() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let threads = "#include <pthread.h>\n\
                   static void *work(void *x) { volatile long y = 0; for (long i = 0; i < 300000; i++) y += i; return x; }\n\
                   int main(void) { for (int i = 0; i < 400; i++) { pthread_t it; pthread_create(&it, 0, work, 0);\n\
                   pthread_join(it, 0); } }\n";
    let threads = built(folder.path(), "threads", threads, &[]);
    let forks = "i=0; while [ $i -lt 300 ]; do (:) ; i=$((i+1)); done";
    let variants: [&[&str]; 2] = [&[threads.to_str().unwrap()], &["sh", "-c", forks]];
    for command in variants {
        let file = folder.path().join("tasks.hbbp");
        let file = file.to_str().unwrap();
        let options = [
            "record",
            "-o",
            file,
            "--event",
            "cpu-clock",
            "--period",
            "1000003",
            "--",
        ];
        let recorded = run(&[&options, command].concat());
        assert!(recorded.status.success(), "{recorded:?}");
        let report = run(&["report", file, "--details"]);
        let text = String::from_utf8_lossy(&report.stdout);
        let reason = "missing: threads that ended before their period did, or an unknown cause";
        let line = text.lines().find(|line| line.contains(reason));
        let missing = line.unwrap_or_else(|| panic!("{command:?}: no reason in {text}"));
        let digits: String = missing.chars().filter(char::is_ascii_digit).collect();
        assert!(0 < digits.parse::<u64>().unwrap(), "{missing}");
        let accounting = &super::report_of(file)["accounting"];
        assert_eq!(number(&accounting["unexplained"]), 0, "{accounting}");
    }
}

/// Samples in the kernel and in user code by the values of these dimensions.
fn amounts_by_ring(file: &str, rows: &str) -> BTreeMap<Vec<String>, [u64; 2]> {
    let report = report_by(file, rows);
    let rows = report["mix"]["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let key = row["key"].as_array().unwrap().iter();
        let key = key.map(|value| value.as_str().unwrap().to_owned()).collect();
        (key, ["kernel", "user"].map(|ring| number(&row[ring]["amount"])))
    })
    .collect()
}

#[test]
fn kernel_code_counts_for_the_process_that_entered_it() {
    let Some(_kernel) = kernel() else { return };
    let loads = [Load::syscalls(), Load::spin()];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kernel.hbbp");
    let file = file.to_str().unwrap();
    let output = run(&["record", "--event", "cpu-clock", "--duration", "3", "-o", file]);
    assert!(output.status.success(), "{output:?}");

    let processes = amounts_by_ring(file, "process");
    let [reads, spins] = loads.each_ref().map(|load| {
        let of = format!("({})", load.0.id());
        let mut rows = processes.iter().filter(|(key, _)| key[0].ends_with(&of));
        let (_, amounts) = rows.next().unwrap_or_else(|| panic!("{of}: {processes:?}"));
        *amounts
    });
    // `dd` has the kernel make random bytes, and the shell counts.
    let [kernel, user] = reads;
    assert!(20 < kernel && 4 * user < kernel, "{reads:?}");
    let [kernel, user] = spins;
    assert!(20 < user && 4 * kernel < user, "{spins:?}");

    // Each ring is the sum of its processes, and so is each function.
    let rings = amounts_by_ring(file, "ring");
    for (nth, ring) in ["kernel", "user"].into_iter().enumerate() {
        let sum: u64 = processes.values().map(|amounts| amounts[nth]).sum();
        assert_eq!(sum, rings[&vec![ring.to_owned()]][nth], "{ring}");
    }
    let functions = amounts_by_ring(file, "module,function");
    let by_process = amounts_by_ring(file, "module,function,process");
    for (function, [kernel, _]) in functions {
        let of: Vec<u64> = by_process
            .iter()
            .filter_map(|(key, [kernel, _])| (key[..2] == function).then_some(*kernel))
            .collect();
        // Samples of a block are fractions of its instructions, which are rounded for each row.
        let rounding = of.len() as u64 + 1;
        let sum: u64 = of.iter().sum();
        assert!(
            sum.abs_diff(kernel) <= rounding,
            "{function:?}: {of:?} of {kernel}"
        );
    }
}

/// A cgroup that is removed when the test ends.
pub(super) struct Cgroup(pub(super) PathBuf);

impl Cgroup {
    /// A new one of this name, `None` if the unified hierarchy is not mounted or cannot be written.
    pub(super) fn named(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mut unified = fields
            .filter(|fields| fields[2] == "cgroup2")
            .map(|fields| fields[1].to_owned());
        let folder = Path::new(&unified.next()?).join(name);
        fs::create_dir(&folder).ok()?;
        Some(Self(folder))
    }

    /// The path in /proc of processes in it.
    fn path(pid: u32) -> String {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        text.lines()
            .find_map(|line| line.strip_prefix("0::"))
            .unwrap()
            .to_owned()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Processes that were killed leave it a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn processes_have_their_cgroup_however_short_they_live() {
    let Some(_kernel) = kernel() else { return };
    let Some(cgroup) = Cgroup::named(&format!("hbbp-test-{}", std::process::id())) else {
        return skip_outside_ci("the unified hierarchy of cgroups is not mounted, or cannot be written");
    };
    let procs = cgroup.0.join("cgroup.procs");
    let load = Load::shell(&format!(
        "echo $$ > {}; while :; do /bin/true; done",
        procs.display()
    ));
    while !Cgroup::path(load.0.id()).contains("hbbp-test-") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let path = Cgroup::path(load.0.id());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cgroups.hbbp");
    let file = file.to_str().unwrap();
    let output = program(&["record", "--duration", "3", "-o", file])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    drop(load);

    let cgroups = amounts(file, "cgroup");
    let all: u64 = amounts(file, "process").values().sum();
    assert_eq!(cgroups.values().sum::<u64>(), all);
    assert!(cgroups.contains_key(std::slice::from_ref(&path)), "{cgroups:?}");
    // Programs that exited before they could be read have the cgroup of the shell that started them, unless the record of
    // their fork was lost.
    let short = amounts(file, "cgroup,command");
    let short: Vec<_> = short.iter().filter(|(key, _)| key[1] == "true").collect();
    println!("{short:?}");
    assert!(short.iter().any(|(key, _)| key[0] == path));
    let known = [path.as_str(), "(unknown)"];
    assert!(
        short.iter().all(|(key, _)| known.contains(&key[0].as_str())),
        "{short:?}"
    );
    // Hundreds of them have ended and are one, but those of unknown mappings; the shell was still running.
    let processes = amounts(file, "process");
    let several = &processes[&vec!["true (several)".to_owned()]];
    println!("true (several): {several} of {all}");
    let of_all: u64 = short.iter().map(|(_, n)| **n).sum();
    assert!(of_all < 2 * several, "{processes:?}");
}
