//! The functions of the kernel by its own tables in its memory, against what it prints in /proc/kallsyms.

use std::path::{Path, PathBuf};
use std::process::Command;

use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;

use crate::support;

/// A recording runs, so that there are BPF programs. The last time symbols are hidden, from root as well.
const SCRIPT: &str = "set -e
hbbp-sys record --all --duration 1h -o /tmp/profile &
until busybox grep -q 'bpf.$' /proc/kallsyms; do busybox sleep 1; done
busybox sleep 5
kernel-functions printed > /out/printed
kernel-functions tables > /out/tables
kill $!
wait || true
echo 2 > /proc/sys/kernel/kptr_restrict
hbbp-sys check > /out/check || true
kernel-functions tables > /out/hidden";

/// A module of the kernel's own package, unpacked. It exports symbols, which the kernel prints with capital types.
fn exporting_module(kernel: &Kernel, folder: &Path) -> PathBuf {
    if let Ok(module) = kernel.module("mbcache.ko") {
        return module;
    }
    let packed = kernel.module("mbcache.ko.xz").unwrap();
    let unpacked = Command::new("xz").arg("-dc").arg(packed).output().unwrap();
    assert!(unpacked.status.success());
    let module = folder.join("mbcache.ko");
    std::fs::write(&module, unpacked.stdout).unwrap();
    module
}

/// What was printed, except pages of ftrace and kprobes, which are in no table.
struct Functions<'a> {
    /// The lines of the image and of modules.
    of_kernel: Vec<&'a str>,
    /// Start and name of what was compiled of BPF programs: the printed text does not have their lengths.
    of_programs: Vec<(&'a str, &'a str)>,
}

impl<'a> Functions<'a> {
    fn of(text: &'a str) -> Self {
        let lines = text.lines().filter(|line| !line.contains(" __builtin__"));
        let (of_programs, of_kernel): (Vec<&str>, _) = lines.partition(|line| line.ends_with(" bpf"));
        let program = |line: &&'a str| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0], words[2])
        };
        Self {
            of_kernel,
            of_programs: of_programs.iter().map(program).collect(),
        }
    }
}

fn the_same_functions(series: &str) {
    let Some(machine) = support::machine(series) else {
        return;
    };
    let kernel = Kernel::get(series).unwrap();
    let mut machine = machine.randomized().without_driver();
    let folder = tempfile::tempdir().unwrap();
    machine.module(&exporting_module(&kernel, folder.path())).unwrap();
    let hello = artifacts::module("workloads/hello", "hello", &kernel).unwrap();
    machine.module(&hello).unwrap();
    machine.files().hbbp_sys().unwrap();
    let program = artifacts::kernel_functions().unwrap();
    machine.files().copy("bin/kernel-functions", &program).unwrap();
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", SCRIPT]).unwrap();
    outcome.stdout().unwrap();
    let [printed, tables, hidden] = ["printed", "tables", "hidden"].map(|name| outcome.text(name).unwrap());
    let [printed, tables] = [&printed, &tables].map(|text| Functions::of(text));
    println!(
        "{series}: {} functions and {} of BPF programs",
        tables.of_kernel.len() - 1,
        tables.of_programs.len()
    );
    let both = printed.of_kernel.iter().zip(&tables.of_kernel);
    assert_eq!(both.into_iter().find(|(printed, found)| printed != found), None);
    assert_eq!(printed.of_kernel.len(), tables.of_kernel.len());
    assert!(30_000 < tables.of_kernel.len());
    assert_eq!(printed.of_programs, tables.of_programs);
    assert!(!tables.of_programs.is_empty());
    for module in [" hello", " mbcache"] {
        let mut lines = tables.of_kernel.iter();
        assert!(lines.any(|line| line.ends_with(module)), "{module}");
    }
    // Memory that may be read is not hidden.
    assert_eq!(Functions::of(&hidden).of_kernel, tables.of_kernel);
    let check = outcome.text("check").unwrap();
    assert!(check.contains("the kernel's own tables are read"), "{check}");
}

#[test]
#[ignore = "runs in --all"]
fn tables_and_printed_text_have_the_same_functions_on_6_1() {
    the_same_functions("6.1");
}

#[test]
#[ignore = "runs in --all"]
fn tables_and_printed_text_have_the_same_functions_on_6_12() {
    the_same_functions("6.12");
}
