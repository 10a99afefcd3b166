//! What strangers write: ELF files with lying headers, and text of /proc that makes no sense.
//!
//! Nothing may panic, wait, or ask for more memory than the file has.

use std::time::Duration;

use proptest::prelude::*;

use hbbp_elf::build_id::parse_build_id;
use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::functions::{SymbolFile, read_functions};
use hbbp_elf::layout::read_layout;
use hbbp_elf::parser::Parser;
use hbbp_elf::perf_map::read_perf_map;
use hbbp_model::addr::{FileOff, ImageAddr, Va};
use hbbp_model::snapshot::{Module, ModuleIdx, ModuleKind, Snapshot};
use hbbp_resolve::kernel::kallsyms::parse_kallsyms;
use hbbp_resolve::kernel::map::KernelMap;
use hbbp_resolve::kernel::modules::parse_modules;
use hbbp_resolve::source::lines::SourceLines;
use hbbp_resolve::user::image::Image;
use hbbp_resolve::user::proc_scan::parse_maps;
use object::{Object as _, ObjectSection as _};
use rustix::time::{ClockId, clock_gettime};

/// CPU time that no test may need: some hundred times what they do. It finds inputs that take for ever.
const LONGEST: Duration = Duration::from_secs(60);

/// CPU time of this thread, which other programs do not change.
fn own_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .expect("not negative")
}

/// A small program of this machine, with symbols of its dynamic linker interface and unwind tables.
fn program() -> Vec<u8> {
    std::fs::read("/bin/true").expect("every machine has it")
}

/// Does with an ELF file all that a hit would do.
fn read_all(bytes: Vec<u8>) {
    let source = ByteSource::Memory(bytes.clone());
    if let Ok(layout) = read_layout(&source) {
        let own = SymbolFile {
            source: &source,
            layout: &layout,
        };
        let functions = read_functions(own, &[own]);
        for at in [0, 1, 0x1000, 0x2345, 0x40_1000, u64::MAX / 2, u64::MAX] {
            let _ = functions.read_function_at(ImageAddr(at), &source, &[]);
        }
    }
    if let Ok(mut image) = Image::of_file("hostile".to_owned(), ByteSource::Memory(bytes), &Parser::Here) {
        for at in [0, 0x1000, 0x2345, u64::MAX - 1, u64::MAX] {
            let start = image
                .image_start(Va(at), FileOff(at), &|distance, _| distance % 3 == 0)
                .unwrap_or(ImageAddr(at));
            let mapped = ImageAddr(start.0.min(at))..ImageAddr(start.0.saturating_add(0x1000).max(at));
            let _ = image.cover(ImageAddr(at), mapped.clone(), None, &Parser::Here);
            let _ = image.cover(start, mapped, None, &Parser::Here);
        }
    }
}

#[test]
fn every_field_of_the_headers_lies() {
    let program = program();
    let word = |at: usize| u64::from_le_bytes(program[at..at + 8].try_into().expect("8 bytes"));
    let sections = usize::try_from(word(40)).expect("small");
    let headers = (0..0x40 + 13 * 56).chain(sections..program.len());
    let begin = own_time();
    for at in headers.step_by(4) {
        for value in [0, 1, u32::MAX, 0x7fff_ffff] {
            let mut bytes = program.clone();
            for (byte, new) in bytes.iter_mut().skip(at).zip(value.to_le_bytes()) {
                *byte = new;
            }
            read_all(bytes);
        }
    }
    assert!(own_time() - begin < LONGEST, "{:?}", own_time() - begin);
}

#[test]
fn every_length_of_a_truncated_file() {
    let program = program();
    for len in (0..program.len()).step_by(97) {
        read_all(program[..len].to_vec());
    }
}

proptest! {
    #[test]
    fn damaged_programs(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..64)) {
        let mut bytes = program();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        read_all(bytes);
    }

    #[test]
    fn any_text(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse_maps(1, &bytes);
        let _ = parse_modules(&bytes);
        let _ = read_perf_map(&ByteSource::Memory(bytes.clone()));
        let _ = parse_build_id(&bytes);
        let _ = parse_kallsyms(&bytes);
        read_all(bytes);
    }

    #[test]
    fn any_kernel(
        lines in prop::collection::vec("[0f]{0,8}[0-9a-f]{1,8} [tTwWaAdD] [a-z_]{1,12}(\t\\[(bpf|ext4|__builtin__ftrace)\\])?", 0..40),
        modules in prop::collection::vec("[a-z]{1,4} [0-9]{1,20} 0 - Live 0x[0-9a-f]{1,16}", 0..5),
        programs in prop::collection::vec((any::<u64>(), any::<u32>(), 0_u64..9), 0..9),
        hits in prop::collection::vec((any::<u64>(), 0_u64..9), 0..40),
    ) {
        let symbols = parse_kallsyms(lines.join("\n").as_bytes());
        let starts: Vec<u64> = symbols.iter().map(|s| s.start.0).collect();
        prop_assert!(starts.is_sorted_by(|a, b| a < b));
        let mut map = KernelMap::default();
        map.update(symbols, &parse_modules(modules.join("\n").as_bytes()), None, 0);
        for (start, len, time) in programs {
            map.came(Va(start), len, "bpf_prog_1", time);
            map.went(Va(start), "bpf_prog_1", time + 2);
        }
        for (at, time) in hits.into_iter().chain(starts.into_iter().map(|start| (start, 1))) {
            let region = map.region_at(Va(at), time);
            prop_assert!(region.start.0 <= at && (at < region.end.0 || at == u64::MAX));
            if let Some(symbol) = map.function_at(Va(at), &region) {
                prop_assert!(region.start.0 <= symbol.start.0);
                prop_assert!(symbol.start.0.saturating_add(symbol.len) <= region.end.0);
            }
        }
        map.forget_before(5, |_| false);
    }
}

/// Debug information comes from files of strangers too.
#[test]
fn debug_information_that_lies() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
    let text =
        "static inline int f(int x) { return x / 3; } int main(int n, char **v) { return f(n) + f(n * 7); }";
    std::fs::write(&source, text).expect("a source");
    let mut cc = std::process::Command::new("cc");
    let built = cc
        .args(["-O2", "-g", "-gz=none", "-Wl,--build-id", "-o"])
        .arg(&program)
        .arg(&source)
        .status();
    assert!(built.expect("cc").success());
    let bytes = std::fs::read(&program).expect("the program");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let debug = file
        .sections()
        .filter(|s| s.name().is_ok_and(|name| name.starts_with(".debug_")));
    let ranges: Vec<(u64, u64)> = debug.filter_map(|s| s.file_range()).collect();
    let main = file.entry();
    let build_id = file.build_id().expect("readable").expect("asked for").to_vec();
    let name = program.to_str().expect("UTF-8").to_owned();
    let module = Module {
        name,
        kind: ModuleKind::Elf64,
        build_id,
        symbols: Vec::new(),
    };
    let snapshot = Snapshot {
        modules: vec![module],
        ..Snapshot::default()
    };
    let mut lines = SourceLines::new(&snapshot, Vec::new());
    let found = (0..0x400).filter_map(|n| lines.find(ModuleIdx(0), ImageAddr((main & !0xfff) + n)));
    let found: Vec<_> = found.filter_map(|place| place.line).collect();
    assert!(found.iter().any(|line| line.ends_with("a.c:1")), "{found:?}");

    let begin = own_time();
    for (start, len) in ranges {
        for step in 0..40 {
            let at = usize::try_from(start + len * step / 40).expect("small");
            for value in [0_u8, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                std::fs::write(&program, &bytes).expect("the program");
                let mut lines = SourceLines::new(&snapshot, Vec::new());
                for n in (0..0x400).step_by(64) {
                    let _ = lines.find(ModuleIdx(0), ImageAddr((main & !0xfff) + n));
                }
            }
        }
    }
    assert!(own_time() - begin < LONGEST, "{:?}", own_time() - begin);
}
