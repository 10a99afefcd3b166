//! Processes that live for 30 ms: their mappings and text are found although they are gone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{kernel, report, resolved};

/// Different programs: the loop of each has other constants, so each is another file with another build id.
const PROGRAMS: usize = 20;

fn compile(folder: &Path) -> Vec<PathBuf> {
    let build = |number: usize| {
        let source = folder.join(format!("short{number}.c"));
        let program = folder.join(format!("short{number}"));
        // Works for 4 ms and lives for 30, so that two CPUs can run 200 a second.
        let text = format!(
            "#include <time.h>\n#include <unistd.h>\n\
             static double now(void) {{ struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); \
             return t.tv_sec + t.tv_nsec / 1e9; }}\n\
             int main(void) {{ volatile unsigned x = {number}; double start = now(); \
             while (now() < start + 0.004) for (int i = 0; i < 1000; i++) x = x * {}u + {number}u; \
             double left = start + 0.030 - now(); if (left > 0) usleep(left * 1e6); return 0; }}\n",
            2 * number + 1
        );
        std::fs::write(&source, text).unwrap();
        let built = Command::new("cc")
            .arg("-O1")
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .status()
            .unwrap();
        assert!(built.success());
        program
    };
    (0..PROGRAMS).map(build).collect()
}

#[test]
fn two_hundred_processes_a_second_are_resolved() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let programs = compile(folder.path());
    let ended = Arc::new(AtomicBool::new(false));
    let started = Arc::new(AtomicU64::new(0));
    let spawner = {
        let (ended, started) = (Arc::clone(&ended), Arc::clone(&started));
        std::thread::spawn(move || {
            let began = Instant::now();
            let mut children = Vec::new();
            for number in 0u32.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                children.push(
                    Command::new(&programs[number as usize % PROGRAMS])
                        .spawn()
                        .unwrap(),
                );
                started.fetch_add(1, Ordering::Relaxed);
                children.retain_mut(|child| child.try_wait().unwrap().is_none());
                std::thread::sleep((Duration::from_millis(5) * number).saturating_sub(began.elapsed()));
            }
            for mut child in children {
                child.wait().unwrap();
            }
        })
    };
    let before = started.load(Ordering::Relaxed);
    let report = report(&["--duration", "5", "--by", "module"]);
    let rate = (started.load(Ordering::Relaxed) - before) as f64 / 5.0;
    ended.store(true, Ordering::Relaxed);
    spawner.join().unwrap();
    let (in_mix, counted) = resolved(&report, "user");
    println!("{rate:.0} processes a second; {in_mix} of {counted} user samples resolved");
    assert!(
        0.98 * counted as f64 <= in_mix as f64,
        "{in_mix} of {counted}: {}",
        report["accounting"]
    );
    let rows = report["mix"]["rows"].as_array().unwrap();
    let named = rows
        .iter()
        .filter(|row| row["key"][0].as_str().unwrap().contains("short"));
    assert!(PROGRAMS / 2 < named.count(), "the programs are named: {rows:#?}");
}
