//! What the daemon keeps of the rights that it was started with.
//!
//! Before any other thread runs, it opens what the kernel shows only to those with more capabilities. Then it drops the
//! others for good ([`limit`]), and forbids system calls that it never makes (`syscalls`). All that is opened later,
//! also again after an error, is opened with what is left, so a daemon that could start can start collection again.
//! Capabilities belong to threads: those that need none drop theirs ([`limit_thread`]).

mod syscalls;

use anyhow::Context as _;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use hbbp_collect::sideband::Sideband;
use hbbp_resolve::kernel::kernel_file::open_kernel_files;

/// A capability with its name and what it is needed for.
type Reason = (CapabilitySet, &'static str, &'static str);

/// The capabilities that stay, and what each is needed for while the daemon runs.
const KEPT: [Reason; 4] = [
    (
        CapabilitySet::PERFMON,
        "CAP_PERFMON",
        "events of CPUs that come online and after errors, kernel text",
    ),
    (
        CapabilitySet::BPF,
        "CAP_BPF",
        "loading the programs again after errors",
    ),
    (
        CapabilitySet::SYS_PTRACE,
        "CAP_SYS_PTRACE",
        "mappings and memory of new processes",
    ),
    (
        CapabilitySet::DAC_READ_SEARCH,
        "CAP_DAC_READ_SEARCH",
        "files of other users that new processes run",
    ),
];

/// Kept instead of CAP_PERFMON and CAP_BPF, which it includes, on kernels that open no events with those two. Debian's kernel
/// opens none while `kernel.perf_event_paranoid` is above 2 (Debian's patch "security,perf: Allow further restriction of
/// perf_event_open").
const ADMIN: Reason = (
    CapabilitySet::SYS_ADMIN,
    "CAP_SYS_ADMIN",
    "events and programs, as kernel.perf_event_paranoid is above 2: with 2 it is not kept",
);

/// Drops all rights but those of [`KEPT`]. Call it before any other thread is started. Returns a sentence about what is left.
pub(super) fn limit() -> anyhow::Result<String> {
    open_kernel_files();
    raise_locked_memory();
    let failed = "failed to drop capabilities";
    let granted = capabilities(None).context(failed)?.permitted;
    let reasons = needed(granted).context(failed)?;
    empty_bounding_set().context(failed)?;
    clear_ambient_capability_set().context(failed)?;
    hold(granted & union(&reasons)).context(failed)?;
    set_no_new_privs(true).context("failed to set no_new_privs")?;
    syscalls::forbid_dangerous()?;
    let kept = reasons.iter().filter(|(one, ..)| granted.contains(*one));
    let kept: Vec<String> = kept.map(|(_, name, why)| format!("{name} ({why})")).collect();
    Ok(match kept.as_slice() {
        [] => "no capabilities".to_owned(),
        kept => kept.join(", "),
    })
}

/// Drops all capabilities of the calling thread, and all system calls that no server of metrics makes.
pub(super) fn limit_server() -> anyhow::Result<()> {
    limit_thread()?;
    syscalls::allow_serving()
}

/// Allows the calling thread, which has no capabilities, what parsing files needs.
pub(super) fn limit_parser() -> anyhow::Result<()> {
    syscalls::allow_parsing()
}

/// Drops all capabilities of the calling thread.
pub(super) fn limit_thread() -> anyhow::Result<()> {
    hold(CapabilitySet::empty()).context("failed to drop capabilities")
}

/// The capabilities that are to stay of those that were granted: it is tried whether the kernel opens events with [`KEPT`].
fn needed(granted: CapabilitySet) -> rustix::io::Result<Vec<Reason>> {
    let sets = capabilities(None)?;
    let tried = CapabilitySets {
        effective: granted & union(&KEPT),
        ..sets
    };
    set_capabilities(None, tried)?;
    let opens = Sideband::open(&[0]).is_ok();
    set_capabilities(None, sets)?;
    if opens || !granted.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(KEPT.to_vec());
    }
    let included = CapabilitySet::PERFMON | CapabilitySet::BPF;
    let others = KEPT.into_iter().filter(|(one, ..)| !included.contains(*one));
    Ok(std::iter::once(ADMIN).chain(others).collect())
}

fn union(reasons: &[Reason]) -> CapabilitySet {
    let sets = reasons.iter().map(|(one, ..)| *one);
    sets.fold(CapabilitySet::empty(), |all, one| all | one)
}

fn hold(kept: CapabilitySet) -> rustix::io::Result<()> {
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)
}

/// Takes all capabilities from what a program could gain when it is executed. Without CAP_SETPCAP this is refused, and
/// not needed: with no_new_privs nothing is gained.
fn empty_bounding_set() -> rustix::io::Result<()> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(one) {
            // Beyond the last one of this kernel, or not allowed.
            Err(Errno::INVAL | Errno::PERM) => break,
            removed => removed?,
        }
    }
    Ok(())
}

/// The rings of many CPUs need more locked memory than users may have without CAP_IPC_LOCK, which goes. Where it cannot be
/// raised, opening the rings says so.
fn raise_locked_memory() {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        let limit = getrlimit(Resource::Memlock);
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        let _ = setrlimit(Resource::Memlock, raised);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_without_capabilities_cannot_get_them_back() {
        let limited = || {
            limit_thread().unwrap();
            let left = capabilities(None).unwrap();
            assert!(left.effective.is_empty() && left.permitted.is_empty() && left.inheritable.is_empty());
            hold(CapabilitySet::BPF).err()
        };
        let refused = std::thread::spawn(limited).join().unwrap();
        assert_eq!(refused, Some(Errno::PERM));
    }
}
