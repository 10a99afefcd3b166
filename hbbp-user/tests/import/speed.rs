//! A recording of a gigabyte, made by repeating records.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use hbbp_model::addr::Va;

use crate::elf::write_loop;
use crate::run::{Folder, Usage, assert_no_worse_than_linear, export, lines, usage};
use crate::writer::{self, mmap2, stack, turns};

/// Size of the recording in bytes; a build without optimisation gets less.
const SIZE: usize = if cfg!(debug_assertions) { 32 << 20 } else { 1 << 30 };
/// Peak resident memory in KiB.
const MOST_MEMORY: u64 = 300 << 10;

#[test]
fn a_gigabyte_costs_little_memory_and_four_times_a_quarter() {
    let folder = Folder::new();
    let program = write_loop(&folder, "prog", 0x1000, &[]);
    let base = 0x55_0000_0000;
    let entries = turns(Va(base)).repeat(5);
    let samples: Vec<Vec<u8>> = (0..1000).map(|n| stack(5, 3 + n, &entries)).collect();
    let samples = samples.concat();
    let n = SIZE / samples.len();
    // In pipe mode nothing says how long it is.
    let start = writer::File::new(vec![mmap2(5, 2, (base, 0x1000), 0x1000, "/bin/prog")]).pipe();
    let write = |name: &str, n: usize| {
        let path = folder.path().join(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(&start).unwrap();
        for _ in 0..n {
            file.write_all(&samples).unwrap();
        }
        path
    };
    let target = folder.path().join("x.hbbp");
    let import = |path: &Path| -> Usage {
        let [path, program, target] = [path, program.as_ref(), &target].map(|path| path.to_str().unwrap());
        usage(&["import", path, "--binary", program, "-o", target])
    };
    let quarter = import(&write("quarter", n / 4));
    let whole = import(&write("whole", n));
    println!("a quarter: {quarter:?}; the whole: {whole:?}");
    assert!(whole.memory < MOST_MEMORY, "{whole:?}");
    assert_no_worse_than_linear(&[quarter], &[whole]);
    let streams = export(&target, &["--format", "streams"]);
    let n_streams: usize = lines(&streams, "S ")
        .iter()
        .map(|l| l.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(n_streams, n * 1000 * (entries.len() - 1));
}
