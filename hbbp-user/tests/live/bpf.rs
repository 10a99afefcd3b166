//! A tracing program on a hot path: its code has a name and mnemonics, and its bytes are those that the kernel compiled.

use std::path::Path;
use std::process::Command;

use hbbp_collect::bpf::code_of_programs;
use hbbp_collect::object::{Constants, MapSizes, Object};
use hbbp_collect::text::TextWindow;
use hbbp_model::addr::Va;
use hbbp_model::profile;
use hbbp_model::snapshot::{ModuleKind, Snapshot};

use super::{kernel, number, run};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernel-tests/workloads/bpf_hot.c");

#[test]
fn hot_bpf_program_has_mnemonics_and_the_bytes_of_its_jit_dump() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (workload, dump, profile) = (path("bpf_hot"), path("dump"), path("profile"));
    let built = Command::new("cc")
        .args(["-O2", "-o", &workload, SOURCE])
        .status()
        .unwrap();
    assert!(built.success());
    let recorded = run(&[
        "record", "-o", &profile, "--period", "200003", "--", &workload, "2", &dump,
    ]);
    assert!(recorded.status.success(), "{recorded:?}");

    let dump = std::fs::read(&dump).unwrap();
    let snapshot = profile::read(Path::new(&profile)).unwrap();
    let n_same = bytes_of_the_dump(&snapshot, &dump);
    println!(
        "{n_same} of {} bytes of the compiled program are in the snapshot, all equal",
        dump.len()
    );
    assert_eq!(n_same, dump.len(), "the program is kept as a whole");

    let by = [
        "report",
        &profile,
        "--by",
        "function,mnemonic",
        "--format",
        "json",
        "--top",
        "all",
    ];
    let report: serde_json::Value = serde_json::from_slice(&run(&by).stdout).unwrap();
    let rows = report["mix"]["rows"].as_array().unwrap();
    let amount = |mnemonic: &str| {
        let is_it = |row: &&serde_json::Value| {
            let key = |at: usize| row["key"][at].as_str().unwrap();
            key(0).starts_with("bpf_prog_") && key(0).ends_with("_hbbp_hot") && key(1) == mnemonic
        };
        rows.iter()
            .find(is_it)
            .map_or(0, |row| number(&row["kernel"]["amount"]))
    };
    let (imul, xor, add) = (amount("IMUL"), amount("XOR"), amount("ADD"));
    let kernel = number(&report["accounting"]["in_mix"]["kernel"]);
    println!("IMUL {imul}, XOR {xor}, ADD {add} of {kernel} kernel samples");
    // This process executes little else. A multiplication takes several cycles, and each instruction waits for the one before it.
    assert!(kernel < 3 * (imul + xor + add), "{report:#}");
    assert!(0 < add && xor.max(add) < imul, "{imul} {xor} {add}");
}

/// Code of programs has the kernels starts and ends before the next.
#[test]
fn bpf_code_starts_as_in_the_kernel_and_does_not_overlap() {
    let Some(_kernel) = kernel() else { return };
    let mut object = Object::load(Constants::default(), MapSizes::default()).unwrap();
    let _window = TextWindow::open(&mut object).unwrap();
    let code = code_of_programs();
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let line = symbols.lines().find(|line| line.ends_with("_read_text\t[bpf]"));
    let start = u64::from_str_radix(line.unwrap().split(' ').next().unwrap(), 16).unwrap();
    let found = code.iter().find(|(at, _)| *at == Va(start));
    println!("{} functions of programs; read_text: {found:?}", code.len());
    let (_, len) = *found.unwrap();
    let next = code.iter().map(|(at, _)| at.0).filter(|at| start < *at).min();
    assert!(0 < len && next.is_none_or(|next| start + len <= next), "{code:?}");
}

/// How many bytes of the compiled program the snapshot holds; none differs.
fn bytes_of_the_dump(snapshot: &Snapshot, dump: &[u8]) -> usize {
    let mut same = vec![false; dump.len()];
    for text in &snapshot.text {
        let module = &snapshot.modules[text.module.0 as usize];
        let is_ours = module.kind == ModuleKind::Bpf && module.name.ends_with("_hbbp_hot");
        let program = module.symbols.first().filter(|_| is_ours);
        let Some(from) = program.and_then(|program| text.start.since(program.start)) else {
            continue;
        };
        for (at, byte) in (from as usize..).zip(&text.bytes) {
            // The kernel fills the remainder of its last page with breakpoints; the dump ends with the program.
            if let Some(compiled) = dump.get(at) {
                assert_eq!(byte, compiled, "byte {at} of {}", module.name);
                same[at] = true;
            }
        }
    }
    same.iter().filter(|same| **same).count()
}
