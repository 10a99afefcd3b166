//! What the kernel is, and what it allows this user to do and to see.

use super::finding::{Finding, limited, missing, ok};
use crate::cmd::host_facts::read_n_cpus;
use hbbp_collect::btf::Btf;
use hbbp_collect::kernel_layout;
use hbbp_collect::limits::{LockedMemory, effective_capabilities};
use hbbp_collect::sideband::Sideband;

/// What is needed by number (`include/uapi/linux/capability.h`), and the use of each. Kernel text needs no CAP_SYS_RAWIO: where
/// /proc/kcore is refused, a BPF program reads it.
const CAPABILITIES: [(u32, &str, &str); 5] = [
    (PERFMON, "CAP_PERFMON", "perf events, kernel text through BPF"),
    (BPF, "CAP_BPF", "loading BPF programs"),
    (34, "CAP_SYSLOG", "addresses of kernel symbols"),
    (19, "CAP_SYS_PTRACE", "files and memory of other processes"),
    (2, "CAP_DAC_READ_SEARCH", "files that only their owners can read"),
];

const PERFMON: u32 = 38;
const BPF: u32 = 39;
/// Opens the file of a mapping, wherever it is by now (fs/proc/base.c, `proc_map_files_get_link`).
const CHECKPOINT_RESTORE: u32 = 40;
/// `CAP_SYS_ADMIN` includes these two, on kernels before 5.8 and on all later ones.
const CAP_SYS_ADMIN: u32 = 21;

/// The kernel, against those that the tests run on.
pub(super) fn kernel(release: &str) -> Finding {
    /// Every test passes on this one; the features that are needed came with 5.15 at the latest.
    const OLDEST_TESTED: (u32, u32) = (6, 1);

    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().ok());
    match numbers.next().flatten().zip(numbers.next().flatten()) {
        Some(version) if version < OLDEST_TESTED => limited(
            "kernel",
            format!("Linux {release} is older than all that hbbp-sys was tested on"),
            "use Linux 6.1 or newer",
        ),
        _ => ok("kernel", format!("Linux {release}")),
    }
}

pub(super) fn privileges() -> Finding {
    let Some(granted) = effective_capabilities() else {
        return missing(
            "privileges",
            "/proc/self/status lists no capabilities",
            "mount /proc",
        );
    };
    privileges_of(granted)
}

/// What a set of capabilities allows, one bit for each.
fn privileges_of(granted: u64) -> Finding {
    let has = |number: u32| granted >> number & 1 == 1;
    let covered = |number: u32| has(number) || (matches!(number, PERFMON | BPF) && has(CAP_SYS_ADMIN));
    let lacking: Vec<String> = CAPABILITIES
        .iter()
        .filter(|(number, ..)| !covered(*number))
        .map(|(_, name, purpose)| format!("{name} ({purpose})"))
        .collect();
    if lacking.is_empty() && !has(CAP_SYS_ADMIN) && !has(CHECKPOINT_RESTORE) {
        return limited(
            "privileges",
            "without CAP_CHECKPOINT_RESTORE, programs and libraries that were replaced while they run have no function names",
            "run as root, or grant CAP_CHECKPOINT_RESTORE",
        );
    }
    if lacking.is_empty() {
        return ok("privileges", "all required capabilities");
    }
    missing(
        "privileges",
        format!("missing {}", lacking.join(", ")),
        "run as root (sudo)",
    )
}

pub(super) fn paranoia() -> Finding {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    match level.as_deref().map(str::trim) {
        Err(_) => missing(
            "perf",
            "the kernel has no perf events",
            "boot a kernel with CONFIG_PERF_EVENTS; nothing can be sampled without it",
        ),
        Ok(level) => {
            let has =
                |number: u32| effective_capabilities().is_some_and(|granted| granted >> number & 1 == 1);
            // Debian's kernel demands CAP_SYS_ADMIN above level 2.
            let is_free = has(CAP_SYS_ADMIN) || has(PERFMON) && Sideband::open(&[0]).is_ok();
            paranoia_of(level, is_free)
        }
    }
}

/// What a level of paranoia means; `is_free` with CAP_PERFMON or CAP_SYS_ADMIN, for which there is none
/// (Documentation/admin-guide/sysctl/kernel.rst, perf_event_paranoid).
fn paranoia_of(level: &str, is_free: bool) -> Finding {
    let found = format!("kernel.perf_event_paranoid is {level}");
    if is_free {
        return ok("perf", format!("{found}, which does not limit this user"));
    }
    if level.parse::<i32>().is_ok_and(|level| level <= 0) {
        return ok("perf", found);
    }
    missing(
        "perf",
        format!("{found}: this user cannot sample CPUs"),
        "run as root, or grant CAP_PERFMON (above level 2 Debian's kernel wants CAP_SYS_ADMIN)",
    )
}

/// The rings of all CPUs, which need more locked memory than users may have by default from 32 CPUs on.
pub(super) fn ring_memory() -> Finding {
    let n_cpus = usize::try_from(read_n_cpus()).unwrap_or(1);
    match LockedMemory::read(n_cpus).lacking() {
        None => ok("ring-memory", "enough for the buffers of all CPUs"),
        Some(lacking) => missing("ring-memory", lacking.found, lacking.advice),
    }
}

pub(super) fn sideband() -> Finding {
    match Sideband::open(&[0]) {
        Ok(sideband) if sideband.missing().is_empty() => ok(
            "records",
            "the kernel reports processes, mappings and changes of its code",
        ),
        Ok(sideband) => limited(
            "records",
            format!("not supported: {}", sideband.missing().join(", ")),
            "use a newer kernel; until then, text and symbols are re-read where possible",
        ),
        Err(error) => missing("records", error.to_string(), "run as root, or grant CAP_PERFMON"),
    }
}

pub(super) fn btf() -> Finding {
    match Btf::open().and_then(|btf| kernel_layout::read_exec_id_offset(&btf)) {
        Ok(offset) => ok(
            "btf",
            format!("kernel type information is available (self_exec_id at offset {offset})"),
        ),
        Err(reason) => limited(
            "btf",
            reason,
            "use a kernel with CONFIG_DEBUG_INFO_BTF; without it, successive programs of a process are \
             distinguished only by time",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn names_that_a_missing_capability_costs_are_said() {
        let needed: u64 = CAPABILITIES.iter().map(|(number, ..)| 1 << number).sum();
        let limited = privileges_of(needed);
        assert_eq!(limited.status, Status::Limited);
        assert!(
            limited.found.contains("CAP_CHECKPOINT_RESTORE"),
            "{}",
            limited.found
        );
        assert_eq!(privileges_of(needed | 1 << CHECKPOINT_RESTORE).status, Status::Ok);
        assert_eq!(privileges_of(needed & !(1 << BPF)).status, Status::Missing);
    }

    #[test]
    fn old_kernels_are_said_to_be_untested() {
        for (release, status) in [
            ("5.15.0-91-generic", Status::Limited),
            ("6.1.0-56-amd64", Status::Ok),
            ("6.18.44-fc-v595", Status::Ok),
            ("7.2", Status::Ok),
            ("", Status::Ok),
        ] {
            assert_eq!(kernel(release).status, status, "{release}");
        }
    }

    #[test]
    fn paranoia_limits_those_without_privileges() {
        for (level, is_free, status) in [
            ("4", true, Status::Ok),
            ("2", false, Status::Missing),
            ("1", false, Status::Missing),
            ("0", false, Status::Ok),
            ("-1", false, Status::Ok),
        ] {
            assert_eq!(paranoia_of(level, is_free).status, status, "{level} {is_free}");
        }
    }
}
