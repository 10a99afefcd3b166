//! System calls that the daemon may not make, whoever controls it: filters of seccomp(2), by the crate of Firecracker.
//!
//! Each filter holds for all threads, and for those that they start. What is forbidden fails with EPERM, so that a call
//! that a library tries does no harm.

use std::collections::BTreeMap;

use anyhow::Context as _;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter, apply_filter_all_threads,
};

/// Marks a call of the x32 ABI, which has the same numbers otherwise (arch/x86/include/uapi/asm/unistd.h).
const X32: i64 = 0x4000_0000;
/// Calls of that ABI with numbers of their own (arch/x86/entry/syscalls/syscall_64.tbl).
const X32_ONLY: std::ops::RangeInclusive<i64> = 512..=547;

/// Calls by which a process gets hold of other processes, of the kernel or of the machine, or becomes another one. None of
/// them is needed.
const DANGEROUS: &[i64] = &[
    // Other programs, and other processes: their memory is read through /proc.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Code for the kernel, other than by bpf(2).
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    // Mounts and roots; files by handles, which CAP_DAC_READ_SEARCH would open anywhere.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_setns,
    libc::SYS_unshare,
    // Other identities.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_modify_ldt,
    // Large parts of the kernel that are of no use here.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// Calls that an allocator, a runtime and the end of a thread need.
const COMMON: &[i64] = &[
    // Memory, locks, time.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    // Signals, and the end of the thread.
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Calls on files that are open, and on the socket of a worker.
const PARSING: &[i64] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_recvmsg,
    libc::SYS_write,
    libc::SYS_sendto,
    libc::SYS_close,
    // The time of a file.
    libc::SYS_setitimer,
];

/// Calls on a listening socket and its connections.
const SERVING: &[i64] = &[
    // Connections, and waiting for them.
    libc::SYS_accept4,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    // The Unix socket is removed at the end.
    libc::SYS_unlink,
    libc::SYS_unlinkat,
];

/// Calls on connections to a collector, and those by which its name is looked up: the C library reads its configuration, and
/// asks name servers.
const SENDING: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_openat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_getdents64,
    libc::SYS_uname,
];

/// Forbids what is dangerous to all threads of this process.
pub(super) fn forbid_dangerous() -> anyhow::Result<()> {
    apply_filter_all_threads(&without_dangerous()?).context("failed to forbid system calls")
}

/// Allows the calling thread what a server of metrics needs, and nothing else.
pub(super) fn allow_serving() -> anyhow::Result<()> {
    allow(SERVING)
}

/// Allows the calling thread what a client of a collector needs, and nothing else.
pub(super) fn allow_sending() -> anyhow::Result<()> {
    allow(&[SERVING, SENDING].concat())
}

/// Allows the calling thread to read and parse open files, and nothing else.
pub(super) fn allow_parsing() -> anyhow::Result<()> {
    allow(PARSING)
}

fn allow(calls: &[i64]) -> anyhow::Result<()> {
    let calls = calls.iter().chain(COMMON).copied();
    let filter = compile(calls, forbidden(), SeccompAction::Allow)?;
    apply_filter(&filter).context("failed to forbid system calls")
}

fn without_dangerous() -> anyhow::Result<BpfProgram> {
    let x32 = DANGEROUS.iter().copied().chain(X32_ONLY).map(|call| call | X32);
    let calls = DANGEROUS.iter().copied().chain(x32);
    compile(calls, SeccompAction::Allow, forbidden())
}

fn forbidden() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM.cast_unsigned())
}

/// A filter that does the one for `calls`, and the other for all other calls.
fn compile(
    calls: impl Iterator<Item = i64>,
    others: SeccompAction,
    these: SeccompAction,
) -> anyhow::Result<BpfProgram> {
    // Without conditions on its arguments a call matches always.
    let rules: BTreeMap<i64, Vec<_>> = calls.map(|call| (call, Vec::new())).collect();
    let filter = SeccompFilter::new(rules, others, these, TargetArch::x86_64)
        .and_then(BpfProgram::try_from)
        .context("failed to compile the filter of system calls")?;
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::process::Command;
    use std::thread;

    use super::*;

    fn refusal(call: i64) -> Option<i32> {
        // SAFETY: without arguments none of the calls that are tried has an effect.
        let done = unsafe { libc::syscall(call, 0, 0, 0) };
        (done < 0)
            .then(|| io::Error::last_os_error().raw_os_error())
            .flatten()
    }

    #[test]
    fn dangerous_calls_fail_also_by_the_numbers_of_another_abi() {
        let limited = || {
            rustix::thread::set_no_new_privs(true).unwrap();
            apply_filter(&without_dangerous().unwrap()).unwrap();
            let spawned = Command::new("/bin/true").status().map_err(|error| error.kind());
            assert_eq!(spawned.err(), Some(io::ErrorKind::PermissionDenied));
            for call in [libc::SYS_ptrace, libc::SYS_ptrace | X32, 520 | X32] {
                assert_eq!(refusal(call), Some(libc::EPERM), "{call:#x}");
            }
            assert_eq!(refusal(libc::SYS_getppid), None);
        };
        thread::spawn(limited).join().unwrap();
    }

    #[test]
    fn server_opens_no_files() {
        let limited = || {
            rustix::thread::set_no_new_privs(true).unwrap();
            allow_serving().unwrap();
            std::fs::File::open("/proc/self/status").map_err(|error| error.kind())
        };
        let opened = thread::spawn(limited).join().unwrap();
        assert_eq!(opened.err(), Some(io::ErrorKind::PermissionDenied));
    }
}
