//! Real programs, from points that time chooses: emulated ahead from a stop, then stepped.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use hbbp_emulate::{End, Limits, Machine};

use crate::generator::Chance;
use crate::stepped::{Stepped, Stop, differences, machine, vector_differences};

/// A burst of the length that a collector would ask for.
const LIMITS: Limits = Limits {
    branches: 512,
    steps: 6_000,
};

/// What the bursts of a program were.
#[derive(Default)]
struct Bursts {
    n: u64,
    steps: u64,
    branches: u64,
    ends: BTreeMap<String, u64>,
    /// CPU time of the emulation of these steps.
    emulated: Duration,
}

/// Starts a program that stops where it begins.
#[expect(clippy::zombie_processes, reason = "`Stepped` waits for it")]
fn start(program: &Path, args: &[String]) -> Stepped {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: asks to be traced by the parent; no memory is passed.
    let ask = || match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => stay_on_one_cpu(),
    };
    // SAFETY: a system call may be made between fork and exec.
    unsafe { command.pre_exec(ask) };
    let child = command.spawn().unwrap();
    let stepped = Stepped {
        pid: i32::try_from(child.id()).unwrap(),
    };
    assert_eq!(stepped.wait(), Stop::Signal(libc::SIGTRAP));
    stepped
}

/// Keeps the calling process on the CPU where it is: the kernel writes the number of the CPU into memory (rseq(2)), which no
/// emulation foresees.
fn stay_on_one_cpu() -> std::io::Result<()> {
    // SAFETY: zeros are an empty set.
    let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a system call without arguments.
    let cpu = unsafe { libc::sched_getcpu() };
    // SAFETY: the number of a CPU lies in the set.
    unsafe { libc::CPU_SET(usize::try_from(cpu).unwrap_or(0), &mut cpus) };
    // SAFETY: the set is a local variable.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Lets a program run on for some time, and stops it. `None` when it has ended.
fn stop_later(child: &Stepped, chance: &mut Chance) -> Option<()> {
    child.go_on(0).ok()?;
    sleep(Duration::from_micros(200 + chance.below(3_000)));
    // SAFETY: a process of ours.
    unsafe { libc::kill(child.pid, libc::SIGSTOP) };
    loop {
        match child.wait() {
            Stop::Signal(libc::SIGSTOP) => return Some(()),
            Stop::Signal(signal) => child.go_on(signal).ok()?,
            Stop::Ended => return None,
        }
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    // SAFETY: zeros are a time.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the time is a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}

/// Emulates ahead from a stop until no page that can be read is missing. Returns the state at the stop with these pages, and
/// how many steps may be compared.
fn ahead(child: &Stepped, start: &Machine, bursts: &mut Bursts) -> (Machine, Vec<u64>, u64) {
    let mut start = start.clone();
    let mut read = BTreeSet::new();
    loop {
        let mut machine = start.clone();
        let begun = cpu_time();
        let end = machine.run(LIMITS);
        let emulated = cpu_time().saturating_sub(begun);
        let mut wanted: Vec<u64> = machine.memory.missing().collect();
        let is_text = |end: End| match end {
            End::TextNotRead(at) => Some(at & !0xfff),
            _ => None,
        };
        wanted.extend(is_text(end));
        wanted.retain(|page| is_text(end) == Some(*page) || !read.contains(page));
        let mut is_new = false;
        for page in wanted {
            let Some(bytes) = child.page(page) else {
                read.insert(page);
                continue;
            };
            is_new |= read.insert(page);
            if is_text(end) == Some(page) {
                is_new = true;
                start.memory.add_text(page, &bytes).unwrap();
            } else {
                start.memory.add(page, &bytes).unwrap();
            }
        }
        if !is_new {
            let steps = (0..LIMITS.steps).take_while({
                let mut machine = start.clone();
                move |_| machine.branches().len() < LIMITS.branches && machine.step().is_ok()
            });
            let kind = format!("{end:?}");
            let kind = kind.split('(').next().unwrap_or_default().to_owned();
            *bursts.ends.entry(kind).or_default() += 1;
            bursts.emulated += emulated;
            bursts.branches += machine.branches().len() as u64;
            return (start, read.into_iter().collect(), steps.count() as u64);
        }
    }
}

/// Compares a burst step by step. Returns whether the program goes on.
fn burst(name: &str, child: &Stepped, bursts: &mut Bursts) -> bool {
    let registers = child.registers();
    // The kernel has yet to finish a system call, or to restart it.
    if 0 <= registers.orig_rax.cast_signed() {
        return true;
    }
    let at_stop = machine(&registers, &child.area().vectors());
    let (mut machine, pages, n) = ahead(child, &at_stop, bursts);
    bursts.n += 1;
    for step in 0..n {
        let instruction = machine.fetch().unwrap();
        assert_eq!(machine.step(), Ok(()));
        match child.step() {
            Stop::Signal(libc::SIGTRAP) => {}
            Stop::Signal(signal) => return child.go_on(signal).is_ok() && child.wait() != Stop::Ended,
            Stop::Ended => return false,
        }
        let found = differences(&machine, &child.registers());
        assert!(
            found.is_empty(),
            "{name}, step {step}: {instruction} at {:x} ({:?})\n{found:#?}",
            instruction.ip(),
            instruction.code()
        );
        bursts.steps += 1;
    }
    let found = vector_differences(&machine, &child.area().vectors());
    assert!(found.is_empty(), "{name}, after {n} steps: {found:#?}");
    for page in pages {
        let Some(real) = child.page(page) else { continue };
        for at in (0..4096).step_by(64) {
            let mut bytes = [0; 64];
            let known = machine.memory.load(page + at as u64, &mut bytes);
            let differ = (0..64).find(|byte| known >> byte & 1 != 0 && bytes[*byte] != real[at + byte]);
            assert_eq!(differ, None, "{name}, after {n} steps: {page:x}, {at:x}");
        }
    }
    true
}

/// Compares `n` steps of a program.
fn compare(name: &str, program: &Path, args: &[String], n: u64) {
    let mut chance = Chance(name.len() as u64);
    let mut bursts = Bursts::default();
    let mut child = start(program, args);
    // Some bursts end early.
    for _ in 0..n / 20 + 100 {
        if n <= bursts.steps {
            break;
        }
        let goes_on = stop_later(&child, &mut chance).is_some() && burst(name, &child, &mut bursts);
        if !goes_on {
            child = start(program, args);
        }
    }
    println!(
        "{name}: {} bursts, {} steps of {} ns, {} branches; ends {:?}",
        bursts.n,
        bursts.steps,
        bursts.emulated.as_nanos() / u128::from(bursts.steps.max(1)),
        bursts.branches,
        bursts.ends
    );
    assert!(n <= bursts.steps, "{name}: {} of {n} steps", bursts.steps);
}

/// A program that computes, with what it reads.
struct Load {
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
}

/// Programs that nothing was tuned on, as far as they are installed.
fn loads(folder: &Path) -> Vec<Load> {
    let source = folder.join("load.c");
    let functions = (0..400).map(|n| {
        format!("int f{n}(int *a, int b) {{ for (int i = 0; i < b; i++) a[i] = a[i] * {n} + b / (i + 1); return a[{n}]; }}\n")
    });
    std::fs::write(&source, functions.collect::<String>()).unwrap();
    let source = source.to_string_lossy().into_owned();
    let itself = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    let versions = std::fs::read_dir("/usr/lib/gcc/x86_64-linux-gnu")
        .into_iter()
        .flatten()
        .flatten();
    let compiler = versions.map(|version| version.path().join("cc1")).max();
    let load = |name, program: &str, args: &[&str]| Load {
        name,
        program: program.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
    };
    let query = "with recursive c(n) as (select 1 union all select n + 1 from c where n < 3000000) \
        select count(*), sum(n), max(printf('%d', n)) from c where n % 7 = 3";
    let count = "i=0; while [ $i -lt 10000000 ]; do i=$((i + 1)); case x$i in *77) j=${i%7};; esac; done";
    let sort = "d = {}\nfor i in range(10**7):\n    d[str(i * i % 9973)] = i\n    x = sorted(d)[:3] if i % 999 == 0 else i";
    let mut loads = vec![
        load("busybox sh", "/bin/busybox", &["sh", "-c", count]),
        load("busybox sort", "/bin/busybox", &["sort", &itself]),
        load("gzip", "/bin/gzip", &["-9c", &itself]),
        load("sqlite3", "/usr/bin/sqlite3", &[":memory:", query]),
        load("python3", "/usr/bin/python3", &["-c", sort]),
        load(
            "perl",
            "/usr/bin/perl",
            &["-e", "for (1..1e7) { $h{$_ % 997} .= $_; $x += $h{7} =~ /12+3/ }"],
        ),
        load("xz", "/usr/bin/xz", &["-c", &itself]),
        load("openssl", "/usr/bin/openssl", &["dgst", "-sha3-256", &itself]),
    ];
    let compiler = compiler.unwrap_or_default();
    loads.push(load(
        "cc1",
        &compiler.to_string_lossy(),
        &["-quiet", "-O2", &source, "-o", "/dev/null"],
    ));
    loads
}

/// Compares steps of each load.
fn compare_loads(n: u64) {
    let folder = tempfile::tempdir().unwrap();
    let loads = loads(folder.path());
    let (there, missing): (Vec<&Load>, Vec<&Load>) = loads.iter().partition(|load| load.program.exists());
    for load in missing {
        println!("not installed: {}", load.name);
    }
    assert!(!there.is_empty());
    for load in there {
        compare(load.name, &load.program, &load.args, n);
    }
}

#[test]
fn steps_of_programs() {
    compare_loads(3_000);
}

#[test]
#[ignore = "minutes"]
fn a_million_steps_of_programs() {
    compare_loads(120_000);
}
