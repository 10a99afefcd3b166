//! Threads of recordings: kept separate on request, with the same sums.

use std::collections::BTreeMap;
use std::path::Path;

use hbbp_model::addr::Va;
use serde_json::Value;

use crate::elf::write_loop;
use crate::run::{Folder, hbbp};
use crate::writer::{File, comm, mmap2, stack, turns};

/// `PERF_RECORD_MISC_COMM_EXEC` (include/uapi/linux/perf_event.h).
const EXEC: u16 = 1 << 13;
const BASE: u64 = 0x5500_0000_0000;

/// The record with another thread id, which is at this byte.
fn of_thread(mut record: Vec<u8>, at: usize, tid: u32) -> Vec<u8> {
    record[at..at + 4].copy_from_slice(&tid.to_le_bytes());
    record
}

/// A process with two threads, one of which has a name of its own.
fn recording() -> File {
    let entries = turns(Va(BASE));
    let sample = |time, tid| of_thread(stack(5, time, &entries), 28, tid);
    File::new(vec![
        comm(5, 1, "server", EXEC),
        mmap2(5, 2, (BASE, 0x1000), 0x1000, "/bin/prog"),
        of_thread(comm(5, 3, "worker", 0), 12, 6),
        sample(4, 5),
        sample(5, 6),
        sample(6, 6),
        sample(7, 7),
    ])
}

/// Executions by the values of these dimensions.
fn amounts(file: &Path, program: &str, args: &[&str]) -> BTreeMap<String, f64> {
    let common = ["report", file.to_str().unwrap(), "--binary", program];
    let ran = hbbp(&[&common[..], &["--format", "json"], args].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let rows = report["mix"]["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let amount = row["total"]["amount"].as_f64().unwrap();
        (row["key"][0].as_str().unwrap().to_owned(), amount)
    })
    .collect()
}

#[test]
fn threads_of_a_recording_are_separate_where_asked() {
    let folder = Folder::new();
    let program = write_loop(&folder, "prog", 0x1000, &[]);
    let file = folder.write("threads.data", recording().bytes());
    let threads = amounts(&file, &program, &["--rows", "thread", "--per-thread"]);
    let names: Vec<&str> = threads.keys().map(String::as_str).collect();
    assert_eq!(names, ["server (5)", "server (7)", "worker (6)"]);
    assert!(
        (threads["worker (6)"] / threads["server (5)"] - 2.0).abs() < 1e-9,
        "{threads:?}"
    );

    let processes = amounts(&file, &program, &["--rows", "process"]);
    let together = amounts(&file, &program, &["--rows", "thread"]);
    assert_eq!(together.keys().collect::<Vec<_>>(), ["(all threads)"]);
    let sum: f64 = threads.values().sum();
    for other in [processes["server (5)"], together["(all threads)"]] {
        assert!((sum / other - 1.0).abs() < 1e-9, "{sum} {other}");
    }
}
