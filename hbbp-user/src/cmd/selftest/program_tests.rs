//! The stated executions against the processor: each load runs under single steps of ptrace(2).

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::ptr::null_mut;

use super::image::{ADDRESS, Mapped, elf};
use super::loads::{MEMORY, program};
use super::program::Load;

/// Executions of each instruction of the text by address, in one call of a load.
fn stepped(mapped: &Mapped, name: &str) -> BTreeMap<u64, u64> {
    let (_, entry) = mapped.loads().find(|(load, _)| load.name == name).unwrap();
    let mut memory = vec![0u8; MEMORY as usize];
    let zero = File::open("/dev/zero").unwrap();
    let (memory, zero) = (memory.as_mut_ptr(), zero.as_raw_fd());
    // SAFETY: the child calls functions that are safe after a fork, and ends without running anything else.
    let child = unsafe { libc::fork() };
    assert_ne!(child, -1);
    if child == 0 {
        // SAFETY: asks the parent to trace this process.
        unsafe {
            libc::ptrace(
                libc::PTRACE_TRACEME,
                0,
                null_mut::<c_void>(),
                null_mut::<c_void>(),
            )
        };
        // SAFETY: stops this process.
        unsafe { libc::raise(libc::SIGSTOP) };
        entry(memory, zero);
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    let mut executions = BTreeMap::new();
    let (mut last, mut begun) = (0, false);
    loop {
        let mut status = 0;
        // SAFETY: waits for the child, and writes to the status alone.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        if libc::WIFEXITED(status) {
            return executions;
        }
        // SAFETY: registers are plain data, which the call below sets.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the child is stopped, and the registers live until the call returns.
        unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGS,
                child,
                null_mut::<c_void>(),
                &raw mut registers,
            )
        };
        let is_inside = (ADDRESS..ADDRESS + 0x10_0000).contains(&registers.rip);
        // An instruction with a REP prefix traps at each iteration.
        if is_inside && registers.rip != last {
            *executions.entry(registers.rip).or_default() += 1;
        }
        begun |= is_inside;
        last = registers.rip;
        let left = begun && !is_inside;
        let go = if left {
            libc::PTRACE_CONT
        } else {
            libc::PTRACE_SINGLESTEP
        };
        // SAFETY: the child is stopped.
        unsafe { libc::ptrace(go, child, null_mut::<c_void>(), null_mut::<c_void>()) };
    }
}

fn stated(load: &Load) -> BTreeMap<u64, u64> {
    let instructions = load.instructions.iter();
    instructions
        .map(|it| (ADDRESS + it.bytes.start as u64, it.executions))
        .collect()
}

#[test]
fn stated_executions_are_those_of_single_steps() {
    let mapped = Mapped::new(program(ADDRESS, 3).unwrap()).unwrap();
    let loads: Vec<&Load> = mapped.loads().map(|(load, _)| load).collect();
    assert!(10 < loads.len());
    for load in loads {
        assert_eq!(stepped(&mapped, load.name), stated(load), "{}", load.name);
        let bytes: usize = load.instructions.iter().map(|it| it.bytes.len()).sum();
        let first = load.instructions[0].bytes.start;
        let end = load.instructions.last().unwrap().bytes.end;
        assert_eq!(first + bytes, end, "{}: no gaps", load.name);
    }
}

#[test]
fn file_of_the_loads_has_their_symbols() {
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

    let program = program(ADDRESS, 2).unwrap();
    let bytes = elf(&program);
    let file = object::File::parse(&*bytes).unwrap();
    let names: Vec<&str> = file.symbols().map(|symbol| symbol.name().unwrap()).collect();
    let loads: Vec<&str> = program.loads.iter().map(|load| load.name).collect();
    assert_eq!(names, loads);
    let text = file.section_by_name(".text").unwrap();
    assert_eq!(text.data().unwrap(), program.text);
    let sizes: u64 = file.symbols().map(|symbol| symbol.size()).sum();
    assert_eq!(sizes, program.text.len() as u64);
    let first = file.symbols().next().unwrap();
    assert_eq!((first.address(), first.is_definition()), (text.address(), true));
}
