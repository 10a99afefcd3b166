//! Files that take long to parse, run by an unprivileged user during a measurement: it ends in order, and the parsing
//! that was given up is reported, bounded and counted.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use hbbp_model::profile::read_runs;
use hbbp_model::snapshot::{Loss, Snapshot};

use super::daemon::Daemon;
use super::{kernel, program, run};

const NOBODY: u32 = 65534;
const BASE: u64 = 0x40_0000;
const CODE: u64 = 0x1000;
const NAMES: u64 = 0x1800;
const SECTIONS: u64 = 0x2000;
/// Where tables begin.
const TABLES: u64 = 0x60_0000;
/// Rounds of a loop: some tenths of a second of any processor.
const ROUNDS: u64 = 1_500_000_000;

/// CPU time in ns that a measurement of a few seconds may take with all of these and its workers: the allowance of one
/// user, one file beyond that, and the remaining work of a build without optimisation.
const MOST_CPU: u64 = 20_000_000_000;

/// The names of sections.
const NAME_TABLE: &[u8] = b"\0.plt\0.eh_frame\0";
const PLT: u32 = 1;
const EH_FRAME: u32 = 6;

/// A section header.
struct Section {
    name: u32,
    kind: u32,
    start: u64,
    offset: u64,
    len: u64,
    link: u32,
}

impl Section {
    fn bytes(&self) -> Vec<u8> {
        let words = [
            u64::from(self.name) | u64::from(self.kind) << 32,
            0,
            self.start,
            self.offset,
            self.len,
            u64::from(self.link),
            1,
            0,
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// A section of the names, as the last one of each file.
const fn names() -> Section {
    Section {
        name: 0,
        kind: 3,
        start: 0,
        offset: NAMES,
        len: NAME_TABLE.len() as u64,
        link: 0,
    }
}

/// Many sections of one kind that all cover the same bytes.
fn same(n: usize, name: u32, kind: u32, len: u64) -> Vec<Section> {
    let dynamic = Section {
        kind: 11,
        link: 1,
        len: 48,
        ..names()
    };
    let section = |_| Section {
        name,
        kind,
        start: 1,
        offset: TABLES,
        len,
        link: 0,
    };
    let linkage = Section {
        name: PLT,
        kind: 1,
        start: 1,
        offset: CODE,
        len: 64,
        link: 0,
    };
    [dynamic, names(), linkage]
        .into_iter()
        .chain((0..n).map(section))
        .collect()
}

/// Writes a program, owned by the user `nobody`, that computes for a while and exits.
fn write(path: &Path, n_segments: u16, sections: &[Section], tables: &[u8], len: u64) {
    let mut code = vec![0x48, 0xbf];
    code.extend(ROUNDS.to_le_bytes());
    // dec rdi; jne; mov eax, exit; xor edi, edi; syscall
    code.extend([
        0x48, 0xff, 0xcf, 0x75, 0xfb, 0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05,
    ]);
    let headers: Vec<u8> = sections
        .iter()
        .chain([&names()])
        .flat_map(Section::bytes)
        .collect();
    let n_sections = u16::try_from(sections.len() + 1).unwrap();
    let mut head = vec![0; SECTIONS as usize];
    head[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    head[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    head[24..32].copy_from_slice(&(BASE + CODE).to_le_bytes());
    head[32..40].copy_from_slice(&64_u64.to_le_bytes());
    head[40..48].copy_from_slice(&SECTIONS.to_le_bytes());
    head[52..56].copy_from_slice(&[64, 0, 56, 0]);
    head[56..58].copy_from_slice(&n_segments.to_le_bytes());
    head[58..60].copy_from_slice(&64_u16.to_le_bytes());
    head[60..62].copy_from_slice(&n_sections.to_le_bytes());
    head[62..64].copy_from_slice(&(n_sections - 1).to_le_bytes());
    // One segment with the code; the others have gaps between them, and are empty in the file.
    for nth in 0..u64::from(n_segments) {
        let at = 64 + 56 * usize::try_from(nth).unwrap();
        let (offset, len) = if nth == 0 {
            (CODE, code.len() as u64)
        } else {
            (0, 0)
        };
        let start = BASE + CODE + (nth << 20);
        head[at..at + 8].copy_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
        for (field, value) in [
            (8, offset),
            (16, start),
            (24, start),
            (32, len),
            (40, len),
            (48, 0x1000),
        ] {
            head[at + field..at + field + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    let place = |at: u64| usize::try_from(at).unwrap();
    assert!(64 + 56 * usize::from(n_segments) <= place(CODE) || n_segments == 1);
    head[place(CODE)..place(CODE) + code.len()].copy_from_slice(&code);
    head[place(NAMES)..place(NAMES) + NAME_TABLE.len()].copy_from_slice(NAME_TABLE);
    let mut file = File::create(path).unwrap();
    file.write_all(&[head, headers].concat()).unwrap();
    if !tables.is_empty() {
        std::os::unix::fs::FileExt::write_all_at(&file, tables, TABLES).unwrap();
    }
    file.set_len(len.max(file.metadata().unwrap().len())).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    chown(path, Some(NOBODY), None).unwrap();
}

/// Frames whose every entry refers to another common one, megabytes before it.
fn far_frames() -> Vec<u8> {
    const N: u32 = 100_000;
    let entry = |back: u32| [16, back, 0, 1, 0].map(u32::to_le_bytes).concat();
    let common = (0..N).flat_map(|_| entry(0));
    common.chain((0..N).flat_map(|_| entry(20 * N + 4))).collect()
}

/// Symbols of functions that have no length, in falling order.
fn open_symbols() -> Vec<u8> {
    let symbol = |n: u64| {
        let start = BASE + CODE + (1 << 30) - n;
        [2_u64 << 32 | 1 << 48, start, 0].map(u64::to_le_bytes).concat()
    };
    (1..1_500_000).flat_map(symbol).collect()
}

/// Programs by kind, each of which would be parsed for seconds, or for hours.
fn hostile(folder: &Path) -> Vec<PathBuf> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let path = |name: &str| folder.join(name);
    let hole = TABLES + (64 << 20);
    // As many sections as a header can have, and the names last.
    write(&path("names"), 1, &same(65_531, PLT, 1, 0), &[], 0);
    write(&path("plt"), 1, &same(4000, PLT, 1, 64 << 20), &[], hole);
    write(&path("stubs"), 1, &same(4000, PLT, 1, 4 << 20), &[], hole);
    write(&path("relocations"), 1, &same(4000, 0, 4, 48 << 20), &[], hole);
    let frames = far_frames();
    let section = Section {
        name: EH_FRAME,
        kind: 1,
        start: BASE + TABLES,
        offset: TABLES,
        len: frames.len() as u64,
        link: 0,
    };
    write(&path("frames"), 1, &[section], &frames, 0);
    let symbols = open_symbols();
    let section = Section {
        name: 0,
        kind: 2,
        start: 0,
        offset: TABLES,
        len: symbols.len() as u64,
        link: 1,
    };
    write(&path("symbols"), 70, &[section], &symbols, 0);
    ["names", "plt", "stubs", "relocations", "frames", "symbols"]
        .map(path)
        .into()
}

/// Runs programs as the user `nobody`.
fn start(programs: &[PathBuf]) -> Vec<Child> {
    let nobody = |path: &PathBuf| Command::new(path).uid(NOBODY).gid(NOBODY).spawn().unwrap();
    programs.iter().map(nobody).collect()
}

fn wait(children: Vec<Child>) {
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

/// What must hold of profiles that were taken with hostile files on the machine.
fn assert_bounded(runs: &[Snapshot]) {
    let given_up: u64 = runs
        .iter()
        .map(|run| run.losses.get(Loss::FunctionsGivenUp))
        .sum();
    let own_cpu: u64 = runs.iter().map(|run| run.run.overhead.cpu).sum();
    println!(
        "{given_up} files without function names, {} ms of CPU time",
        own_cpu / 1_000_000
    );
    assert!(0 < given_up, "the frames are more than may be read");
    assert!(own_cpu < MOST_CPU, "{own_cpu} ns");
}

/// Recording with hostile files around ends, and reports what was given up.
#[test]
fn recording_with_hostile_files_ends() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let programs = hostile(folder.path());
    let output = folder.path().join("out.hbbp");
    let args = ["record", "--duration", "3", "-o", output.to_str().unwrap()];
    let recording = program(&args).spawn().unwrap();
    super::wait_until_it_measures(recording.id());
    let running = start(&programs);
    let done = recording.wait_with_output().unwrap();
    wait(running);
    assert!(done.status.success(), "{done:?}");
    let runs = read_runs(&output).unwrap();
    assert_bounded(&runs);
    let report = run(&["report", "--details", output.to_str().unwrap()]);
    let text = String::from_utf8(report.stdout).unwrap();
    assert!(text.contains("without function names"), "{text}");
}

/// The daemon keeps its intervals with hostile files around, and reports what was given up.
#[test]
fn daemon_with_hostile_files_keeps_its_intervals() {
    let Some(_kernel) = kernel() else { return };
    let made = tempfile::tempdir().unwrap();
    let files = made.path().join("files");
    fs::create_dir(&files).unwrap();
    let programs = hostile(&files);
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let daemon = Daemon::start(&made.path().join("segments"));
    daemon.until_intervals(1);
    for _ in 0..3 {
        // Files that were never seen before.
        let copies: Vec<PathBuf> = programs.iter().map(|path| path.with_extension("copy")).collect();
        for (path, copy) in programs.iter().zip(&copies) {
            fs::copy(path, copy).unwrap();
            chown(copy, Some(NOBODY), None).unwrap();
        }
        wait(start(&copies));
        copies.iter().for_each(|copy| fs::remove_file(copy).unwrap());
    }
    let segments = daemon.folder.clone();
    let n = super::daemon::n_intervals(&segments);
    daemon.until_intervals(n + 2);
    let said = daemon.stop();
    assert!(said.contains("of other processes not parsed"), "{said}");
    assert!(0 < super::daemon::assert_segments_close(&segments));
    let names = fs::read_dir(&segments)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let runs = names
        .filter(|path| path.extension().is_some_and(|it| it == "hbbp"))
        .flat_map(|path| read_runs(&path).unwrap());
    assert_bounded(&runs.collect::<Vec<_>>());
}

#[test]
fn watch_with_hostile_files_has_all_its_intervals() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let programs = hostile(folder.path());
    let watch = program(&["processwatch", "-c", "-i", "1", "-n", "3"]);
    let watching = { watch }.stdout(std::process::Stdio::piped()).spawn().unwrap();
    super::wait_until_it_measures(watching.id());
    let running = start(&programs);
    let done = watching.wait_with_output().unwrap();
    wait(running);
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8(done.stdout).unwrap();
    for interval in 0..3 {
        assert!(text.contains(&format!("\n{interval},ALL,ALL,")), "{text}");
    }
}
