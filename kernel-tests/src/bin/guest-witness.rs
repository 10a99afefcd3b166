//! The witness: an eBPF program on both events of the machine's PMU, while a command runs in the guest.
//!
//! `guest-witness RINGS PRECISE PERIOD_INSTRUCTIONS PERIOD_TAKEN COMMAND...`, where RINGS is `both`, `user` or
//! `kernel`. It replaces the collector, without its code. As RINGS, `returning` is both, and a program that returns at
//! once and keeps nothing.

use std::fs;
use std::os::fd::RawFd;
use std::process::Command;
use std::ptr::null_mut;

use anyhow::{Context, Result, bail};
use kernel_tests::layout::{EVENT_INSTRUCTIONS, EVENT_TAKEN, MAX_DEPTH};
use kernel_tests::witness::Seen;

/// Samples that are kept; more are counted only. By the host's clock, a busy host doubles the interrupts of a guest.
const KEPT: u32 = 120_000;

/// Commands of bpf(2), from linux/bpf.h.
const MAP_CREATE: libc::c_long = 0;
const PROG_LOAD: libc::c_long = 5;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_F_MMAPABLE: u32 = 1 << 10;
const PROG_TYPE_PERF_EVENT: u32 = 7;
/// Helpers of eBPF, from linux/bpf.h.
const MAP_LOOKUP_ELEM: i32 = 1;
const GET_SMP_PROCESSOR_ID: i32 = 8;
const GET_CURRENT_PID_TGID: i32 = 14;
const READ_BRANCH_RECORDS: i32 = 119;
/// Requests of a perf event, from linux/perf_event.h.
const IOC_ENABLE: u64 = 0x2400;
const IOC_DISABLE: u64 = 0x2401;
const IOC_SET_BPF: u64 = 0x4004_2408;

/// The instructions of a program, from its log, its count and its event.
type Program = fn(RawFd, RawFd, u32) -> Vec<u64>;

struct Options {
    exclude: u64,
    program: Program,
    kept: u32,
    precise: u64,
    periods: [(u32, u64, u64); 2],
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rings, precise, instructions, taken, command @ ..] = words.as_slice() else {
        bail!(
            "usage: guest-witness both|user|kernel|returning PRECISE PERIOD_INSTRUCTIONS PERIOD_TAKEN COMMAND..."
        );
    };
    // Bits exclude_user and exclude_kernel of the flags of perf_event_attr.
    let exclude = match rings.as_str() {
        "both" | "returning" => 0,
        "user" => 1 << 5,
        "kernel" => 1 << 4,
        _ => bail!("the rings are both, user, kernel or returning, not '{rings}'"),
    };
    let (program, kept): (Program, u32) = match rings.as_str() {
        "returning" => (returning, 1),
        _ => (keeping, KEPT),
    };
    let periods = [
        (EVENT_INSTRUCTIONS, 0x00c0, instructions.parse()?),
        (EVENT_TAKEN, 0x20c4, taken.parse()?),
    ];
    witness(
        &Options {
            exclude,
            program,
            kept,
            precise: precise.parse()?,
            periods,
        },
        command,
    )
}

fn witness(options: &Options, command: &[String]) -> Result<()> {
    let (log, log_memory) = map(Seen::BYTES as u32, options.kept)?;
    let (count, count_memory) = map(8, 1)?;
    let mut events = Vec::new();
    for cpu in 0..cpus()? {
        for (event, config, period) in options.periods.iter().filter(|(_, _, period)| 0 < *period) {
            let program = load(&(options.program)(log, count, *event))?;
            let fd = open(options, cpu, *event, *config, *period)?;
            ioctl(fd, IOC_SET_BPF, u64::from(program.cast_unsigned()))?;
            events.push(fd);
        }
    }
    for fd in &events {
        ioctl(*fd, IOC_ENABLE, 0)?;
    }
    let (name, arguments) = command.split_first().context("a command to watch is missing")?;
    let status = Command::new(name)
        .args(arguments)
        .status()
        .with_context(|| format!("failed to start {name}"))?;
    for fd in &events {
        ioctl(*fd, IOC_DISABLE, 0)?;
    }
    if !status.success() {
        bail!("{name} ended with {status}");
    }
    // SAFETY: the map's memory is mapped for the life of the process, and no program writes it any more.
    let runs = unsafe { count_memory.cast::<u64>().read_volatile() };
    let kept = runs.min(u64::from(options.kept)) as usize * Seen::BYTES;
    // SAFETY: as above; the map holds KEPT values of that size.
    let samples = unsafe { std::slice::from_raw_parts(log_memory, kept) };
    fs::write("/out/samples", samples)?;
    fs::write("/out/witness", format!("{runs}\n"))?;
    Ok(())
}

fn cpus() -> Result<i32> {
    let online = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let last = online
        .trim()
        .rsplit(['-', ','])
        .next()
        .context("no CPU is online")?;
    Ok(last.parse::<i32>()? + 1)
}

/// One eBPF instruction.
fn op(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    u64::from(code)
        | u64::from(from << 4 | to) << 8
        | u64::from(offset.cast_unsigned()) << 16
        | u64::from(value.cast_unsigned()) << 32
}

/// Keeps one sample: an index in the log by an atomic count, the registers, and the branch stack.
fn keeping(log: RawFd, count: RawFd, event: u32) -> Vec<u64> {
    const LOAD: u8 = 0x79;
    const STORE: u8 = 0x7b;
    const STORE_WORD: u8 = 0x63;
    const MOVE: u8 = 0xbf;
    const SET: u8 = 0xb7;
    const ADD: u8 = 0x07;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const JUMP_IF_NOT: u8 = 0x55;
    let map = |to: u8, fd: RawFd| [op(0x18, to, 1, 0, fd), 0];
    let mut code = vec![op(MOVE, 6, 1, 0, 0), op(0x62, 10, 0, -4, 0)];
    code.extend(map(1, count));
    code.extend([
        op(MOVE, 2, 10, 0, 0),
        op(ADD, 2, 0, 0, -4),
        op(CALL, 0, 0, 0, MAP_LOOKUP_ELEM),
        op(JUMP_IF_NOT, 0, 0, 1, 0),
        op(EXIT, 0, 0, 0, 0),
        op(SET, 7, 0, 0, 1),
        // r7 = fetch_add(r0, r7)
        op(0xdb, 0, 7, 0, 1),
        op(STORE_WORD, 10, 7, -4, 0),
    ]);
    code.extend(map(1, log));
    code.extend([
        op(MOVE, 2, 10, 0, 0),
        op(ADD, 2, 0, 0, -4),
        op(CALL, 0, 0, 0, MAP_LOOKUP_ELEM),
        op(JUMP_IF_NOT, 0, 0, 2, 0),
        op(SET, 0, 0, 0, 0),
        op(EXIT, 0, 0, 0, 0),
        op(MOVE, 8, 0, 0, 0),
        // Offsets in struct bpf_perf_event_data: ip 128, flags 144, sample_period 168.
        op(LOAD, 1, 6, 128, 0),
        op(STORE, 8, 1, 0, 0),
        op(LOAD, 1, 6, 144, 0),
        op(STORE, 8, 1, 8, 0),
        op(LOAD, 1, 6, 168, 0),
        op(STORE, 8, 1, 16, 0),
        op(CALL, 0, 0, 0, GET_CURRENT_PID_TGID),
        op(STORE, 8, 0, 24, 0),
        op(CALL, 0, 0, 0, GET_SMP_PROCESSOR_ID),
        op(STORE_WORD, 8, 0, 32, 0),
        op(0x62, 8, 0, 36, event.cast_signed()),
        op(MOVE, 1, 6, 0, 0),
        op(MOVE, 2, 8, 0, 0),
        op(ADD, 2, 0, 0, Seen::HEADER as i32),
        op(SET, 3, 0, 0, (MAX_DEPTH * Seen::ENTRY) as i32),
        op(SET, 4, 0, 0, 0),
        op(CALL, 0, 0, 0, READ_BRANCH_RECORDS),
        op(STORE, 8, 0, 40, 0),
        op(SET, 0, 0, 0, 0),
        op(EXIT, 0, 0, 0, 0),
    ]);
    code
}

/// Does nothing: what is left is the cost of the machine and of the perf core.
fn returning(_log: RawFd, _count: RawFd, _event: u32) -> Vec<u64> {
    vec![op(0xb7, 0, 0, 0, 0), op(0x95, 0, 0, 0, 0)]
}

fn bpf(command: libc::c_long, attributes: &mut [u64; 16]) -> Result<RawFd> {
    // SAFETY: the attributes live through the call and are larger than the kernel reads of them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of_val(attributes),
        )
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error()).context("bpf(2) failed");
    }
    Ok(fd as RawFd)
}

/// An array map, and its memory.
fn map(value_size: u32, entries: u32) -> Result<(RawFd, *const u8)> {
    let mut attributes = [0; 16];
    attributes[0] = u64::from(MAP_TYPE_ARRAY) | 4 << 32;
    attributes[1] = u64::from(value_size) | u64::from(entries) << 32;
    attributes[2] = u64::from(MAP_F_MMAPABLE);
    let fd = bpf(MAP_CREATE, &mut attributes)?;
    let bytes = (value_size as usize * entries as usize).next_multiple_of(4096);
    // SAFETY: a new shared mapping of the map just made.
    let memory = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    if memory == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error()).context("failed to map an eBPF map");
    }
    Ok((fd, memory.cast_const().cast()))
}

fn load(code: &[u64]) -> Result<RawFd> {
    let mut log = vec![0_u8; 1 << 16];
    let mut attributes = [0; 16];
    attributes[0] = u64::from(PROG_TYPE_PERF_EVENT) | (code.len() as u64) << 32;
    attributes[1] = code.as_ptr() as u64;
    attributes[2] = c"GPL".as_ptr() as u64;
    attributes[3] = 1 | (log.len() as u64) << 32;
    attributes[4] = log.as_mut_ptr() as u64;
    bpf(PROG_LOAD, &mut attributes)
        .with_context(|| String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned())
}

fn open(options: &Options, cpu: i32, event: u32, config: u64, period: u64) -> Result<RawFd> {
    const SAMPLE_BRANCH_STACK: u64 = 1 << 11;
    const BRANCH_USER_KERNEL_ANY: [u64; 3] = [1, 1 << 1, 1 << 3];
    let kind: u64 = fs::read_to_string("/sys/bus/event_source/devices/cpu/type")?
        .trim()
        .parse()?;
    let mut attributes = [0_u64; 16];
    attributes[0] = kind | 128 << 32;
    attributes[1] = config;
    attributes[2] = period;
    // Disabled until the command starts; bits 15 and 16 are precise_ip.
    attributes[5] = 1 | options.exclude | options.precise << 15;
    attributes[6] = 1;
    if event == EVENT_TAKEN {
        attributes[3] = SAMPLE_BRANCH_STACK;
        let [user, kernel, any] = BRANCH_USER_KERNEL_ANY;
        let rings = match options.exclude {
            0 => user | kernel,
            exclude if exclude == 1 << 5 => user,
            _ => kernel,
        };
        attributes[9] = any | rings;
    }
    // SAFETY: the attributes are a perf_event_attr of the size they name; -1: every process of the CPU.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), -1, cpu, -1, 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error())
            .context("perf_event_open(2) failed on the machine's PMU");
    }
    Ok(fd as RawFd)
}

fn ioctl(fd: RawFd, request: u64, argument: u64) -> Result<()> {
    // SAFETY: requests of a perf event that take a number.
    if unsafe { libc::ioctl(fd, request, argument) } != 0 {
        return Err(std::io::Error::last_os_error()).context("a perf event refused a request");
    }
    Ok(())
}
