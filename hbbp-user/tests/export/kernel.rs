//! Kernel text in the terms of its files: the relocation of the boot is undone, and a module that was loaded twice is one.
//!
//! The files are made of the program of these tests: an image at kernel addresses, and a relocatable file as modules are.
//! What their functions run is made up: each straight line of instructions as often as its number says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::file::encode;
use hbbp_model::snapshot::{
    Event, EventIdx, EventUnit, Interval, Mapping, Module, ModuleIdx, ModuleKind, Process, ProcessIdx,
    Snapshot, StreamCount, Symbol, Text,
};
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::addr2line::check_lines;
use crate::tool;

pub(crate) const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/export/program.c");

/// A file of kernel text, with what is needed to lay it out somewhere else.
pub(crate) struct KernelFile {
    pub(crate) path: PathBuf,
    build_id: Vec<u8>,
    /// For each section of code: address in the file (0 in a relocatable one), offset in the file, bytes.
    pub(crate) sections: BTreeMap<usize, (u64, u64, Vec<u8>)>,
    /// Functions: name, section, address in the file, length.
    pub(crate) functions: Vec<(String, usize, u64, u64)>,
}

impl KernelFile {
    fn read(path: PathBuf) -> Self {
        let bytes = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let code = file
            .sections()
            .filter(|s| s.kind() == object::SectionKind::Text && 0 < s.size());
        let sections = code.map(|s| {
            let offset = s.file_range().unwrap().0;
            (s.index().0, (s.address(), offset, s.data().unwrap().to_vec()))
        });
        let functions = file
            .symbols()
            .filter(|s| s.kind() == SymbolKind::Text && 0 < s.size());
        let functions = functions.map(|s| {
            let section = s.section_index().unwrap().0;
            (s.name().unwrap().to_owned(), section, s.address(), s.size())
        });
        Self {
            build_id: file.build_id().unwrap().unwrap().to_vec(),
            sections: sections.collect(),
            functions: functions.collect(),
            path,
        }
    }

    /// The straight lines of a section: addresses in the file of the first and the last instruction.
    pub(crate) fn lines(&self, section: usize) -> Vec<(u64, u64)> {
        let (start, _, bytes) = &self.sections[&section];
        let mut decoder = Decoder::with_ip(64, bytes, *start, DecoderOptions::NONE);
        let mut lines = Vec::new();
        let mut first = None;
        for instruction in &mut decoder {
            let begins = *first.get_or_insert(instruction.ip());
            let is_padding = matches!(instruction.mnemonic(), iced_x86::Mnemonic::Nop);
            if is_padding {
                first = None;
            } else if !matches!(instruction.flow_control(), FlowControl::Next) {
                lines.push((begins, instruction.ip()));
                first = None;
            }
        }
        lines
    }
}

/// Compiles the program with debug information.
fn compile(folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let path = folder.join(name);
    let mut compile = Command::new("cc");
    compile.args([
        "-O2",
        "-g",
        "-ffreestanding",
        "-fno-stack-protector",
        "-fno-pic",
        "-mcmodel=kernel",
    ]);
    tool::run(compile.args(more).arg("-o").arg(&path).arg(SOURCE));
    path
}

fn vmlinux(folder: &Path) -> KernelFile {
    let text = "-Wl,-Ttext-segment=0xffffffff81000000";
    let static_at = [
        "-nostdlib",
        "-static",
        "-no-pie",
        text,
        "-Wl,-e,begin",
        "-Wl,--build-id",
    ];
    KernelFile::read(compile(folder, "vmlinux", &static_at))
}

fn module(folder: &Path) -> KernelFile {
    let object = compile(folder, "twice.o", &["-c"]);
    let path = folder.join("twice.ko");
    let mut link = Command::new("ld");
    tool::run(link.args(["-r", "--build-id", "-o"]).arg(&path).arg(object));
    KernelFile::read(path)
}

/// A profile of kernel text at some addresses: every straight line was executed once more than the one before it.
fn profile(file: &KernelFile, kind: ModuleKind, name: &str, loads: &[u64], folder: &Path) -> PathBuf {
    let mut snapshot = Snapshot {
        modules: vec![Module {
            name: name.to_owned(),
            kind,
            build_id: file.build_id.clone(),
            symbols: Vec::new(),
        }],
        processes: vec![Process::default()],
        intervals: vec![Interval::default()],
        ..Snapshot::default()
    };
    snapshot.run.events = vec![Event {
        unit: EventUnit::TakenBranches,
        branch_stack: true,
        near_only: true,
        ..Event::default()
    }];
    for load in loads {
        let mut at = *load;
        for (idx, (linked, _, bytes)) in &file.sections {
            // A relocatable section comes after the one before it, an image stays as it is.
            let start = if *linked == 0 {
                at
            } else {
                load.wrapping_add(*linked)
            };
            at += (bytes.len() as u64).next_multiple_of(64);
            place(&mut snapshot, file, *idx, start.wrapping_sub(*linked));
        }
    }
    snapshot.modules[0].symbols.sort_by_key(|symbol| symbol.start);
    snapshot.text.sort_by_key(|text| text.start);
    snapshot.processes[0]
        .mappings
        .sort_by_key(|mapping| mapping.start);
    snapshot.check().unwrap();
    let path = folder.join(format!("{name}.hbbp"));
    std::fs::write(&path, encode(&snapshot).unwrap()).unwrap();
    path
}

/// Adds a section that was moved by `slide`.
fn place(snapshot: &mut Snapshot, file: &KernelFile, section: usize, slide: u64) {
    let (linked, _, bytes) = &file.sections[&section];
    let start = linked.wrapping_add(slide);
    snapshot.processes[0].mappings.push(Mapping {
        start: Va(start),
        end: Va(start + bytes.len() as u64),
        module: ModuleIdx(0),
        image_start: ImageAddr(start),
        from: 0,
    });
    snapshot.text.push(Text {
        module: ModuleIdx(0),
        start: ImageAddr(start),
        bytes: bytes.clone(),
        since: 0,
    });
    let functions = file.functions.iter().filter(|(_, of, ..)| *of == section);
    snapshot.modules[0]
        .symbols
        .extend(functions.map(|(name, _, at, len)| Symbol {
            start: ImageAddr(at.wrapping_add(slide)),
            len: *len,
            name: name.clone(),
        }));
    let streams = file
        .lines(section)
        .into_iter()
        .zip(1..)
        .map(|((first, last), hits)| StreamCount {
            event: EventIdx(0),
            process: ProcessIdx::KERNEL,
            start: Va(first.wrapping_add(slide)),
            end: Va(last.wrapping_add(slide)),
            source: Some(Va(0)),
            hits,
            weight: hits as f64,
            cycles: None,
        });
    snapshot.intervals[0].streams.extend(streams);
}

/// Ranges of the export `ranges`: counts by file offsets.
fn ranges(text: &str) -> BTreeMap<(u64, u64), u64> {
    let n: usize = text.lines().next().unwrap().parse().unwrap();
    let range = |line: &str| {
        let (ends, count) = line.split_once(':').unwrap();
        let (first, last) = ends.split_once('-').unwrap();
        let address = |text: &str| u64::from_str_radix(text, 16).unwrap();
        ((address(first), address(last)), count.parse().unwrap())
    };
    text.lines().skip(1).take(n).map(range).collect()
}

/// The same, of a file whose lines were executed `times` as often.
fn expected(file: &KernelFile, times: u64) -> BTreeMap<(u64, u64), u64> {
    let of_section = |(idx, (linked, offset, _)): (&usize, &(u64, u64, Vec<u8>))| {
        let term = offset.wrapping_sub(*linked);
        let lines = file.lines(*idx).into_iter().zip(1..);
        let line = move |((first, last), n): ((u64, u64), u64)| {
            ((first.wrapping_add(term), last.wrapping_add(term)), n * times)
        };
        lines.map(line).collect::<Vec<_>>()
    };
    file.sections.iter().flat_map(of_section).collect()
}

fn export(profile: &Path, format: &str, image: &Path) -> String {
    let output = profile.with_extension(format);
    let (_, said) = tool::export(profile, format, &output, &["--image", image.to_str().unwrap()]);
    // What led to the lines was not made up.
    let said: Vec<&str> = said
        .lines()
        .filter(|line| !line.contains("left out of all images"))
        .collect();
    assert!(said.is_empty(), "{said:?}");
    std::fs::read_to_string(output).unwrap()
}

#[test]
fn vmlinux_has_the_addresses_that_it_was_linked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = vmlinux(folder.path());
    let profile = profile(
        &file,
        ModuleKind::Kernel,
        "[kernel]",
        &[0x1c60_0000],
        folder.path(),
    );
    assert_eq!(
        ranges(&export(&profile, "ranges", &file.path)),
        expected(&file, 1)
    );
    let unsymbolized = ranges(&export(&profile, "profgen", &file.path));
    let linked = file.sections.keys().flat_map(|section| file.lines(*section));
    let base = file
        .sections
        .values()
        .map(|(start, ..)| start / 4096 * 4096)
        .min()
        .unwrap();
    let linked = linked.map(|(first, last)| (first - base, last - base));
    assert_eq!(
        unsymbolized.keys().copied().collect::<Vec<_>>(),
        linked.collect::<Vec<_>>()
    );
    check_lines(&file, &export(&profile, "autofdo", &file.path), 1);
}

#[test]
fn module_that_was_loaded_twice_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = module(folder.path());
    let loads = [0xffff_ffff_c020_0000, 0xffff_ffff_c0a3_4000];
    let profile = profile(&file, ModuleKind::KernelModule, "twice", &loads, folder.path());
    assert_eq!(
        ranges(&export(&profile, "ranges", &file.path)),
        expected(&file, 2)
    );
    check_lines(&file, &export(&profile, "autofdo", &file.path), 2);
}

/// Kernels of two boots are summed in the addresses of their file.
#[test]
fn kernels_of_two_boots_are_summed_by_file_address() {
    let folder = tempfile::tempdir().unwrap();
    let file = vmlinux(folder.path());
    let merged = folder.path().join("merged.hbbp");
    let mut merge = tool::hbbp(&["merge", "-o", merged.to_str().unwrap()]);
    for slide in [0x1c60_0000, 0x0320_0000] {
        let boot = folder.path().join(format!("{slide:x}"));
        std::fs::create_dir(&boot).unwrap();
        merge.arg(profile(&file, ModuleKind::Kernel, "[kernel]", &[slide], &boot));
    }
    tool::run(&mut merge);
    assert_eq!(ranges(&export(&merged, "ranges", &file.path)), expected(&file, 2));
    check_lines(&file, &export(&merged, "autofdo", &file.path), 2);
    let sum = |profile: &Path| -> u64 {
        let collapsed = export(profile, "collapsed", &file.path);
        let count = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        collapsed.lines().map(count).sum()
    };
    let one = folder.path().join("3200000/[kernel].hbbp");
    assert_eq!(sum(&merged), 2 * sum(&one));

    let args = ["export", merged.to_str().unwrap(), "--format", "parquet"];
    let refused = tool::hbbp(&args).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("the profile holds 2 runs"),
        "{said}"
    );
}
