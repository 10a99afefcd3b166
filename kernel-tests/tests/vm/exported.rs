//! The export of a kernel module that two boots loaded at different addresses, against exact counts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::accuracy::{Measured, Setup, measure_command};
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Machine;
use kernel_tests::reference::{KERNEL, per_address};
use kernel_tests::{artifacts, host};

use crate::support;

/// Loads the module, says where, and has it search for primes, 3 million instructions each time.
const SCRIPT: &str = "busybox insmod /opt/hello.ko && busybox cat /sys/module/hello/sections/.text > /out/load && \
                      hello_u 20000 40 kernel";

/// Instructions between two samples, and taken branches between two stacks.
const PERIODS: (u64, u64) = (10_007, 1_009);

/// The section `.text` of a module.
struct Text {
    /// Offset in the file.
    offset: u64,
    bytes: Vec<u8>,
}

impl Text {
    fn of(module: &Path) -> Self {
        let said = host::output(Command::new("objdump").args(["-h", "-w"]).arg(module)).unwrap();
        let line = said.lines().find(|line| line.contains(" .text "));
        let fields: Vec<&str> = line.unwrap().split_whitespace().collect();
        let number = |n: usize| u64::from_str_radix(fields[n], 16).unwrap();
        let (len, offset) = (number(2), number(5));
        let file = fs::read(module).unwrap();
        let place = usize::try_from(offset).unwrap()..usize::try_from(offset + len).unwrap();
        Self {
            offset,
            bytes: file[place].to_vec(),
        }
    }

    /// Executions of the instructions of the ranges in an export, by offset in the file.
    fn executions(&self, export: &str) -> BTreeMap<u64, u64> {
        let mut executions = BTreeMap::new();
        let n: usize = export.lines().next().unwrap().parse().unwrap();
        for line in export.lines().skip(1).take(n) {
            let (ends, count) = line.split_once(':').unwrap();
            let (first, last) = ends.split_once('-').unwrap();
            let [first, last] = [first, last].map(|at| u64::from_str_radix(at, 16).unwrap());
            let Some(from) = first.checked_sub(self.offset) else {
                continue;
            };
            let bytes = self.bytes.get(usize::try_from(from).unwrap()..).unwrap_or(&[]);
            for instruction in Decoder::with_ip(64, bytes, first, DecoderOptions::NONE) {
                if instruction.ip() <= last {
                    *executions.entry(instruction.ip()).or_default() += count.parse::<u64>().unwrap();
                }
            }
        }
        executions
    }
}

/// Runs the script; returns what was measured and where the module was loaded.
fn boot(machine: Machine, module: &Path) -> (Measured, u64) {
    let mut setup = Setup::new(support::hardware_profile("ideal"));
    (setup.period, setup.branch_period) = PERIODS;
    let mut machine = setup.prepare(machine);
    support::add_workload(&mut machine, "hello_u.c");
    machine.files().copy("opt/hello.ko", module).unwrap();
    let measured = measure_command(machine, &["/bin/busybox", "sh", "-c", SCRIPT], &setup).unwrap();
    let load = measured.outcome.text("load").unwrap();
    let load = load.trim().trim_start_matches("0x");
    let load = u64::from_str_radix(load, 16).unwrap();
    (measured, load)
}

/// Exact executions of the section, by offset in the file.
fn exact(measured: &Measured, load: u64, text: &Text) -> BTreeMap<u64, u64> {
    let reference = measured.outcome.reference().unwrap();
    let inside = load..load + text.bytes.len() as u64;
    let blocks = reference.blocks.iter();
    let blocks = blocks.filter(|block| block.owner == KERNEL && inside.contains(&block.start));
    let counts = per_address(blocks).into_iter();
    counts
        .map(|(at, count)| (at - load + text.offset, count))
        .collect()
}

/// The sum of two boots, in the addresses of the module's file.
fn merged_export(boots: &[Measured], module: &Path, folder: &Path) -> String {
    let program = artifacts::hbbp_sys().unwrap();
    let at = |name: &str| -> PathBuf { folder.join(name) };
    let mut merge = Command::new(&program);
    merge.arg("merge").arg("-o").arg(at("merged"));
    host::run(merge.args(boots.iter().map(Measured::profile))).unwrap();
    let mut export = Command::new(&program);
    export
        .arg("export")
        .arg(at("merged"))
        .args(["--format", "ranges", "-o"]);
    host::run(export.arg(at("ranges")).arg("--image").arg(module)).unwrap();
    fs::read_to_string(at("ranges")).unwrap()
}

#[test]
fn module_of_two_boots_has_the_addresses_of_its_file() {
    for series in support::SERIES {
        let (Some(first), Some(second)) = (support::machine(series), support::machine(series)) else {
            continue;
        };
        let kernel = Kernel::get(series).unwrap();
        let module = artifacts::module("workloads/hello", "hello", &kernel).unwrap();
        let text = Text::of(&module);
        let (boots, loads): (Vec<_>, Vec<_>) = [first, second.randomized()]
            .map(|machine| boot(machine, &module))
            .into_iter()
            .unzip();
        assert_ne!(loads[0], loads[1], "the module was loaded to one address twice");
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        for (measured, load) in boots.iter().zip(&loads) {
            for (at, count) in exact(measured, *load, &text) {
                *expected.entry(at).or_default() += count;
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let found = text.executions(&merged_export(&boots, &module, folder.path()));
        for at in found.keys() {
            assert!(expected.contains_key(at), "{series}: {at:x} did not run");
        }
        let sum = |counts: &BTreeMap<u64, u64>| counts.values().sum::<u64>();
        let count = |at: &u64| found.get(at).copied().unwrap_or(0);
        let apart: u64 = expected.iter().map(|(at, n)| n.abs_diff(count(at))).sum();
        let error = apart as f64 / sum(&expected) as f64;
        println!(
            "{series}: {} instructions of the module at {:x?}, {} by the export; error {error:.4}",
            sum(&expected),
            loads,
            sum(&found)
        );
        assert!(error < 0.03, "{series}: {error}");
    }
}
