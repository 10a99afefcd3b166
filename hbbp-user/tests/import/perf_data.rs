//! Made-up perf.data files, and what must be the same however they are written.

use hbbp_user::addr::Va;

use crate::elf::{LOOP, Program, elf};
use crate::run::{Folder, export, lines};

/// IP, TID, TIME, PERIOD and the branch stack, in front of them the id.
pub(crate) const STACKS: u64 = 1 | 2 | 4 | 1 << 8 | 1 << 11 | 1 << 16;
/// The same without a branch stack.
pub(crate) const ADDRESSES: u64 = 1 | 2 | 4 | 1 << 8 | 1 << 16;

/// An event of a made-up file.
#[derive(Clone)]
pub(crate) struct Attr {
    pub(crate) kind: u32,
    pub(crate) config: u64,
    pub(crate) sample_type: u64,
    pub(crate) branch_sample_type: u64,
    pub(crate) size: u32,
    pub(crate) id: u64,
}

/// BR_INST_RETIRED.NEAR_TAKEN with branch stacks.
pub(crate) fn taken() -> Attr {
    Attr {
        kind: 4,
        config: 0x20c4,
        sample_type: STACKS,
        branch_sample_type: 8,
        size: 112,
        id: 77,
    }
}

/// A made-up file: its events, its records, and what it says of the machine.
pub(crate) struct File {
    pub(crate) attrs: Vec<Attr>,
    pub(crate) records: Vec<Vec<u8>>,
    /// Number and content of features, by rising number.
    pub(crate) features: Vec<(u64, Vec<u8>)>,
}

pub(crate) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(crate) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(misc.to_le_bytes());
    bytes.extend(u16::try_from(8 + body.len()).unwrap().to_le_bytes());
    bytes.extend(body);
    bytes
}

/// A string feature: length, text, zeros.
pub(crate) fn string(text: &str) -> Vec<u8> {
    let mut bytes = 64_u32.to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes.resize(68, 0);
    bytes
}

/// What stands at the end of records that are no samples: tid, time, id.
fn trailer(pid: u32, time: u64) -> Vec<u8> {
    words(&[u64::from(pid) << 32 | u64::from(pid), time, 77])
}

pub(crate) fn mmap2(pid: u32, time: u64, range: (u64, u64), offset: u64, path: &str) -> Vec<u8> {
    let mut body = words(&[
        u64::from(pid) << 32 | u64::from(pid),
        range.0,
        range.1,
        offset,
        0,
        0,
        0,
    ]);
    body.extend(5_u32.to_le_bytes());
    body.extend(2_u32.to_le_bytes());
    body.extend(path.as_bytes());
    body.resize(body.len() / 8 * 8 + 8, 0);
    body.extend(trailer(pid, time));
    record(10, 2, &body)
}

pub(crate) fn comm(pid: u32, time: u64, name: &str, misc: u16) -> Vec<u8> {
    let mut body = words(&[u64::from(pid) << 32 | u64::from(pid)]);
    body.extend(name.as_bytes());
    body.resize(24, 0);
    body.extend(trailer(pid, time));
    record(3, misc, &body)
}

/// A sample with a branch stack of (from, to, flags).
pub(crate) fn stack(pid: u32, time: u64, entries: &[(u64, u64, u64)]) -> Vec<u8> {
    let ip = entries.first().map_or(0, |entry| entry.1);
    let mut body = words(&[77, ip, u64::from(pid) << 32 | u64::from(pid), time, 1000]);
    body.extend(words(&[u64::try_from(entries.len()).unwrap()]));
    body.extend(
        entries
            .iter()
            .flat_map(|(from, to, flags)| words(&[*from, *to, *flags])),
    );
    record(9, 2, &body)
}

impl File {
    pub(crate) fn new(records: Vec<Vec<u8>>) -> Self {
        Self {
            attrs: vec![taken()],
            records,
            features: vec![(6, string("x86_64"))],
        }
    }

    fn attr(attr: &Attr) -> Vec<u8> {
        let mut bytes = attr.kind.to_le_bytes().to_vec();
        bytes.extend(attr.size.to_le_bytes());
        // SAMPLE_ID_ALL
        bytes.extend(words(&[
            attr.config,
            1000,
            attr.sample_type,
            0,
            1 << 18,
            0,
            0,
            0,
            attr.branch_sample_type,
        ]));
        bytes.resize(usize::try_from(attr.size).unwrap().max(bytes.len()), 0);
        bytes.truncate(usize::try_from(attr.size).unwrap());
        bytes
    }

    /// As `perf record -o FILE` writes it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let data = self.records.concat();
        let n_attrs = u64::try_from(self.attrs.len()).unwrap();
        let attr_size = u64::from(self.attrs[0].size) + 16;
        let ids = 104;
        let attrs = ids + 8 * n_attrs;
        let start = attrs + attr_size * n_attrs;
        let len = u64::try_from(data.len()).unwrap();
        let features = self.features.iter().fold(0, |set, (bit, _)| set | 1 << bit);
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend(words(&[
            104,
            attr_size,
            attrs,
            attr_size * n_attrs,
            start,
            len,
            0,
            0,
            features,
            0,
            0,
            0,
        ]));
        bytes.extend(self.attrs.iter().flat_map(|attr| words(&[attr.id])));
        for (attr, nth) in self.attrs.iter().zip(0..) {
            bytes.extend(Self::attr(attr));
            bytes.extend(words(&[ids + 8 * nth, 8]));
        }
        bytes.extend(data);
        let mut at = start + len + 16 * u64::try_from(self.features.len()).unwrap();
        for (_, content) in &self.features {
            let len = u64::try_from(content.len()).unwrap();
            bytes.extend(words(&[at, len]));
            at += len;
        }
        bytes.extend(self.features.iter().flat_map(|(_, content)| content.clone()));
        bytes
    }

    /// As `perf record -o -` writes it.
    pub(crate) fn pipe(&self) -> Vec<u8> {
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend(words(&[16]));
        for attr in &self.attrs {
            bytes.extend(record(64, 0, &[Self::attr(attr), words(&[attr.id])].concat()));
        }
        for (number, content) in &self.features {
            bytes.extend(record(80, 0, &[words(&[*number]), content.clone()].concat()));
        }
        bytes.extend(self.records.concat());
        bytes
    }

    /// The same records, compressed as `perf record -z` does it.
    pub(crate) fn compressed(self) -> Self {
        let packed = zstd::stream::encode_all(&self.records.concat()[..], 1).unwrap();
        let records = packed.chunks(50).map(|part| record(81, 0, part)).collect();
        Self { records, ..self }
    }
}

/// Three turns of the loop, the call and the jump back, in a program that is loaded at `base`.
pub(crate) fn turns(base: Va) -> Vec<(u64, u64, u64)> {
    let jump = |from: u64, to: u64| (base.0 + from, base.0 + to, 2);
    vec![
        jump(7, 5),
        jump(7, 5),
        jump(14, 0),
        jump(16, 14),
        jump(9, 16),
        jump(7, 5),
    ]
}

fn recording() -> File {
    File::new(vec![
        comm(5, 1, "prog", 1 << 13),
        mmap2(5, 2, (0x55_0000_0000, 0x1000), 0x1000, "/bin/prog"),
        stack(5, 3, &turns(Va(0x55_0000_0000))),
        stack(5, 4, &turns(Va(0x55_0000_0000))),
    ])
}

fn program(folder: &Folder) -> String {
    let bytes = elf(&Program {
        code: LOOP,
        offset: 0x1000,
        address: 0x1000,
        build_id: &[1; 20],
    });
    folder.write("prog", bytes).to_str().unwrap().to_owned()
}

#[test]
fn file_pipe_and_compressed_give_the_same() {
    let folder = Folder::new();
    let program = program(&folder);
    let streams = |bytes: Vec<u8>| {
        let path = folder.write("perf.data", bytes);
        export(&path, &["--binary", &program, "--format", "streams"])
    };
    let plain = streams(recording().bytes());
    // Of five streams of a stack one passes the jump: the loop is left by falling through to the call.
    assert_eq!(
        lines(&plain, "S "),
        [
            "S 1000 1007 2",
            "S 1005 1007 2",
            "S 1005 1009 2",
            "S 100e 100e 2",
            "S 1010 1010 2"
        ]
    );
    assert_eq!(lines(&plain, "# "), [""; 0]);
    assert_eq!(streams(recording().pipe()), plain);
    assert_eq!(streams(recording().compressed().bytes()), plain);
    assert_eq!(streams(recording().compressed().pipe()), plain);
}

#[test]
fn attributes_of_all_sizes_give_the_same() {
    let folder = Folder::new();
    let program = program(&folder);
    let streams = |size| {
        let mut file = recording();
        file.attrs[0].size = size;
        let path = folder.write("perf.data", file.bytes());
        export(&path, &["--binary", &program, "--format", "streams"])
    };
    for size in [80, 96, 104, 112, 120, 128, 136, 144, 512] {
        assert_eq!(streams(size), streams(112), "{size}");
    }
}

#[test]
fn several_events_are_told_apart_by_their_ids() {
    let folder = Folder::new();
    let program = program(&folder);
    let mut file = recording();
    let address = |id: u64, ip: u64| record(9, 2, &words(&[id, ip, 5 << 32 | 5, 3, 600]));
    let other = |kind, config, id| Attr {
        kind,
        config,
        sample_type: ADDRESSES,
        id,
        ..taken()
    };
    file.attrs.extend([other(0, 1, 78), other(4, 0x20d1, 79)]);
    file.records.extend([
        address(78, 0x55_0000_0005),
        address(78, 0x55_0000_0007),
        address(79, 0x55_0000_0005),
    ]);
    let path = folder.write("perf.data", file.bytes());
    let ebs = export(
        &path,
        &["--binary", &program, "--format", "counts", "--source", "ebs"],
    );
    // Two samples of 600 instructions in a block of two.
    assert_eq!(lines(&ebs, "10"), ["1005 600", "1007 600"]);
    let target = folder.path().join("x.hbbp");
    let args = [
        "import",
        path.to_str().unwrap(),
        "--binary",
        &program,
        "-o",
        target.to_str().unwrap(),
    ];
    assert_eq!(crate::run::hbbp(&args).code, Some(0));
    let report = crate::run::hbbp(&["report", target.to_str().unwrap()]);
    assert!(
        report.out.contains("1 samples of r20d1 are left out"),
        "{}",
        report.out
    );
    assert_eq!(
        crate::run::hbbp(&["report", path.to_str().unwrap(), "--binary", &program]).out,
        report.out
    );
}

#[test]
fn addresses_that_change_their_meaning_are_read_as_of_their_time() {
    let folder = Folder::new();
    let program = program(&folder);
    let nops = elf(&Program {
        code: &[0x90, 0x90, 0xeb, 0xfc],
        offset: 0x1000,
        address: 0x1000,
        build_id: &[],
    });
    let nops = folder.write("nops", nops);
    let base = 0x55_0000_0000;
    let file = File::new(vec![
        mmap2(5, 2, (base, 0x1000), 0x1000, "/bin/prog"),
        stack(5, 3, &[(base + 7, base + 5, 0), (base + 7, base + 5, 0)]),
        // Written by another CPU, it comes later than it happened.
        stack(5, 9, &[(base + 2, base, 0), (base + 2, base, 0)]),
        mmap2(5, 6, (base, 0x1000), 0x1000, "/lib/nops"),
        stack(5, 4, &[(base + 7, base + 5, 0), (base + 7, base + 5, 0)]),
    ]);
    let path = folder.write("perf.data", file.bytes());
    let binaries = [
        "--binary",
        &program,
        "--binary",
        nops.to_str().unwrap(),
        "--format",
        "streams",
    ];
    let streams = export(&path, &binaries);
    let id = "01".repeat(20);
    assert_eq!(
        streams,
        format!("M /bin/prog {id}\nS 1005 1007 2\nM /lib/nops -\nS 1000 1002 1\n")
    );
}

#[test]
fn processes_can_be_chosen() {
    let folder = Folder::new();
    let program = program(&folder);
    let mut file = recording();
    file.records
        .push(mmap2(6, 2, (0x66_0000_0000, 0x1000), 0x1000, "/bin/prog"));
    file.records.push(stack(6, 5, &turns(Va(0x66_0000_0000))));
    let path = folder.write("perf.data", file.bytes());
    let streams = |more: &[&str]| {
        export(
            &path,
            &[&["--binary", &program, "--format", "streams"], more].concat(),
        )
    };
    assert!(streams(&[]).contains("S 1005 1009 3"));
    assert!(streams(&["--pid", "6"]).contains("S 1005 1009 1"));
    assert!(streams(&["--pid", "5"]).contains("S 1005 1009 2"));
}

#[test]
fn files_are_found_below_a_folder_of_files() {
    let folder = Folder::new();
    let bytes = elf(&Program {
        code: LOOP,
        offset: 0x1000,
        address: 0x1000,
        build_id: &[],
    });
    folder.write("root/bin/prog", bytes);
    let path = folder.write("perf.data", recording().bytes());
    let root = folder.path().join("root");
    let streams = export(&path, &["--symfs", root.to_str().unwrap(), "--format", "streams"]);
    assert_eq!(lines(&streams, "S ").len(), 5);
}

#[test]
fn standard_input_and_pipes_are_read() {
    let folder = Folder::new();
    let program = program(&folder);
    let path = folder.write("perf.data", recording().pipe());
    let target = folder.path().join("x.hbbp");
    let import = format!(
        "{} import - --binary {program} -o {}",
        env!("CARGO_BIN_EXE_hbbp-sys"),
        target.display()
    );
    let run = |command: &str| {
        std::process::Command::new("sh")
            .args(["-c", command])
            .status()
            .unwrap()
    };
    assert!(run(&format!("cat {} | {import}", path.display())).success());
    let from_input = export(&target, &["--format", "streams"]);
    let fifo = folder.path().join("fifo");
    assert!(
        run(&format!(
            "mkfifo {0} && cat {1} > {0} &",
            fifo.display(),
            path.display()
        ))
        .success()
    );
    while !fifo.exists() {
        std::thread::yield_now();
    }
    let import = import.replace(" - ", &format!(" {} ", fifo.display()));
    assert!(run(&import).success());
    assert_eq!(export(&target, &["--format", "streams"]), from_input);
    assert_eq!(lines(&from_input, "S ").len(), 5);
}

#[test]
fn perf_of_2012_writes_neither_ids_nor_times_nor_branches() {
    let folder = Folder::new();
    let program = program(&folder);
    let mut body = words(&[5 << 32 | 5, 0x55_0000_0000, 0x1000, 0x1000]);
    body.extend(b"/bin/prog\0\0\0\0\0\0\0");
    let mut file = File::new(vec![
        record(1, 2, &body),
        record(9, 2, &words(&[0x55_0000_0005, 5 << 32 | 5])),
    ]);
    file.attrs[0] = Attr {
        kind: 0,
        config: 1,
        sample_type: 3,
        branch_sample_type: 0,
        size: 72,
        id: 0,
    };
    let path = folder.write("perf.data", file.bytes());
    let counts = export(
        &path,
        &["--binary", &program, "--format", "counts", "--source", "ebs"],
    );
    // The period of the event stands in for that of the sample: 1000 over a block of two.
    assert_eq!(lines(&counts, "10"), ["1005 500", "1007 500"]);
}

#[test]
fn what_the_recorder_lost_is_told() {
    let folder = Folder::new();
    let program = program(&folder);
    let mut file = recording();
    file.records.push(record(2, 0, &words(&[77, 4321, 0, 9, 77])));
    file.records.push(record(5, 0, &words(&[9, 77, 77, 0, 9, 77])));
    file.records.push(record(9, 2, &[0; 16]));
    let path = folder.write("perf.data", file.bytes());
    let report = crate::run::hbbp(&["report", path.to_str().unwrap(), "--binary", &program]).out;
    assert!(
        report.contains("4,321 records, most of them samples, were lost by their recorder"),
        "{report}"
    );
    assert!(report.contains("stopped events 1 times"), "{report}");
    assert!(
        report.contains("1 samples of the recording are damaged"),
        "{report}"
    );
}
