//! The commands of bpf(2) that aya does not offer: running a program by its descriptor, and its run time by the same.
//!
//! Layout: `union bpf_attr` in `include/uapi/linux/bpf.h`.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;

#[repr(C)]
#[derive(Default)]
struct TestRunAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

/// Runs a raw tracepoint program here and now with the given arguments; gives its return value.
pub fn run_raw_tracepoint(program: BorrowedFd<'_>, args: &[u64]) -> io::Result<u32> {
    args.as_ptr().expose_provenance();
    let mut attr = TestRunAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        ctx_size_in: size_of_val(args) as u32,
        ctx_in: args.as_ptr().addr() as u64,
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

/// `struct bpf_prog_info`, of which the last two fields are of interest. Zeros ask for none of its lists.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    before: [u64; 24],
    run_time_ns: u64,
    run_cnt: u64,
}

/// Runs of a program that the kernel measured, and the time that they took; both stand still unless `kernel.bpf_stats_enabled`
/// is set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProgramRuns {
    /// How many were measured.
    pub n: u64,
    /// How long they took together, in ns.
    pub time: u64,
}

/// What the kernel measured of a program.
pub fn program_runs(program: BorrowedFd<'_>) -> io::Result<ProgramRuns> {
    let mut info = ProgramInfo::default();
    let address = (&raw mut info).expose_provenance() as u64;
    let mut attr = InfoAttr {
        fd: program.as_raw_fd().cast_unsigned(),
        len: size_of::<ProgramInfo>() as u32,
        info: address,
    };
    // SAFETY: the attribute points to the struct, which lives through the call, and states its size.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(ProgramRuns {
        n: info.run_cnt,
        time: info.run_time_ns,
    })
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
