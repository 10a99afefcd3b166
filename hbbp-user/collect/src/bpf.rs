//! The commands of bpf(2) that aya does not offer: running a program by its descriptor, and by the same its run time and where
//! its code lies.
//!
//! Layout: `union bpf_attr` in `include/uapi/linux/bpf.h`.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use aya::programs::loaded_programs;

use hbbp_model::addr::Va;

const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;

#[repr(C)]
#[derive(Default)]
struct TestRunAttr {
    prog_fd: u32,
    retval: u32,
    data: Buffers,
    repeat: u32,
    duration: u32,
    ctx: Buffers,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

/// What a program is given, and where what it leaves is put.
#[repr(C)]
#[derive(Default)]
struct Buffers {
    size_in: u32,
    size_out: u32,
    at_in: u64,
    at_out: u64,
}

/// Runs a raw tracepoint program here and now with the given arguments; gives its return value.
pub(crate) fn run_raw_tracepoint(program: BorrowedFd<'_>, args: &[u64]) -> io::Result<u32> {
    args.as_ptr().expose_provenance();
    let mut attr = TestRunAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        ctx: Buffers {
            size_in: size_of_val(args) as u32,
            at_in: args.as_ptr().addr() as u64,
            ..Buffers::default()
        },
        ..TestRunAttr::default()
    };
    // SAFETY: the attribute points to the arguments and states their size.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attr) }?;
    Ok(attr.retval)
}

#[repr(C)]
struct InfoAttr {
    fd: u32,
    len: u32,
    info: u64,
}

/// `struct bpf_prog_info` up to its run time. Zeros ask for none of its lists.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    before: [u64; 13],
    nr_jited_ksyms: u32,
    nr_jited_func_lens: u32,
    jited_ksyms: u64,
    jited_func_lens: u64,
    between: [u64; 8],
    run_time_ns: u64,
    run_cnt: u64,
}

/// Runs of a program that the kernel measured, and the time that they took; both stay constant unless
/// `kernel.bpf_stats_enabled` is set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProgramRuns {
    /// How many were measured.
    pub n: u64,
    /// How long they took together, in ns.
    pub time: u64,
}

/// What the kernel measured of a program.
pub(crate) fn program_runs(program: BorrowedFd<'_>) -> io::Result<ProgramRuns> {
    let mut info = ProgramInfo::default();
    // SAFETY: no list is asked for.
    unsafe { read_info(program, &mut info) }?;
    Ok(ProgramRuns {
        n: info.run_cnt,
        time: info.run_time_ns,
    })
}

/// Most functions of a program (`BPF_MAX_SUBPROGS` in include/linux/bpf_verifier.h, and one for the program itself).
const MOST_FUNCTIONS: usize = 257;

/// First byte and length of each function of all BPF programs that are loaded, as far as the kernel reports them, which
/// requires CAP_SYS_ADMIN. /proc/kallsyms has their starts alone.
pub fn code_of_programs() -> Vec<(Va, u64)> {
    let mut all = Vec::new();
    for program in loaded_programs().flatten().filter_map(|info| info.fd().ok()) {
        // A program whose code is not known is one that /proc/kallsyms alone knows.
        let _ = add_code(program.as_fd(), &mut all);
    }
    all
}

fn add_code(program: BorrowedFd<'_>, all: &mut Vec<(Va, u64)>) -> io::Result<()> {
    let (mut starts, mut lengths) = ([0_u64; MOST_FUNCTIONS], [0_u32; MOST_FUNCTIONS]);
    let mut info = ProgramInfo {
        nr_jited_ksyms: MOST_FUNCTIONS as u32,
        nr_jited_func_lens: MOST_FUNCTIONS as u32,
        jited_ksyms: starts.as_mut_ptr().expose_provenance() as u64,
        jited_func_lens: lengths.as_mut_ptr().expose_provenance() as u64,
        ..ProgramInfo::default()
    };
    // SAFETY: both lists live through the call and have the stated number of entries.
    unsafe { read_info(program, &mut info) }?;
    let n = info.nr_jited_ksyms.min(info.nr_jited_func_lens) as usize;
    let told = starts.iter().zip(&lengths).take(n);
    all.extend(
        told.filter(|(start, _)| **start != 0)
            .map(|(start, len)| (Va(*start), u64::from(*len))),
    );
    Ok(())
}

/// # Safety
///
/// The lists that are asked for must live through the call and have the stated number of entries.
unsafe fn read_info(program: BorrowedFd<'_>, info: &mut ProgramInfo) -> io::Result<()> {
    let mut attr = InfoAttr {
        fd: program.as_raw_fd().cast_unsigned(),
        len: size_of::<ProgramInfo>() as u32,
        info: std::ptr::from_mut(info).expose_provenance() as u64,
    };
    // SAFETY: the attribute points to the struct, which lives through the call, and states its size; the caller vouches for the
    // lists.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(())
}

/// # Safety
///
/// All addresses in the attribute must be valid for what the command does with them.
unsafe fn bpf<A>(command: libc::c_long, attr: &mut A) -> io::Result<libc::c_long> {
    // SAFETY: the attribute is a live value of the stated size; the caller vouches for what it points to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<A>()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
