//! What the tool itself costs: CPU time and memory of its user side.

/// CPU time of this process so far in ns, user and system.
pub fn read_own_cpu() -> u64 {
    // SAFETY: rusage is plain numbers, and all zeroes is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is valid for writing.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return 0;
    }
    let ns = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_usec).unwrap_or(0) * 1000
    };
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// Peak resident memory of this process in bytes.
pub fn read_own_memory() -> u64 {
    let status = procfs::process::Process::myself().and_then(|process| process.status());
    status
        .ok()
        .and_then(|status| status.vmhwm)
        .map_or(0, |kilobytes| kilobytes * 1024)
}
