//! A short run of the fuzz targets: each file of the corpus, and some hundred mutations of it. With
//! `HBBP_FUZZ_SECONDS=600` each target gets mutations for as long.
//!
//! `HBBP_UPDATE=1` writes the first files of the corpus, from the made-up recordings of these tests; the others were
//! found by the fuzzer.

#[path = "../../fuzz/readers.rs"]
mod readers;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::elf::{LOOP, Program, elf};
use crate::run::Folder;
use crate::writer::{Attr, File, comm, mmap2, stack, string, taken, turns};
use hbbp_user::addr::Va;

/// A target: its name and what it does with bytes.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 6] = [
    ("perf_data", readers::read_perf_data),
    ("script", readers::read_script),
    ("preaggregated", readers::read_preaggregated_text),
    ("records", readers::read_records),
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
        write_corpus();
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
    for (name, read) in TARGETS {
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

/// A profile, the message in one section of which is changed; its frame is as it should be.
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
        let read = hbbp_user::snapshot::file::parse(&with_mutated_section(&file, seed));
        let said = match read {
            Ok(snapshot) => snapshot.run.notes.concat(),
            Err(error) => error.to_string(),
        };
        said.contains("checksum") || said.contains("truncated")
    };
    let n_stopped = (0..300).filter(|seed| is_stopped(*seed)).count();
    assert_eq!(n_stopped, 0);
    let notes = hbbp_user::snapshot::file::parse(&file).unwrap().run.notes;
    let is_read = |seed| {
        let read = hbbp_user::snapshot::file::parse(&with_mutated_section(&file, seed));
        read.is_ok_and(|snapshot| snapshot.run.notes == notes)
    };
    let n_read = (0..300).filter(|seed| is_read(*seed)).count();
    assert!(0 < n_read, "no mutation was read");
    println!("{n_read} of 300 mutations are read without a complaint");
}

/// A ring with a record of each kind.
fn sideband() -> Vec<u8> {
    let map = |pid: u32, start: u64, path: &str| {
        let head = [pid.to_le_bytes(), pid.to_le_bytes()].concat();
        let extent = [start, 0x3000, 0x1000, 0, 0, 0].map(u64::to_le_bytes).concat();
        let flags = [5_u32, 2].map(u32::to_le_bytes).concat();
        [&head[..], &extent, &flags, path.as_bytes(), &[0; 4]].concat()
    };
    let ids = |ids: [u32; 4]| [&ids.map(u32::to_le_bytes).concat()[..], &[0; 8]].concat();
    let kernel = [
        &0xffff_ffff_c000_0000_u64.to_le_bytes()[..],
        &[0, 1, 0, 0, 1, 0, 0, 0],
        b"bpf_prog_1\0",
    ]
    .concat();
    let poke = [
        &0xffff_ffff_c000_0000_u64.to_le_bytes()[..],
        &[2, 0, 2, 0, 0x66, 0x90, 0xeb, 5],
    ]
    .concat();
    let records = [
        (7, 0, ids([5, 4, 5, 4])),
        (
            3,
            1 << 13,
            [&[5, 0, 0, 0, 5, 0, 0, 0][..], b"prog\0\0\0\0"].concat(),
        ),
        (10, 0, map(5, 0x40_0000, "/bin/prog")),
        (10, 0, map(5, 0x40_1000, "/bin/prog")),
        (10, 0, map(5, 0x7f00_0000_0000, "//anon")),
        (7, 0, ids([6, 5, 6, 5])),
        (10, 0, map(6, 0x40_0000, "/lib/other")),
        (2, 0, [7_u64, 100].map(u64::to_le_bytes).concat()),
        (17, 0, kernel),
        (20, 0, poke),
        (4, 0, ids([5, 4, 5, 4])),
    ];
    let ring = records
        .into_iter()
        .zip(1_u64..)
        .flat_map(|((kind, misc, body), time)| {
            let size = u16::try_from(16 + body.len()).unwrap();
            let head = [
                &u32::to_le_bytes(kind)[..],
                &u16::to_le_bytes(misc),
                &size.to_le_bytes(),
            ]
            .concat();
            [head, body, (1000 * time).to_le_bytes().to_vec()].concat()
        });
    ring.collect()
}

fn write_corpus() {
    let write =
        |target: &str, name: &str, bytes: &[u8]| std::fs::write(corpus(target).join(name), bytes).unwrap();
    let base = 0x55_0000_0000;
    let recording = || {
        let mut file = File::new(vec![
            comm(5, 1, "prog", 1 << 13),
            mmap2(5, 2, (base, 0x1000), 0x1000, "/bin/prog"),
            stack(5, 3, &turns(Va(base))),
            stack(6, 4, &[(base, base, 1 << 24), (0, 0, 0)]),
        ]);
        file.attrs.push(Attr {
            kind: 0,
            config: 1,
            id: 78,
            ..taken()
        });
        file.features.push((8, string("a processor")));
        file
    };
    write("perf_data", "file", &recording().bytes());
    write("perf_data", "pipe", &recording().pipe());
    write("perf_data", "compressed", &recording().compressed().bytes());
    let script = "prog 5 1.1: PERF_RECORD_MMAP2 5/5: [0x5500000000(0x1000) @ 0x1000 <ab01>]: r-xp /bin/prog\n\
                  prog 5 [000] 1.2:  100 cycles:u:\n\t 5500000007 main (/bin/prog)\n \
                  0x5500000007/0x5500000005/P/-/-/3/COND/- ab01:10/ab01:20/M/X/A/0\n3\n 0x1(/a)/0x2(/a)/-/-/-/0\n";
    write("script", "all", script.as_bytes());
    let lines =
        "E cycles\nT 1 2 3 4\nR 0 2 ffffffffffffffff 4\nB 1 ab01:2 3 4\nF 1 2 3\nf 1 2 3\nr X:1 2 3\nS 1 2\n";
    write("preaggregated", "all", lines.as_bytes());
    write("sideband", "all", &sideband());
    write("records", "all", &records().concat());
    let folder = Folder::new();
    let program = elf(&Program {
        code: LOOP,
        offset: 0x1000,
        address: 0x1000,
        build_id: &[1; 20],
    });
    let mut options = hbbp_user::cmd::import::ImportOptions {
        file: folder.write("perf.data", recording().bytes()),
        ..Default::default()
    };
    options.places.binaries.push(folder.write("prog", program));
    let mut snapshot = hbbp_user::cmd::import::import(&options).unwrap();
    // The folder has another name each time.
    snapshot.run.scope = "a recording".to_owned();
    write(
        "snapshot",
        "imported",
        &hbbp_user::snapshot::file::encode(&snapshot).unwrap(),
    );
    // With branches, cycles and notes, and as long as sections must be to be compressed.
    snapshot
        .text
        .iter_mut()
        .for_each(|text| text.bytes = text.bytes.repeat(40));
    let mut interval = snapshot.intervals[0].clone();
    interval
        .streams
        .iter_mut()
        .for_each(|stream| stream.source = None);
    interval
        .streams
        .iter_mut()
        .for_each(|stream| stream.weight /= 3.0);
    snapshot.intervals.push(interval);
    snapshot.run.notes.push("a note".to_owned());
    write(
        "snapshot",
        "compressed",
        &hbbp_user::snapshot::file::encode(&snapshot).unwrap(),
    );
}

/// A record of each kind, with its header (include/uapi/linux/perf_event.h, `enum perf_event_type`).
fn records() -> Vec<Vec<u8>> {
    let record = |kind: u32, misc: u16, words: &[u64], text: &[u8]| {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend(text);
        body.resize(body.len().next_multiple_of(8), 0);
        let mut record = kind.to_le_bytes().to_vec();
        record.extend(misc.to_le_bytes());
        record.extend(u16::try_from(8 + body.len()).unwrap().to_le_bytes());
        record.extend(body);
        record
    };
    let (code, base, len) = (5 | 5 << 32, 0x55_0000_0000, 0x1000);
    let attributes = 5 | 2 << 32;
    vec![
        record(1, 2, &[code, base, len, 0], b"/bin/prog\0"),
        record(2, 0, &[7, 3], b""),
        record(3, 1 << 13, &[code], b"prog\0"),
        record(4, 0, &[code, code, 9], b""),
        record(7, 0, &[code, code, 9], b""),
        record(
            10,
            2,
            &[code, base, len, 0, 8 | 1 << 32, 77, 0, attributes],
            b"/bin/prog\0",
        ),
        record(
            10,
            2 | 1 << 14,
            &[code, base, len, 0, 20, 1, 2, attributes],
            b"/bin/prog\0",
        ),
        record(13, 0, &[4], b""),
        record(17, 0, &[base, 64 | 1 << 32], b"bpf_prog_0123456789abcdef\0"),
        record(
            20,
            0,
            &[base],
            &[5, 0, 5, 0, 0x0f, 0x1f, 0x44, 0, 0, 0xe8, 1, 2, 3, 4],
        ),
    ]
}
