//! Files that were made to harm whoever parses them, mapped and run by a process that a live daemon samples.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Daemon, assert_segments_close};
use crate::kernel;

/// A page, and what is mapped of each file.
const PAGE: usize = 4096;
/// More than the daemon of an unoptimized build takes with all of these, in KiB; each could make it take a gibibyte.
const MEMORY: u64 = 256 << 10;
const ELF_HEADER: usize = 64;
const SECTION: usize = 64;

/// `dec rdi; jne; ret`: runs as many times as its argument says.
const LOOP: [u8; 6] = [0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3];

/// A section header: type, offset, size, link.
fn section(kind: u32, offset: u64, size: u64, link: u32) -> [u8; SECTION] {
    let mut header = [0; SECTION];
    header[4..8].copy_from_slice(&kind.to_le_bytes());
    header[24..32].copy_from_slice(&offset.to_le_bytes());
    header[32..40].copy_from_slice(&size.to_le_bytes());
    header[40..44].copy_from_slice(&link.to_le_bytes());
    header
}

/// A program of one page that can run, whose segment claims a length and which claims these sections.
fn program(segment_len: u64, n_sections: u16, sections: &[[u8; SECTION]]) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    bytes[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_DYN, EM_X86_64, program headers at 64, section headers after the page.
    bytes[16..20].copy_from_slice(&[3, 0, 62, 0]);
    bytes[32..40].copy_from_slice(&(ELF_HEADER as u64).to_le_bytes());
    bytes[40..48].copy_from_slice(&(PAGE as u64).to_le_bytes());
    bytes[52..64].copy_from_slice(&[64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    bytes[60..62].copy_from_slice(&n_sections.to_le_bytes());
    // PT_LOAD, readable and executable, from the start of the file.
    bytes[64..72].copy_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
    bytes[96..104].copy_from_slice(&segment_len.to_le_bytes());
    bytes[104..112].copy_from_slice(&segment_len.to_le_bytes());
    bytes[0x800..0x800 + LOOP.len()].copy_from_slice(&LOOP);
    bytes.extend(sections.concat());
    bytes
}

/// Maps the first page of a file, and runs the loop in it.
fn map_and_run(path: &Path, times: u64) {
    let file = File::open(path).unwrap();
    run_mapped(libc::MAP_PRIVATE, file.as_raw_fd(), times, &[]);
}

fn run_mapped(flags: i32, file: i32, times: u64, code: &[u8]) {
    let protection = libc::PROT_READ | libc::PROT_EXEC | if code.is_empty() { 0 } else { libc::PROT_WRITE };
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, file, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let start = at.cast::<u8>().wrapping_add(0x800);
    if !code.is_empty() {
        // SAFETY: the page is mapped writable, and the code fits after its middle.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), start, code.len()) };
    }
    // SAFETY: the loop is there; it takes its argument in rdi and changes nothing else.
    let run: extern "C" fn(u64) = unsafe { std::mem::transmute(start) };
    run(times);
    // SAFETY: it was mapped above, and nothing refers to it.
    unsafe { libc::munmap(at, PAGE) };
}

/// Programs by name that claim what is not so.
fn hostile_programs() -> Vec<(&'static str, Vec<u8>)> {
    let huge = 1 << 63;
    let (symbols, strings) = (2, 3);
    let many = vec![section(symbols, 0, huge, 1); 1000];
    vec![
        (
            "sizes-of-2^63",
            program(
                huge,
                2,
                &[
                    section(symbols, PAGE as u64, huge, 1),
                    section(strings, huge, huge, 0),
                ],
            ),
        ),
        (
            "offsets-that-wrap",
            program(u64::MAX, 2, &[section(symbols, u64::MAX - 8, u64::MAX, 1); 2]),
        ),
        ("more-sections-than-there-are", program(PAGE as u64, 65535, &many)),
        ("no-program", b"\x7fELF and nothing else".to_vec()),
        // 2^31 symbols in a file with a hole.
        (
            "symbols-in-a-hole",
            program(
                PAGE as u64,
                2,
                &[section(symbols, 8192, 48 << 30, 1), section(strings, 0, huge, 0)],
            ),
        ),
    ]
}

/// A file with as many sections as a header can name, each a table of symbols.
fn many_sections(path: &Path) {
    let sections = vec![section(2, 0, 1 << 40, 1); 65535];
    fs::write(path, program(PAGE as u64, 65535, &sections)).unwrap();
}

/// Maps a file and runs it, while its path leads to something else.
fn replaced(folder: &Path, name: &str, by: impl Fn(&Path)) {
    let path = folder.join(name);
    fs::write(&path, program(PAGE as u64, 0, &[])).unwrap();
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    by(&path);
    run_mapped(libc::MAP_PRIVATE, file.as_raw_fd(), TIMES, &[]);
}

/// Some ms of any processor.
const TIMES: u64 = 200_000_000;

/// Writes to a file and shortens it until it is stopped.
fn keep_changing(path: &Path, end: &AtomicBool) {
    let whole = fs::read(path).unwrap();
    while !end.load(Ordering::Relaxed) {
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        // The first page stays: what is mapped of it runs.
        file.set_len(PAGE as u64).unwrap();
        file.seek(SeekFrom::Start(PAGE as u64)).unwrap();
        file.write_all(&whole[PAGE..]).unwrap();
    }
}

/// The process ids of the supervisor of the daemon and of its worker.
fn parsers(daemon: &Daemon) -> [u32; 2] {
    let child = |pid: u32| -> u32 {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.split_whitespace().next().unwrap().parse().unwrap()
    };
    let supervisor = child(daemon.child.id());
    [supervisor, child(supervisor)]
}

fn assert_without_rights(pid: u32) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let mut lines = status.lines();
        lines
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .trim()
            .to_owned()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set} {status}");
    }
    assert_eq!(
        (field("NoNewPrivs:"), field("Seccomp:")),
        ("1".to_owned(), "2".to_owned())
    );
}

/// The highest memory of a process, in KiB.
fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn hostile_files_leave_the_daemon_alive_within_its_memory() {
    let Some(_kernel) = kernel() else { return };
    let made = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&made.path().join("segments"));
    daemon.until_intervals(1);
    let [supervisor, worker] = parsers(&daemon);
    assert_without_rights(supervisor);
    assert_without_rights(worker);
    let limits = fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
    for limit in ["Max address space", "Max cpu time", "Max open files"] {
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        assert!(!line.contains("unlimited"), "{line}");
    }

    let folder = made.path().join("files");
    fs::create_dir(&folder).unwrap();
    for (name, bytes) in hostile_programs() {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        if name.ends_with("hole") {
            OpenOptions::new()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(64 << 30)
                .unwrap();
        }
        if name != "no-program" {
            map_and_run(&path, TIMES);
        }
    }
    let path = folder.join("65535-sections");
    many_sections(&path);
    map_and_run(&path, TIMES);
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| keep_changing(&path, &end));
        (0..20).for_each(|_| map_and_run(&path, TIMES / 10));
        end.store(true, Ordering::Relaxed);
    });
    replaced(&folder, "fifo", |path| {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    });
    replaced(&folder, "device", |path| symlink("/dev/zero", path).unwrap());
    replaced(&folder, "out", |path| {
        symlink("../../../../../../../../etc/shadow", path).unwrap();
    });
    replaced(&folder, "loop", |path| symlink("loop", path).unwrap());
    hostile_perf_map();

    let n_before = super::intervals(&super::names(&daemon.folder)).len();
    daemon.until_intervals(n_before + 3);
    let peak = peak_memory(daemon.child.id());
    println!("daemon's peak with hostile files: {} MiB", peak >> 10);
    assert!(peak < MEMORY, "{peak} KiB");
    let segments = daemon.folder.clone();
    daemon.stop();
    assert!(0 < assert_segments_close(&segments));
}

/// Runs code in memory, which a perf map of long lines and large numbers names.
fn hostile_perf_map() {
    let path = PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
    let mut text = String::new();
    for at in 0..100_000_u64 {
        text.push_str(&format!(
            "{:x} ffffffffffffffff {}\n",
            at.wrapping_mul(u64::MAX / 7),
            at
        ));
    }
    text.push_str(&"f".repeat(8 << 20));
    fs::write(&path, text).unwrap();
    run_mapped(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, TIMES, &LOOP);
    fs::remove_file(&path).unwrap();
}

#[test]
fn worker_that_is_killed_is_replaced_and_counted() {
    const ENDED: &str = "not parsed: the worker ended";
    /// A worker that has spent its CPU time, as on large programs of a busy host, is replaced anyway: that it was killed then is
    /// nothing to count. The next one has all of it.
    const TRIES: u32 = 5;

    let Some(_kernel) = kernel() else { return };
    let made = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&made.path().join("segments"));
    daemon.until_intervals(1);
    let path = made.path().join("new");
    fs::write(&path, program(PAGE as u64, 0, &[])).unwrap();
    for _ in 0..TRIES {
        let [supervisor, worker] = parsers(&daemon);
        // SAFETY: a signal to the worker, which its supervisor has not waited for.
        assert_eq!(unsafe { libc::kill(worker.cast_signed(), libc::SIGKILL) }, 0);
        let children = || {
            let children = format!("/proc/{supervisor}/task/{supervisor}/children");
            fs::read_to_string(children).unwrap()
        };
        // Before another one is asked for.
        daemon.until("end of the worker", |_| {
            !children().split_whitespace().any(|pid| pid.parse() == Ok(worker))
        });
        daemon.until("another worker", |_| {
            // A file that it has not seen yet.
            let copy = made.path().join("copy");
            fs::copy(&path, &copy).unwrap();
            map_and_run(&copy, TIMES / 100);
            fs::remove_file(&copy).unwrap();
            !children().is_empty()
        });
        let n_before = super::intervals(&super::names(&daemon.folder)).len();
        daemon.until_intervals(n_before + 2);
        if daemon.said().contains(ENDED) {
            break;
        }
    }
    let segments = daemon.folder.clone();
    let said = daemon.stop();
    assert!(said.contains(ENDED), "{said}");
    assert!(0 < assert_segments_close(&segments));
}
