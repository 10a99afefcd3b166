//! Recordings of real processors: their exports are not empty, and read by the tools that they are for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tool;

/// The recordings are next to the project, not in it; without them a test skips itself.
fn recordings() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings");
    if folder.is_dir() {
        return Some(folder);
    }
    crate::skip::skip(&format!(
        "there are no genuine recordings in {}",
        folder.display()
    ));
    None
}

/// Exports an image of a recording to a file, and returns the text.
fn export(recording: &Path, format: &str, args: &[&str], output: &Path) -> String {
    tool::export(recording, format, output, args);
    std::fs::read_to_string(output).unwrap()
}

fn address(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

#[test]
fn ranges_of_a_westmere_are_the_known_streams() {
    /// The page of the program's executable segment.
    const BASE: u64 = 0x40_0000;

    let Some(folder) = recordings() else { return };
    let temporary = tempfile::tempdir().unwrap();
    let binary = folder.join("test.binary");
    let binary = binary.to_str().unwrap();
    let text = export(
        &folder.join("test.lbr"),
        "profgen",
        &["--binary", binary, "--image", binary],
        &temporary.path().join("profile"),
    );
    let n: usize = text.lines().next().unwrap().parse().unwrap();
    let ends = |line: &str| {
        let (start, last) = line.split_once(':').unwrap().0.split_once('-').unwrap();
        (address(start), address(last))
    };
    let found: BTreeSet<(u64, u64)> = text.lines().skip(1).take(n).map(ends).collect();
    let known = std::fs::read_to_string(folder.join("test.lbr.plain.streams")).unwrap();
    let stream = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let mut offset = || address(fields.next().unwrap()) - BASE;
        (offset(), offset())
    };
    let known: BTreeSet<(u64, u64)> = known
        .lines()
        .filter(|line| line.starts_with("S "))
        .map(stream)
        .collect();
    assert!(found.is_subset(&known), "{:?}", found.difference(&known));
    // Streams that balance to less than a thousandth of an execution are left out.
    assert!(
        known.len() - found.len() <= known.len() / 50,
        "{} of {}",
        found.len(),
        known.len()
    );
}

/// The metrics that BOLT prints of a profile: call graph flow conservation gap and CFG flow conservation gap in per cent.
fn gaps(bolt: &Path, program: &Path, data: &Path, output: &Path, more: &[&str]) -> (f64, f64) {
    let mut optimize = Command::new(bolt);
    optimize.arg(program).args(more).arg(data).arg("-o").arg(output);
    let output = tool::run(&mut optimize);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let metric = |name: &str| {
        let after = said
            .split(name)
            .nth(1)
            .unwrap_or_else(|| panic!("no {name}: {said}"));
        after
            .trim_start()
            .split('%')
            .next()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    (
        metric("call graph flow conservation gap"),
        metric("CFG flow conservation gap"),
    )
}

/// Flow gaps of a skylake are at most half of those of perf2bolt.
#[test]
#[ignore = "needs a program that only --all installs"]
fn skylake_flow_gaps_are_half_of_perf2bolt() {
    let Some(folder) = recordings() else { return };
    let (Some(perf2bolt), Some(bolt)) = (tool::llvm("perf2bolt"), tool::llvm("llvm-bolt")) else {
        return;
    };
    let temporary = tempfile::tempdir().unwrap();
    let file = |name: &str| temporary.path().join(name);
    let recording = folder.join("skylake/propeller_sample_1.perfdata");
    let program = folder.join("skylake/propeller_sample_1.bin");
    let mut aggregate = Command::new(&perf2bolt);
    aggregate.arg("-p").arg(&recording).arg("-o").arg(file("fdata"));
    tool::run(aggregate.arg(&program));
    let theirs = gaps(&bolt, &program, &file("fdata"), &file("bolted"), &["--data"]);
    let binary = program.to_str().unwrap();
    export(
        &recording,
        "bolt",
        &["--binary", binary, "--image", binary],
        &file("profile"),
    );
    let ours = gaps(
        &bolt,
        &program,
        &file("profile"),
        &file("bolted"),
        &["--pa", "-p"],
    );
    println!("call graph and CFG flow gaps in %: ours {ours:?}, of perf2bolt {theirs:?}");
    assert!(
        2.0 * ours.0 <= theirs.0 && 2.0 * ours.1 <= theirs.1,
        "{ours:?} {theirs:?}"
    );
}

/// Where the kernel of the recording was loaded, and where its image is linked here.
const RAN: u64 = 0xffff_ffff_9da0_0000;
const LINKED: u64 = 0xffff_ffff_8100_0000;
/// Length of its text.
const LEN: u64 = 0xe0_14ba;

/// A kernel image with a conditional jump at each of these addresses and NOPs between them, with this build id. The recording
/// comes without its kernel; this one makes every range between its branches a possible one.
fn made_up_kernel(folder: &Path, sources: &BTreeSet<u64>, build_id: &str) -> PathBuf {
    let mut assembly = String::from(".text\n.globl _text\n.type _text, @function\n_text:\n");
    for (source, n) in sources.iter().zip(0..) {
        let at = source - RAN;
        assembly.push_str(&format!(
            ".org {at:#x}, 0x90\n.type jump{n}, @function\njump{n}:\n.byte 0x70, 0\n.size jump{n}, 2\n"
        ));
    }
    assembly.push_str(&format!(".org {LEN:#x}, 0x90\n.size _text, . - _text\n"));
    let source = folder.join("kernel.s");
    std::fs::write(&source, assembly).unwrap();
    let image = folder.join("vmlinux");
    let mut link = Command::new("cc");
    link.args(["-nostdlib", "-static", "-no-pie", "-Wl,-e,_text"]);
    link.arg(format!("-Wl,-Ttext={LINKED:#x}"))
        .arg(format!("-Wl,--build-id=0x{build_id}"));
    tool::run(link.arg("-o").arg(&image).arg(&source));
    image
}

#[test]
fn recording_of_amd_lbrv2_is_not_empty() {
    let Some(folder) = recordings() else { return };
    let folder = folder.join("amd-lbrv2");
    let temporary = tempfile::tempdir().unwrap();
    let dump = std::fs::read_to_string(folder.join("perf.data.branch_stack_spec.pb_text")).unwrap();
    let field = |name: &str| -> BTreeSet<u64> {
        let lines = dump.lines().filter_map(|line| line.trim().strip_prefix(name));
        let addresses = lines.filter_map(|value| value.trim().parse::<u64>().ok());
        addresses.filter(|at| (RAN..RAN + LEN).contains(at)).collect()
    };
    let (sources, targets) = (field("from_ip:"), field("to_ip:"));
    let ids = std::fs::read_to_string(folder.join("perf.data.branch_stack_spec.buildids")).unwrap();
    let id = ids
        .lines()
        .find(|line| line.ends_with("[kernel.kallsyms]"))
        .unwrap();
    let image = made_up_kernel(temporary.path(), &sources, id.split(' ').next().unwrap());
    let image = image.to_str().unwrap();
    let text = export(
        &folder.join("perf.data.branch_stack_spec"),
        "bolt",
        &["--vmlinux", image, "--image", image],
        &temporary.path().join("profile"),
    );
    let (mut n_branches, mut n_ranges) = (0, 0);
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let ran = |text: &str| address(text).wrapping_add(RAN - LINKED);
        if fields[0] == "B" {
            assert!(
                sources.contains(&ran(fields[1])) && targets.contains(&ran(fields[2])),
                "{line}"
            );
            n_branches += 1;
        } else {
            assert!(
                targets.contains(&ran(fields[1])) && sources.contains(&ran(fields[2])),
                "{line}"
            );
            n_ranges += 1;
        }
    }
    assert!(20 < n_branches && 20 < n_ranges, "{text}");
}
