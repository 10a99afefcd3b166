//! Limits of this user that a measurement can meet: locked memory for the rings, and open files. Errors that come from
//! them say how to raise them.

use std::io;

use rustix::process::{Resource, getrlimit};

use super::perf::{SIDEBAND_BYTES, TEXT_RING_BYTES};

/// The control page before each ring.
const PAGE: usize = 4096;

/// `CAP_IPC_LOCK` of include/uapi/linux/capability.h: no limit of locked memory.
const IPC_LOCK: u32 = 14;

/// The locked memory that the rings of all CPUs need, and what this user may lock, in KiB.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LockedMemory {
    n_cpus: u64,
    needed: u64,
    /// `None` where there is no limit.
    allowed: Option<u64>,
}

impl LockedMemory {
    /// The memory for the rings of `n_cpus`, on this machine.
    pub fn read(n_cpus: usize) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let sysctl = |path| read(path).trim().parse::<i64>().ok();
        let is_free = effective_capabilities().is_some_and(|granted| granted >> IPC_LOCK & 1 == 1)
            || sysctl("/proc/sys/kernel/perf_event_paranoid").is_some_and(|level| level < 0);
        let for_each_cpu =
            sysctl("/proc/sys/kernel/perf_event_mlock_kb").and_then(|kib| u64::try_from(kib).ok());
        let limit = getrlimit(Resource::Memlock).current;
        let limit = limit.filter(|_| !is_free).zip(for_each_cpu);
        Self::new(
            n_cpus,
            limit.map(|(limit, for_each_cpu)| (limit >> 10, for_each_cpu)),
        )
    }

    /// `limit` has the user's limit and the one for each CPU, in KiB; `None` if memory is unlimited. Perf events may lock the sum
    /// of both (kernel/events/core.c, `perf_mmap`).
    fn new(n_cpus: usize, limit: Option<(u64, u64)>) -> Self {
        let n_cpus = n_cpus as u64;
        let of_cpu = (2 * PAGE + SIDEBAND_BYTES + TEXT_RING_BYTES) as u64 >> 10;
        let allowed =
            |(limit, for_each_cpu): (u64, u64)| n_cpus.saturating_mul(for_each_cpu).saturating_add(limit);
        Self {
            n_cpus,
            needed: n_cpus.saturating_mul(of_cpu),
            allowed: limit.map(allowed),
        }
    }

    /// What is missing; `None` where the memory suffices.
    pub fn lacking(&self) -> Option<Lacking> {
        let Self { n_cpus, needed, .. } = self;
        let allowed = self.allowed.filter(|allowed| allowed < needed)?;
        Some(Lacking {
            found: format!(
                "the rings of {n_cpus} CPUs need {needed} KiB of locked memory, and this user may lock {allowed} KiB"
            ),
            advice: format!(
                "run as root, grant CAP_IPC_LOCK, or raise the limit by {} KiB (ulimit -l, or LimitMEMLOCK= of a systemd \
                 service)",
                needed - allowed
            ),
        })
    }
}

/// A limit that is too low.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lacking {
    /// What is needed, and what there is.
    pub found: String,
    /// How to have it.
    pub advice: String,
}

/// The effective capabilities of this process, by their numbers.
pub fn effective_capabilities() -> Option<u64> {
    parse_effective(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn parse_effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The error, with what to do where it came from the limit of open files.
pub fn advised(error: anyhow::Error, n_cpus: u32) -> anyhow::Error {
    let is_limit = |cause: &(dyn std::error::Error + 'static)| {
        let of_io = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error);
        let of_rustix = cause
            .downcast_ref::<rustix::io::Errno>()
            .map(|errno| errno.raw_os_error());
        of_io.or(of_rustix) == Some(libc::EMFILE)
    };
    if !error.chain().any(is_limit) {
        return error;
    }
    let limit = getrlimit(Resource::Nofile).maximum;
    let limit = limit.map_or_else(|| "no".to_owned(), |limit| limit.to_string());
    error.context(format!(
        "the limit of open files ({limit}) is too low to measure {n_cpus} CPUs: raise it to {} or more (ulimit -n, or \
         LimitNOFILE= of a systemd service)",
        files_for(n_cpus)
    ))
}

/// Files that a run on `n_cpus` opens: some for each CPU, and one for each mapped file until it was read.
const fn files_for(n_cpus: u32) -> u32 {
    const EACH_CPU: u32 = 8;
    const OTHERS: u32 = 1024;

    n_cpus.saturating_mul(EACH_CPU).saturating_add(OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn rings_of_many_cpus_need_more_than_the_usual_limits() {
        // 8 MiB for each user, and 516 KiB for each CPU.
        let usual = |n_cpus| LockedMemory::new(n_cpus, Some((8 << 10, 516))).lacking();
        assert_eq!(usual(31), None);
        let lacking = usual(32).unwrap();
        assert!(lacking.found.contains("32 CPUs need 24832 KiB"), "{lacking:?}");
        assert!(
            lacking.advice.contains("CAP_IPC_LOCK") && lacking.advice.contains("by 128 KiB"),
            "{lacking:?}"
        );
        assert_eq!(LockedMemory::new(4096, None).lacking(), None);
    }

    #[test]
    fn capabilities_are_parsed_as_hexadecimal() {
        assert_eq!(
            parse_effective("Name:\tx\nCapEff:\t000001ffffffffff\n"),
            Some(0x1ff_ffff_ffff)
        );
        assert_eq!(parse_effective("Name:\tx\n"), None);
    }

    #[test]
    fn the_limit_of_open_files_is_known_by_its_number() {
        let failed = |errno| {
            let failed: io::Result<()> = Err(io::Error::from_raw_os_error(errno));
            failed.context("failed to open a map").unwrap_err()
        };
        let said = format!("{:#}", advised(failed(libc::EMFILE), 64));
        assert!(said.contains("ulimit -n") && said.contains("1536"), "{said}");
        assert!(said.contains("failed to open a map"), "{said}");
        assert!(!format!("{:#}", advised(failed(libc::EPERM), 64)).contains("ulimit"));
    }
}
