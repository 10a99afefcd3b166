//! The two commands of bpf(2) that aya does not offer: batches of a hash map, and running a program by its descriptor.
//!
//! Layouts: `union bpf_attr` in `include/uapi/linux/bpf.h`.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya::Pod;

const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_MAP_LOOKUP_AND_DELETE_BATCH: libc::c_long = 25;

#[repr(C)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

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

/// Takes all entries out of a hash map that nobody writes to, `batch` at a time.
/// A batch must hold the fullest bucket of the map, or the kernel answers ENOSPC; then it is doubled.
pub fn take_entries<K: Pod + Default, V: Pod + Default>(
    map: BorrowedFd<'_>,
    batch: usize,
    mut entry: impl FnMut(K, V),
) -> io::Result<()> {
    let mut keys = vec![K::default(); batch];
    let mut values = vec![V::default(); batch];
    // For a hash map the position is the number of a bucket.
    let mut position = 0u32;
    let mut started = false;
    loop {
        let mut attr = BatchAttr {
            in_batch: if started {
                (&raw const position).addr() as u64
            } else {
                0
            },
            out_batch: (&raw mut position).addr() as u64,
            keys: keys.as_mut_ptr().addr() as u64,
            values: values.as_mut_ptr().addr() as u64,
            count: keys.len() as u32,
            map_fd: map.as_raw_fd().cast_unsigned(),
            elem_flags: 0,
            flags: 0,
        };
        keys.as_mut_ptr().expose_provenance();
        values.as_mut_ptr().expose_provenance();
        (&raw mut position).expose_provenance();
        // SAFETY: the attribute points to buffers of `count` keys and values and to a position, all of which outlive
        // the call.
        let result = unsafe { bpf(BPF_MAP_LOOKUP_AND_DELETE_BATCH, &mut attr) };
        let ended = match result {
            Ok(_) => false,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                let doubled = keys.len() * 2;
                keys.resize(doubled, K::default());
                values.resize(doubled, V::default());
                continue;
            }
            Err(error) => return Err(error),
        };
        let count = attr.count as usize;
        for (key, value) in keys.iter().zip(&values).take(count) {
            entry(*key, *value);
        }
        if ended {
            return Ok(());
        }
        started = true;
    }
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
