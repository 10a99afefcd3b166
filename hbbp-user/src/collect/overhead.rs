//! What the tool itself costs: CPU time and memory of its user side, and the idle time of the CPUs it watched.

use std::collections::HashMap;

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

/// Idle time of each CPU since boot in ns, by CPU number, in steps of the kernel's clock tick (10 ms).
/// Empty where the kernel does not tell.
/// The text is interpreted here and not by procfs, because that crate counts the lines, and a CPU that is offline has
/// none.
pub fn read_idle_times() -> HashMap<u32, u64> {
    std::fs::read_to_string("/proc/stat")
        .map(|text| parse_idle_times(&text))
        .unwrap_or_default()
}

/// Interprets the lines `cpuN user nice system idle iowait ..` of /proc/stat.
fn parse_idle_times(text: &str) -> HashMap<u32, u64> {
    /// `USER_HZ` is 100 on x86, whatever the kernel's own tick.
    const NS_PER_TICK: u64 = 10_000_000;

    let idle = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        // The first line is the sum of all, and has no number.
        let cpu = words.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
        let ticks = words.skip(3).take(2).filter_map(|word| word.parse::<u64>().ok());
        Some((cpu, ticks.sum::<u64>().saturating_mul(NS_PER_TICK)))
    };
    text.lines().filter_map(idle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_offline_has_no_line() {
        let text = "cpu  9 9 9 900 90 0\ncpu0 1 2 3 400 50 7 0\ncpu2 1 2 3 7 0 7 0\nintr 5 0\nctxt 7\n";
        let idle = parse_idle_times(text);
        assert_eq!(idle, HashMap::from([(0, 4_500_000_000), (2, 70_000_000)]));
        assert!(!read_idle_times().is_empty());
    }
}
