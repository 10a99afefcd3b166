//! What the tests on the emulated machine share: machines to boot, and the reason when there are none.

use std::process::Command;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use kernel_tests::accuracy::Measured;
use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Machine;
use serde_json::Value;

use crate::missing::missing;
use crate::skip::skip;

/// The kernels every test of the machine runs on.
pub(crate) const SERIES: [&str; 2] = ["6.1", "6.12"];

/// Names the only kernel to boot: `cargo xtask test --kernel` sets it.
const ONLY_KERNEL: &str = "HBBP_TEST_KERNEL";

/// A machine with this kernel and busybox; `None`, with the reason printed, where there cannot be one.
/// In continuous integration that is a failure.
pub(crate) fn machine(series: &str) -> Option<Machine> {
    if let Ok(only) = std::env::var(ONLY_KERNEL)
        && only != series
    {
        skip(&format!("only Linux {only} was asked for, not {series}"));
        return None;
    }
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    let reason = match (qemu, Kernel::get(series)) {
        (Err(error), _) => {
            format!("qemu-system-x86_64 cannot be run ({error}); 'cargo xtask setup' installs it")
        }
        (_, Err(error)) => format!("{error:#}"),
        (Ok(_), Ok(kernel)) => {
            let mut machine = Machine::new(&kernel);
            machine
                .files()
                .copy("bin/busybox", "/bin/busybox".as_ref())
                .unwrap();
            return Some(machine);
        }
    };
    missing(&reason);
    None
}

/// The text of a hardware profile, by name.
pub(crate) fn hardware_profile(name: &str) -> String {
    let path = artifacts::package().join("hardware-profiles").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Adds a workload as `/bin/NAME`.
pub(crate) fn add_workload(machine: &mut Machine, source: &str) {
    let program = artifacts::workload(source).unwrap();
    let name = program.file_name().unwrap().to_string_lossy().into_owned();
    machine.files().copy(&format!("bin/{name}"), &program).unwrap();
}

/// Adds a program of this package as `/bin/NAME`.
pub(crate) fn add_guest_program(machine: &mut Machine, name: &str) {
    let program = artifacts::guest_program(name).unwrap();
    machine.files().copy(&format!("bin/{name}"), &program).unwrap();
}

/// What a command of the program prints of a profile as JSON.
pub(crate) fn printed(measured: &Measured, command: &str, words: &[&str]) -> Value {
    let mut program = Command::new(artifacts::hbbp_sys().unwrap());
    program.arg(command).arg(measured.profile()).args(words);
    let output = program.args(["--format", "json"]).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The instructions of a function in what `annotate` prints, each with its figures.
pub(crate) fn annotated(measured: &Measured, function: &str) -> Vec<(Instruction, Value)> {
    let annotated = printed(measured, "annotate", &[function]);
    let versions = annotated["functions"][0]["versions"].as_array().unwrap();
    let lines = versions
        .iter()
        .flat_map(|version| version["instructions"].as_array().unwrap());
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let decoded = lines.map(|line| {
        let bytes = line["bytes"].as_str().unwrap().replace(' ', "");
        let bytes: Vec<u8> = (0..bytes.len() / 2)
            .map(|n| hex(&bytes[2 * n..2 * n + 2]) as u8)
            .collect();
        let address = hex(line["address"].as_str().unwrap());
        let instruction = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE).decode();
        (instruction, line.clone())
    });
    decoded.collect()
}
