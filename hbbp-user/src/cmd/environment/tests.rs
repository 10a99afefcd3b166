//! `check` on the recorded facts of machines: `tests/golden/environments/NAME` has files as the machine has them, its CPUID
//! as `cpuid -r` prints it, and in `said` what is to be said. SOURCE says where the facts are from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::facts::{Facts, Registers};
use super::*;
use crate::cmd::check::of_recorded;

/// CPUID as `cpuid -r` prints it: `0x40000000 0x00: eax=0x.. ebx=0x.. ecx=0x.. edx=0x..`.
fn read_cpuid(path: &Path) -> BTreeMap<u32, Registers> {
    let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let leaf = |line: &str| {
        let mut words = line.split_whitespace();
        let leaf = number(words.next().unwrap());
        let registers = words.skip(1).map(|word| number(word.split_once('=').unwrap().1));
        (leaf, registers.collect::<Vec<_>>().try_into().unwrap())
    };
    fs::read_to_string(path).unwrap().lines().map(leaf).collect()
}

fn recorded() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/environments");
    let mut machines: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    machines.sort();
    machines
}

fn environment(machine: &Path) -> Environment {
    let cpuid = read_cpuid(&machine.join("cpuid"));
    let leaf = |leaf: u32| cpuid.get(&leaf).copied().unwrap_or_default();
    Environment::of(Facts::read(machine, leaf))
}

#[test]
fn recorded_machines_are_named_with_what_they_have() {
    let machines = recorded();
    assert!(8 <= machines.len(), "{machines:?}");
    for machine in machines {
        let pmus = read_pmus(&machine.join("sys/bus/event_source/devices"));
        let said = of_recorded(&environment(&machine), &pmus);
        let golden = machine.join("said");
        if std::env::var_os("HBBP_UPDATE").is_some() {
            fs::write(&golden, &said).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert!(
            said == expected,
            "{}: HBBP_UPDATE=1 accepts this:\n{said}",
            machine.display()
        );
        assert!(machine.join("SOURCE").exists(), "{}", machine.display());
    }
}

/// Who may not read firmware's tables sees a microVM as any KVM: neither its kind nor advice on it is made up. A folder is there
/// and cannot be read, as the table to a user.
#[test]
fn what_only_root_can_read_is_not_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("sys/firmware/acpi/tables/FACP");
    let recorded = recorded();
    let firecracker = recorded.iter().find(|machine| machine.ends_with("firecracker"));
    let cpuid = read_cpuid(&firecracker.unwrap().join("cpuid"));
    let leaf = |leaf: u32| cpuid.get(&leaf).copied().unwrap_or_default();
    let said = || of_recorded(&Environment::of(Facts::read(folder.path(), leaf)), &[]);
    assert!(said().contains("-cpu host,pmu=on"), "without tables: {}", said());
    fs::create_dir_all(&table).unwrap();
    let hidden = said();
    assert!(hidden.contains("only root can read of which kind"), "{hidden}");
    assert!(hidden.contains("`sudo hbbp-sys check`"), "{hidden}");
    assert!(!hidden.contains("pmu=on"), "{hidden}");
    let dmi = folder.path().join("sys/class/dmi/id");
    fs::create_dir_all(&dmi).unwrap();
    fs::write(dmi.join("sys_vendor"), "QEMU\n").unwrap();
    assert!(said().contains("below KVM (QEMU)"), "SMBIOS names it: {}", said());
}

#[test]
fn facts_of_others_are_short_and_safe_to_print() {
    let folder = tempfile::tempdir().unwrap();
    let dmi = folder.path().join("sys/class/dmi/id");
    fs::create_dir_all(&dmi).unwrap();
    fs::write(
        dmi.join("sys_vendor"),
        format!("\u{1b}[31m\n{}", "x".repeat(1 << 20)),
    )
    .unwrap();
    fs::write(dmi.join("product_name"), [0xff, 0xfe, 0, b'a']).unwrap();
    let forged = |leaf: u32| match leaf {
        1 => [0, 0, 1 << 31, 0],
        _ => [leaf, u32::MAX, 0x1b1b_1b1b, leaf],
    };
    let environment = Environment::of(Facts::read(folder.path(), forged));
    let said = of_recorded(&environment, &[]);
    assert!(said.contains("an unknown hypervisor"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
    assert!(said.len() < 32 << 10, "{}", said.len());
    let nothing = Environment::of(Facts::read(Path::new("/nonexistent"), |_| [0; 4]));
    assert_eq!(nothing.described(), "bare metal");
}
