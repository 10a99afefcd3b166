//! A short run of the fuzz targets: each file of the corpus, and some hundred mutations of it. With
//! `HBBP_FUZZ_SECONDS=600` each target gets mutations for as long, and with `HBBP_FUZZ_TARGET=sideband` this one alone.
//!
//! `HBBP_UPDATE=1` writes the first files of the corpus, from the made-up recordings of these tests; the others were
//! found by the fuzzer.

#[path = "../../fuzz/readers.rs"]
mod readers;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::corpus::first_files;

/// A target: its name and what it does with bytes.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 5] = [
    ("perf_data", readers::read_perf_data),
    ("script", readers::read_script),
    ("preaggregated", readers::read_preaggregated_text),
    ("snapshot", readers::read_snapshot),
    ("sideband", readers::read_sideband),
];

/// Mutations of each file.
const N_MUTATIONS: u64 = 300;
/// Mutations of one section of each profile, with its checksums repaired: otherwise they stop nine of ten mutations.
const N_SECTION_MUTATIONS: u64 = 3000;
/// No input of this size may take more CPU time, even in a build without optimisation.
const LONGEST: Duration = Duration::from_secs(5);
/// No run of the readers may need more memory, in KiB: the fuzzer's limit.
const MOST_MEMORY: u64 = 256 << 10;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target)
}

#[test]
fn corpus_and_mutations_of_it() {
    if std::env::var_os("HBBP_UPDATE").is_some() {
        for (target, name, bytes) in first_files() {
            std::fs::write(corpus(target).join(name), bytes).unwrap();
        }
    }
    for (name, read) in TARGETS {
        let mut files: Vec<_> = std::fs::read_dir(corpus(name))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has a corpus");
        for path in files {
            let bytes = std::fs::read(&path).unwrap();
            let check = |bytes: &[u8]| {
                let begin = own_time();
                read(bytes);
                let took = own_time() - begin;
                assert!(took < LONGEST, "{} took {took:?}", path.display());
            };
            check(&bytes);
            for seed in 0..N_MUTATIONS {
                check(&mutated(&bytes, seed));
            }
            if name == "snapshot" {
                for seed in 0..N_SECTION_MUTATIONS {
                    check(&with_mutated_section(&bytes, seed));
                }
            }
        }
    }
    assert_little_memory();
}

/// The long form of the test above.
#[test]
fn mutations_for_a_time() {
    let Some(seconds) = std::env::var_os("HBBP_FUZZ_SECONDS") else {
        return;
    };
    let length = Duration::from_secs(seconds.to_str().unwrap().parse().unwrap());
    let only = std::env::var("HBBP_FUZZ_TARGET").ok();
    let is_asked = |name: &str| only.as_ref().is_none_or(|only| only == name);
    for (name, read) in TARGETS.into_iter().filter(|(name, _)| is_asked(name)) {
        let files = std::fs::read_dir(corpus(name)).unwrap();
        let files: Vec<Vec<u8>> = files
            .map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .collect();
        let (begin, mut n, mut longest) = (Instant::now(), 0_u64, Duration::ZERO);
        while begin.elapsed() < length {
            for file in &files {
                let input = match name {
                    "snapshot" if n % 4 != 0 => with_mutated_section(file, n),
                    _ => mutated(&mutated(file, n), n / 3),
                };
                let before = own_time();
                read(&input);
                let took = own_time() - before;
                assert!(took < LONGEST, "{name}: mutation {n} took {took:?}");
                longest = longest.max(took);
                n += 1;
            }
        }
        println!("{name}: {n} inputs in {length:?}, the longest took {longest:?}");
        assert_little_memory();
    }
}

fn assert_little_memory() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let peak: u64 = peak.unwrap().trim().parse().unwrap();
    assert!(peak < MOST_MEMORY, "{peak} KiB");
}

/// CPU time of this thread, which other programs do not change.
fn own_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Some bytes changed, cut out, repeated or cut off; the same for the same seed (xorshift, Marsaglia 2003).
fn mutated(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % u64::try_from(n.max(1)).unwrap()).unwrap()
    };
    let mut bytes = bytes.to_vec();
    for _ in 0..=below(4) {
        let at = below(bytes.len());
        match below(6) {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_within(at..),
            2 => drop(bytes.drain(at..(at + below(16)).min(bytes.len()))),
            3 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff),
            4 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0),
            _ => bytes
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 1 << below(8)),
        }
    }
    bytes
}

/// A profile with a changed message in one section; its frame is valid.
fn with_mutated_section(file: &[u8], seed: u64) -> Vec<u8> {
    const HEADER: usize = 36;
    let (head, mut remainder) = file.split_at(12);
    let mut sections = Vec::new();
    while let Some((header, after)) = remainder.split_at_checked(HEADER) {
        let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        let (stored, raw_len) = (number(12), usize::try_from(number(20)).unwrap());
        let (stored, after) = after.split_at(usize::try_from(stored).unwrap());
        let raw = match header[8] {
            0 => stored.to_vec(),
            _ => zstd::bulk::decompress(stored, raw_len).unwrap(),
        };
        sections.push((header[..8].to_vec(), raw));
        remainder = after;
    }
    // The last one is the end, which is empty.
    let chosen = usize::try_from(seed).unwrap() % (sections.len() - 1);
    sections[chosen].1 = mutated(&sections[chosen].1, seed);
    let mut changed = head.to_vec();
    for (name, raw) in sections {
        let is_packed = seed & 64 != 0 && 64 < raw.len();
        let stored = if is_packed {
            zstd::bulk::compress(&raw, 1).unwrap()
        } else {
            raw.clone()
        };
        let mut header = name;
        header.extend(u32::from(is_packed).to_le_bytes());
        header.extend(u64::try_from(stored.len()).unwrap().to_le_bytes());
        header.extend(u64::try_from(raw.len()).unwrap().to_le_bytes());
        header.extend(crc32fast::hash(&stored).to_le_bytes());
        let check = crc32fast::hash(&header);
        header.extend(check.to_le_bytes());
        changed.extend(header);
        changed.extend(stored);
    }
    changed
}

#[test]
fn mutated_sections_pass_the_checksums() {
    let file = std::fs::read(corpus("snapshot").join("imported")).unwrap();
    let is_stopped = |seed| {
        let read = hbbp_model::snapshot::file::parse(&with_mutated_section(&file, seed));
        let said = match read {
            Ok(snapshot) => snapshot.run.notes.concat(),
            Err(error) => error.to_string(),
        };
        said.contains("checksum") || said.contains("truncated")
    };
    let n_stopped = (0..300).filter(|seed| is_stopped(*seed)).count();
    assert_eq!(n_stopped, 0);
    let notes = hbbp_model::snapshot::file::parse(&file).unwrap().run.notes;
    let is_read = |seed| {
        let read = hbbp_model::snapshot::file::parse(&with_mutated_section(&file, seed));
        read.is_ok_and(|snapshot| snapshot.run.notes == notes)
    };
    let n_read = (0..300).filter(|seed| is_read(*seed)).count();
    assert!(0 < n_read, "no mutation was read");
    println!("{n_read} of 300 mutations are read without a complaint");
}
