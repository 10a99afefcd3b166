//! Exact control flow of a small program: it runs under ptrace(2), one instruction at a time.
//!
//! What it executes becomes BOLT's pre-aggregated text, which is imported like a recording without errors.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use object::{Object as _, ObjectSegment as _};

/// What a program executed, in ELF addresses.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// Executions of each instruction, from the first taken branch to the last.
    pub(crate) executions: BTreeMap<u64, u64>,
    /// From, to.
    pub(crate) branches: BTreeMap<(u64, u64), u64>,
    /// First and last instruction.
    pub(crate) ranges: BTreeMap<(u64, u64), u64>,
}

impl Trace {
    /// As pre-aggregated text.
    pub(crate) fn text(&self) -> String {
        let branches = self
            .branches
            .iter()
            .map(|((from, to), n)| format!("B {from:x} {to:x} {n} 0\n"));
        let ranges = self
            .ranges
            .iter()
            .map(|((start, end), n)| format!("F {start:x} {end:x} {n}\n"));
        branches.chain(ranges).collect()
    }

    /// Executions of all ranges.
    pub(crate) fn n_ranges(&self) -> u64 {
        self.ranges.values().sum()
    }
}

/// The code of a program, by ELF address.
struct Code {
    segments: Vec<(u64, Vec<u8>)>,
}

impl Code {
    fn of(program: &Path) -> Self {
        let bytes = std::fs::read(program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let segments = file.segments();
        let segments = segments.map(|segment| (segment.address(), segment.data().unwrap().to_vec()));
        Self {
            segments: segments.collect(),
        }
    }

    /// Length of an instruction, and whether it is taken whenever it runs, be it to the next one.
    fn instruction(&self, at: u64) -> Option<(u64, bool)> {
        let (start, bytes) = self
            .segments
            .iter()
            .find(|(start, bytes)| (*start..*start + bytes.len() as u64).contains(&at))?;
        let code = &bytes[usize::try_from(at - start).unwrap()..];
        let decoded = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        let is_taken = !matches!(
            decoded.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        );
        Some((decoded.len() as u64, is_taken))
    }
}

/// Runs a program to its end.
pub(crate) fn trace(program: &Path) -> Trace {
    let code = Code::of(program);
    let mut command = Command::new(program);
    // SAFETY: asks to be traced by the parent; no memory is passed.
    let ask = || match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: a system call may be made between fork and exec.
    unsafe { command.pre_exec(ask) };
    let mut child = command.spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let mut trace = Trace::default();
    // The last instruction, and where the current range begins: known from the first taken branch on.
    let (mut last, mut start): (Option<u64>, Option<u64>) = (None, None);
    let mut current: BTreeMap<u64, u64> = BTreeMap::new();
    let mut base = None;
    while stopped(pid) {
        let base = *base.get_or_insert_with(|| load_address(pid, program));
        let at = instruction_pointer(pid).wrapping_sub(base);
        if let Some(from) = last
            && let Some((len, is_taken)) = code.instruction(from)
            && (is_taken || from + len != at)
        {
            *trace.branches.entry((from, at)).or_default() += 1;
            if let Some(start) = start {
                *trace.ranges.entry((start, from)).or_default() += 1;
                for (at, n) in std::mem::take(&mut current) {
                    *trace.executions.entry(at).or_default() += n;
                }
            }
            start = Some(at);
        }
        if start.is_some() {
            *current.entry(at).or_default() += 1;
        }
        last = Some(at);
        // SAFETY: a stopped child of ours is resumed for one instruction.
        let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) };
        assert_eq!(stepped, 0);
    }
    // wait(2) was called by hand.
    let _ = child.try_wait();
    trace
}

/// Waits for the child; whether it stopped, and has not ended.
fn stopped(pid: i32) -> bool {
    let mut status = 0;
    // SAFETY: waits for a child that has no other waiter; the status is valid memory.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    libc::WIFSTOPPED(status)
}

fn instruction_pointer(pid: i32) -> u64 {
    // SAFETY: plain numbers, for which zeroes are valid.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: the child is stopped, and the registers are valid memory.
    let read = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers) };
    assert_eq!(read, 0);
    registers.rip
}

/// What is added to ELF addresses: 0 for a program at a fixed address.
fn load_address(pid: i32, program: &Path) -> u64 {
    let mut head = [0; 18];
    std::fs::File::open(program)
        .unwrap()
        .read_exact(&mut head)
        .unwrap();
    if u16::from_le_bytes([head[16], head[17]]) == object::elf::ET_EXEC {
        return 0;
    }
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let name = program.canonicalize().unwrap();
    let first = maps
        .lines()
        .find(|line| line.ends_with(name.to_str().unwrap()))
        .unwrap();
    u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap()
}
