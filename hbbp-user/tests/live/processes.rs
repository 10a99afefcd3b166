//! Processes that live for 30 ms: their mappings and text are found although they are gone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::load::Load;
use super::{kernel, number, report, resolved};

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

/// Starts two hundred programs a second, one after the other, until it is dropped.
struct Spawner {
    ended: Arc<AtomicBool>,
    started: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Spawner {
    fn start(programs: Vec<PathBuf>) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let started = Arc::new(AtomicU64::new(0));
        let thread = {
            let (ended, started) = (Arc::clone(&ended), Arc::clone(&started));
            std::thread::spawn(move || {
                let began = Instant::now();
                let mut children = Vec::new();
                for number in 0u32.. {
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    let program = &programs[number as usize % PROGRAMS];
                    children.push(Command::new(program).spawn().unwrap());
                    started.fetch_add(1, Ordering::Relaxed);
                    children.retain_mut(|child| child.try_wait().unwrap().is_none());
                    std::thread::sleep((Duration::from_millis(5) * number).saturating_sub(began.elapsed()));
                }
                for mut child in children {
                    child.wait().unwrap();
                }
            })
        };
        let thread = Some(thread);
        Self {
            ended,
            started,
            thread,
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[test]
fn two_hundred_processes_a_second_are_resolved() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let spawner = Spawner::start(compile(folder.path()));
    let before = spawner.started.load(Ordering::Relaxed);
    let report = report(&["--duration", "5", "--by", "module"]);
    let rate = (spawner.started.load(Ordering::Relaxed) - before) as f64 / 5.0;
    drop(spawner);
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

/// Maps and unmaps a page of its own program thirty thousand times a second. As fast as it can is eight times that,
/// which a build without optimisation does not always read in time (94 % of the samples of others were resolved; an optimised
/// one had 99).
const FLOOD: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
int main(int argc, char **argv) {
  int fd = open(argv[0], O_RDONLY);
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  for (unsigned long n = 1; ; n++) {
    void *at = (void *)(0x100000000000 + n * 8192);
    void *page = mmap(at, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0);
    if (page == MAP_FAILED) return 1;
    munmap(page, 4096);
    if (n % 300) continue;
    next.tv_nsec += 10000000;
    if (1000000000 <= next.tv_nsec) { next.tv_nsec -= 1000000000; next.tv_sec++; }
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, 0);
  }
}
"#;

/// Runs of which one is to resolve nearly all: where neighbours keep the recorder from running for some milliseconds, the
/// flood overwrites records of short processes.
const ATTEMPTS: u32 = 3;

/// What the flood costs the recorder is printed: it is another figure on a busy machine.
#[test]
fn a_flood_of_mappings_loses_no_other_process() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let programs = compile(folder.path());
    let (source, flood) = (folder.path().join("flood.c"), folder.path().join("flood"));
    std::fs::write(&source, FLOOD).unwrap();
    let built = Command::new("cc").arg("-o").args([&flood, &source]).status();
    assert!(built.unwrap().success());
    let _flood = Load(Command::new(&flood).spawn().unwrap());
    let _spawner = Spawner::start(programs);
    let is_resolved = (0..ATTEMPTS).any(|_| {
        let report = report(&["--duration", "6", "--by", "module"]);
        let (in_mix, counted) = resolved(&report, "user");
        let own = number(&report["run"]["own_cpu"]) as f64 / 6e9;
        println!(
            "{in_mix} of {counted} user samples resolved; {:.1} % of a CPU; {}",
            100.0 * own,
            report["warnings"]
        );
        0.97 * counted as f64 <= in_mix as f64
    });
    assert!(is_resolved);
}
