//! What a report of very many distinct streams over 200 modules costs: time and memory of `hbbp-sys report`. `cargo xtask bench`
//! runs it. Words are numbers of streams in thousands.
//!
//! The goal is 10 s and 1 GB for ten million streams. Of these a profile keeps 3.1 million, those with the most hits,
//! and counts the others; their report takes 7.2 s and 1036 MB (0.97 GiB), that of 2.5 million 3.1 s and 612 MB (876 MB
//! before streams were checked without copies). To keep all ten million, rows of 64 bytes would have to be smaller.
//! Time and memory grow in proportion, which `tests/slopes` guards by allocated bytes.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints a table, and fails like a test"
)]

#[expect(dead_code, reason = "one of the shapes is measured here")]
#[path = "../tests/slopes/shapes.rs"]
mod shapes;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hbbp_model::snapshot::file::encode;
use shapes::distinct_streams;

/// Streams in thousands.
const SIZES: [u32; 4] = [625, 1_250, 2_500, 10_000];

/// How often the memory of a program is read: the kernel records its peak, so only the end can be missed.
const EVERY: Duration = Duration::from_millis(5);

/// Seconds that a command took, and its peak of resident memory in MB.
fn cost(command: &mut Command) -> (f64, f64) {
    let began = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0.0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
        peak = kib.map_or(peak, |kib| kib * 1.024e-3);
        sleep(EVERY);
    }
    assert!(child.wait().unwrap().success(), "{command:?} failed");
    (began.elapsed().as_secs_f64(), peak)
}

fn main() {
    let words: Vec<u32> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let sizes = if words.is_empty() { &SIZES[..] } else { &words };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("distinct-streams");
    fs::create_dir_all(&folder).unwrap();
    let profile = folder.join("profile.hbbp");
    println!("reports of distinct streams over 200 modules, as many as a profile keeps of them:");
    println!(
        "{:>12} {:>12} {:>10} {:>10} {:>10}",
        "streams", "kept", "file", "time", "memory"
    );
    for thousands in sizes {
        let mut snapshot = distinct_streams(1000 * thousands);
        snapshot.fit();
        let n_kept: usize = snapshot
            .intervals
            .iter()
            .map(|interval| interval.streams.len())
            .sum();
        let bytes = encode(&snapshot).unwrap();
        drop(snapshot);
        fs::write(&profile, &bytes).unwrap();
        let (time, memory) = cost(
            Command::new(env!("CARGO_BIN_EXE_hbbp-sys"))
                .arg("report")
                .arg(&profile),
        );
        println!(
            "{:>12} {n_kept:>12} {:>7.1} MB {time:>8.2} s {memory:>7.0} MB",
            1000 * thousands,
            bytes.len() as f64 / 1e6
        );
    }
    fs::remove_dir_all(&folder).unwrap();
}
