//! The first files of the fuzz targets' corpus, from the made-up recordings of these tests.

use crate::elf::{LOOP, Program, elf};
use crate::run::Folder;
use crate::writer::{Attr, File, comm, mmap2, stack, string, taken, turns};
use hbbp_model::addr::Va;
use hbbp_model::snapshot::{Snapshot, file};
use hbbp_user::cmd::import::{ImportOptions, import};

/// The files: target, name and content.
pub(crate) fn first_files() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let imported = imported();
    vec![
        ("perf_data", "file", recording().bytes()),
        ("perf_data", "pipe", recording().pipe()),
        ("perf_data", "compressed", recording().compressed().bytes()),
        ("script", "all", SCRIPT.as_bytes().to_vec()),
        ("preaggregated", "all", PREAGGREGATED.as_bytes().to_vec()),
        ("sideband", "all", ring(run_of_two_processes())),
        ("sideband", "kinds", ring(record_of_each_kind())),
        ("snapshot", "imported", file::encode(&imported).unwrap()),
        ("snapshot", "compressed", file::encode(&varied(imported)).unwrap()),
    ]
}

const SCRIPT: &str = "prog 5 1.1: PERF_RECORD_MMAP2 5/5: [0x5500000000(0x1000) @ 0x1000 <ab01>]: r-xp /bin/prog\n\
                      prog 5 [000] 1.2:  100 cycles:u:\n\t 5500000007 main (/bin/prog)\n \
                      0x5500000007/0x5500000005/P/-/-/3/COND/- ab01:10/ab01:20/M/X/A/0\n3\n 0x1(/a)/0x2(/a)/-/-/-/0\n";

const PREAGGREGATED: &str =
    "E cycles\nT 1 2 3 4\nR 0 2 ffffffffffffffff 4\nB 1 ab01:2 3 4\nF 1 2 3\nf 1 2 3\nr X:1 2 3\nS 1 2\n";

fn recording() -> File {
    let base = 0x55_0000_0000;
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
}

/// The profile of the recording.
fn imported() -> Snapshot {
    let folder = Folder::new();
    let program = elf(&Program {
        code: LOOP,
        offset: 0x1000,
        address: 0x1000,
        build_id: &[1; 20],
    });
    let mut options = ImportOptions {
        file: folder.write("perf.data", recording().bytes()),
        ..Default::default()
    };
    options.places.binaries.push(folder.write("prog", program));
    let mut snapshot = import(&options).unwrap();
    // The folder has another name each time.
    snapshot.run.scope = "a recording".to_owned();
    snapshot
}

/// With branches, cycles and notes, and as long as sections must be to be compressed.
fn varied(mut snapshot: Snapshot) -> Snapshot {
    for text in &mut snapshot.text {
        text.bytes = text.bytes.repeat(40);
    }
    let mut interval = snapshot.intervals[0].clone();
    for stream in &mut interval.streams {
        stream.source = None;
        stream.weight /= 3.0;
    }
    snapshot.intervals.push(interval);
    snapshot.run.notes.push("a note".to_owned());
    snapshot
}

/// A record of the sideband without its header and time: type, misc and body (include/uapi/linux/perf_event.h,
/// `enum perf_event_type`).
type Record = (u32, u16, Vec<u8>);

/// A ring with these records, one each microsecond.
fn ring(records: Vec<Record>) -> Vec<u8> {
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

/// Two processes that map files, and kernel text that changes.
fn run_of_two_processes() -> Vec<Record> {
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
    vec![
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
    ]
}

fn record_of_each_kind() -> Vec<Record> {
    let record = |kind: u32, misc: u16, words: &[u64], text: &[u8]| {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend(text);
        body.resize(body.len().next_multiple_of(8), 0);
        (kind, misc, body)
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
