//! A recording of a gigabyte, made by repeating records.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use hbbp_user::addr::Va;

use crate::elf::{LOOP, Program, elf};
use crate::run::{Folder, export, lines};
use crate::writer::{self, mmap2, stack, turns};

/// Size of the recording in bytes; a build without optimisation gets less.
const SIZE: usize = if cfg!(debug_assertions) { 32 << 20 } else { 1 << 30 };
/// Peak resident memory in KiB.
const MOST_MEMORY: u64 = 300 << 10;

#[test]
fn a_gigabyte_takes_little_memory() {
    let folder = Folder::new();
    let program = elf(&Program {
        code: LOOP,
        offset: 0x1000,
        address: 0x1000,
        build_id: &[],
    });
    let program = folder.write("prog", program);
    let base = 0x55_0000_0000;
    let entries = turns(Va(base)).repeat(5);
    let samples: Vec<Vec<u8>> = (0..1000).map(|n| stack(5, 3 + n, &entries)).collect();
    let samples = samples.concat();
    let n = SIZE / samples.len();
    let path = folder.path().join("perf.data");
    // In pipe mode nothing says how long it is.
    let start = writer::File::new(vec![mmap2(5, 2, (base, 0x1000), 0x1000, "/bin/prog")]).pipe();
    let mut file = File::create(&path).unwrap();
    file.write_all(&start).unwrap();
    for _ in 0..n {
        file.write_all(&samples).unwrap();
    }
    let target = folder.path().join("x.hbbp");
    let mut child = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"));
    child
        .args([
            "import",
            path.to_str().unwrap(),
            "--binary",
            program.to_str().unwrap(),
            "-o",
        ])
        .arg(&target);
    let mut child = child.spawn().unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let now = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak = now.and_then(|now| now.trim().parse().ok()).unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    assert!(peak < MOST_MEMORY, "{peak} KiB");
    let streams = export(&target, &["--format", "streams"]);
    let n_streams: usize = lines(&streams, "S ")
        .iter()
        .map(|l| l.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(n_streams, n * 1000 * (entries.len() - 1));
}
