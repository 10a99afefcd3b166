//! System calls that the daemon may not make, whoever controls it: filters of seccomp(2), by the crate of Firecracker.
//!
//! Each filter holds for all threads, and for those that they start. What is forbidden fails with EPERM, so that a call
//! that a library tries does no harm.

use std::collections::BTreeMap;

use anyhow::Context as _;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, apply_filter_all_threads,
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
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_tkill,
    libc::SYS_fanotify_init,
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
    libc::SYS_name_to_handle_at,
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

/// New namespaces, as flags of clone(2): in a user namespace of its own a thread has all capabilities (include/uapi/linux/sched.h).
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Calls that an allocator, a runtime and the end of a thread need. A thread may signal those of its own process as well.
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

/// Calls by number, each with the conditions on its arguments under which it matches; always where there are none.
type Calls = BTreeMap<i64, Vec<SeccompRule>>;

/// Forbids what is dangerous to all threads of this process.
pub(super) fn forbid_dangerous() -> anyhow::Result<()> {
    for filter in [without_dangerous()?, without_clone3()?] {
        apply_filter_all_threads(&filter).context("failed to forbid system calls")?;
    }
    Ok(())
}

/// Allows the calling thread what a server of metrics needs, and nothing else.
pub(super) fn allow_serving() -> anyhow::Result<()> {
    allow(SERVING)
}

/// Allows the calling thread to read and parse open files, and nothing else.
pub(super) fn allow_parsing() -> anyhow::Result<()> {
    allow(PARSING)
}

fn allow(calls: &[i64]) -> anyhow::Result<()> {
    let mut allowed: Calls = calls
        .iter()
        .chain(COMMON)
        .map(|call| (*call, Vec::new()))
        .collect();
    let own = u64::from(std::process::id());
    allowed.insert(libc::SYS_tgkill, vec![condition(SeccompCmpOp::Eq, own)?]);
    let filter = compile(allowed, forbidden(), SeccompAction::Allow)?;
    apply_filter(&filter).context("failed to forbid system calls")
}

fn without_dangerous() -> anyhow::Result<BpfProgram> {
    let mut calls: Calls = DANGEROUS.iter().map(|call| (*call, Vec::new())).collect();
    let namespaces = NAMESPACES.map(|flag| {
        let flag = u64::from(flag.cast_unsigned());
        condition(SeccompCmpOp::MaskedEq(flag), flag)
    });
    calls.insert(
        libc::SYS_clone,
        namespaces.into_iter().collect::<anyhow::Result<_>>()?,
    );
    let of_x32: Vec<_> = calls
        .iter()
        .map(|(call, rules)| (call | X32, rules.clone()))
        .collect();
    calls.extend(of_x32);
    calls.extend(X32_ONLY.map(|call| (call | X32, Vec::new())));
    compile(calls, SeccompAction::Allow, forbidden())
}

/// clone3(2) takes its flags from memory, which no filter sees. C libraries use clone(2) where there is none.
fn without_clone3() -> anyhow::Result<BpfProgram> {
    let calls = [libc::SYS_clone3, libc::SYS_clone3 | X32].map(|call| (call, Vec::new()));
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    compile(Calls::from(calls), SeccompAction::Allow, missing)
}

fn forbidden() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM.cast_unsigned())
}

/// A condition on the first argument of a call.
fn condition(operator: SeccompCmpOp, value: u64) -> anyhow::Result<SeccompRule> {
    SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .context("failed to compile the filter of system calls")
}

/// A filter that does the one for `calls`, and the other for all other calls.
fn compile(calls: Calls, others: SeccompAction, these: SeccompAction) -> anyhow::Result<BpfProgram> {
    SeccompFilter::new(calls, others, these, TargetArch::x86_64)
        .and_then(BpfProgram::try_from)
        .context("failed to compile the filter of system calls")
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

    /// Threads start and end, and no thread gets a user namespace or signals another process.
    #[test]
    fn threads_get_no_namespaces_and_signal_their_own_process_alone() {
        let limited = || {
            rustix::thread::set_no_new_privs(true).unwrap();
            for filter in [without_dangerous(), without_clone3()] {
                apply_filter(&filter.unwrap()).unwrap();
            }
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
            let errno = || io::Error::last_os_error().raw_os_error();
            for flag in NAMESPACES {
                // SAFETY: were it allowed, the copy of this process would end at once.
                match unsafe { libc::syscall(libc::SYS_clone, flag | libc::SIGCHLD, 0, 0, 0, 0) } {
                    // SAFETY: ends the copy.
                    0 => unsafe { libc::_exit(0) },
                    cloned => assert_eq!((cloned, errno()), (-1, Some(libc::EPERM)), "{flag:#x}"),
                }
            }
            assert_eq!(refusal(libc::SYS_clone3), Some(libc::ENOSYS));
            assert_eq!(refusal(libc::SYS_pidfd_send_signal), Some(libc::EPERM));
            allow_serving().unwrap();
            let (own, other) = (std::process::id(), std::os::unix::process::parent_id());
            // Signal 0 only asks whether the process may be signalled.
            // SAFETY: no signal is sent.
            let signal = |id: u32| match unsafe { libc::syscall(libc::SYS_tgkill, id, id, 0) } {
                0 => None,
                _ => errno(),
            };
            assert_eq!((signal(own), signal(other)), (None, Some(libc::EPERM)));
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
