//! The shared memory means the same to the driver (C) and to the emulated PMU (Rust).

use std::fs;
use std::mem::offset_of;
use std::process::Command;

use kernel_tests::classes::Class;
use kernel_tests::layout::{self, Counter, CpuArea, Doorbell, Header, Record};
use kernel_tests::{artifacts, host};

/// Prints the numbers of the C header that the Rust side states as constants, one a line.
const PRINT: &str = r#"
#include <stdio.h>
#include <stddef.h>
#include "layout.h"
#define SHOW(number) printf("%llu\n", (unsigned long long)(number))
int main(void)
{
    SHOW(EMU_MAGIC); SHOW(EMU_ADDRESS); SHOW(EMU_BYTES); SHOW(EMU_MAX_CPUS); SHOW(EMU_MAX_DEPTH);
    SHOW(EMU_COUNTERS); SHOW(EMU_IDT); SHOW(EMU_CPU_AREA); SHOW(EMU_CPU_AREA_BYTES);
    SHOW(EMU_RINGS); SHOW(EMU_RING_BYTES); SHOW(EMU_RING_SLOTS);
    SHOW(EMU_EVENT_INSTRUCTIONS); SHOW(EMU_EVENT_TAKEN);
    SHOW(EMU_EVENT_CYCLES); SHOW(EMU_EVENT_BRANCHES); SHOW(EMU_EVENT_TIMER);
    SHOW(EMU_EVENT_CLASSES); SHOW(EMU_EVENT_NOPS); SHOW(EMU_FLAG_EXACT);
    SHOW(sizeof(struct emu_header)); SHOW(offsetof(struct emu_header, anomalies));
    SHOW(sizeof(struct emu_counter)); SHOW(offsetof(struct emu_counter, generation));
    SHOW(sizeof(struct emu_cpu_area)); SHOW(offsetof(struct emu_cpu_area, overflows));
    SHOW(sizeof(struct emu_record)); SHOW(offsetof(struct emu_record, wrong_path));
    SHOW(offsetof(struct emu_record, cycles));
    return 0;
}
"#;

fn expected() -> Vec<u64> {
    let offsets = [
        layout::BYTES,
        layout::MAX_CPUS,
        layout::MAX_DEPTH,
        layout::COUNTERS,
        layout::IDT,
        layout::CPU_AREA,
        layout::CPU_AREA_BYTES,
        layout::RINGS,
        layout::RING_BYTES,
        layout::RING_SLOTS,
    ];
    let events = [
        layout::EVENT_INSTRUCTIONS,
        layout::EVENT_TAKEN,
        layout::EVENT_CYCLES,
        layout::EVENT_BRANCHES,
        layout::EVENT_TIMER,
        layout::EVENT_CLASSES,
        layout::EVENT_CLASSES + Class::Nops as u32,
        layout::FLAG_EXACT,
    ];
    let structs = [
        size_of::<Header>(),
        offset_of!(Header, anomalies),
        size_of::<Counter>(),
        offset_of!(Counter, generation),
        size_of::<CpuArea>(),
        offset_of!(CpuArea, overflows),
        size_of::<Record>(),
        offset_of!(Record, wrong_path),
        offset_of!(Record, cycles),
    ];
    let numbers = offsets.iter().map(|n| *n as u64);
    let events = events.iter().map(|n| u64::from(*n));
    let structs = structs.iter().map(|n| *n as u64);
    [layout::MAGIC, layout::ADDRESS]
        .into_iter()
        .chain(numbers)
        .chain(events)
        .chain(structs)
        .collect()
}

#[test]
fn layouts_of_c_and_rust_agree() {
    let directory = host::work_directory().unwrap().join("contract");
    fs::create_dir_all(directory.join("linux")).unwrap();
    let types = "#include <stdint.h>\ntypedef uint8_t u8;\ntypedef uint16_t u16;\ntypedef uint32_t u32;\ntypedef uint64_t u64;\n";
    fs::write(directory.join("linux/types.h"), types).unwrap();
    fs::write(directory.join("print.c"), PRINT).unwrap();
    let program = directory.join("print");
    let mut gcc = Command::new("gcc");
    gcc.arg("-I")
        .arg(&directory)
        .arg("-I")
        .arg(artifacts::package().join("driver"));
    host::run(gcc.arg("-o").arg(&program).arg(directory.join("print.c"))).unwrap();
    let printed = host::output(&mut Command::new(program)).unwrap();
    let printed: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(printed, expected());
}

#[test]
fn doorbells_are_decoded_from_their_bytes() {
    let bytes = |number: u8| [0x0f, 0x1f, 0x84, 0x00, number, 0x00, 0x42, 0x48];
    assert_eq!(Doorbell::of(&bytes(1)), Some(Doorbell::Attach));
    assert_eq!(Doorbell::of(&bytes(11)), Some(Doorbell::Unfreeze));
    assert_eq!(Doorbell::of(&bytes(12)), None);
    assert_eq!(Doorbell::of(&[0x90]), None);
    // The longest no-op of compilers has the same form and no number.
    assert_eq!(Doorbell::of(&[0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0]), None);
}
