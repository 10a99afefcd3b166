//! What can be counted: hardware counters, branch stacks, and the ladder of events.

use std::io::ErrorKind;

use super::finding::{Finding, limited, missing, ok};
use crate::cmd::environment::Environment;
use hbbp_collect::event::Rung;
use hbbp_collect::pmu::Pmu;
use hbbp_collect::source::{Refused, Source};

pub(super) fn counters(pmus: &[Pmu], environment: &Environment) -> Finding {
    if !pmus.is_empty() {
        let names: Vec<_> = pmus
            .iter()
            .map(|pmu| format!("{} (precise {})", pmu.name, pmu.max_precise))
            .collect();
        return ok("counters", format!("hardware counters: {}", names.join(", ")));
    }
    let found = format!("no hardware counters: {}", environment.without_pmu());
    missing("counters", found, environment.remedy())
}

/// What a virtual PMU may lack. A mediated one gives its counters to the guest for as long as it runs.
const OF_A_GUEST: &str = "a virtual PMU rarely has them, and a mediated one (KVM, Linux 7.0) has all counters but neither \
                          branch records nor PEBS: executions are estimated from samples alone, less exactly";

pub(super) fn branches(pmus: &[Pmu], environment: &Environment) -> Finding {
    let deepest = pmus.iter().map(|pmu| pmu.branches).max().unwrap_or(0);
    if 0 < deepest {
        return ok("branch-stack", format!("{deepest} entries"));
    }
    let advice = match (pmus, environment.is_guest()) {
        ([], _) => "they need a PMU",
        (_, true) => OF_A_GUEST,
        (_, false) => "the CPU has none that its kernel drives: executions are estimated from samples alone",
    };
    missing("branch-stack", "no branch records (LBR, LBRv2, BRS)", advice)
}

pub(super) fn step(rung: &Rung) -> Finding {
    match &rung.sources {
        Ok(sources) => ok("ladder", format!("{}: {}", rung.kind.words(), names(sources))),
        Err(reason) => {
            let cause = std::error::Error::source(reason);
            let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
            let found = format!("{}: {reason}{cause}", rung.kind.words());
            missing("ladder", found, advice(reason))
        }
    }
}

/// How to have a step that is missing, where it can be had.
fn advice(refused: &Refused) -> &'static str {
    let kind = match refused {
        Refused::Event { error, .. } => Some(error.kind()),
        Refused::NoCounters | Refused::NoBranchRecords(_) | Refused::NoTakenBranches(_) => None,
    };
    match kind {
        Some(ErrorKind::PermissionDenied) => "run as root, or grant CAP_PERFMON",
        Some(ErrorKind::ResourceBusy) => {
            "another user holds the counters: stop it, or set sysctl kernel.nmi_watchdog=0"
        }
        _ => "the next event on this list is used instead",
    }
}

pub(super) fn names(sources: &[Source]) -> String {
    let level = |source: &Source| match source.request.precise {
        0 => String::new(),
        precise => format!(" (precise {precise})"),
    };
    let names: Vec<_> = sources
        .iter()
        .map(|source| format!("{}{}", source.name, level(source)))
        .collect();
    names.join(", ")
}

pub(super) fn watchdog(pmus: &[Pmu]) -> Finding {
    let on = std::fs::read_to_string("/proc/sys/kernel/nmi_watchdog").is_ok_and(|text| text.trim() == "1");
    if on && !pmus.is_empty() {
        return limited(
            "nmi-watchdog",
            "uses one counter on each CPU",
            "set sysctl kernel.nmi_watchdog=0 if events are refused or multiplexed",
        );
    }
    ok("nmi-watchdog", "uses no counter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_event_is_advised_on_by_its_error() {
        let refused = |error| Refused::Event {
            event: "cycles".to_owned(),
            error: std::io::Error::from_raw_os_error(error),
        };
        assert!(advice(&refused(libc::EACCES)).contains("CAP_PERFMON"));
        assert!(advice(&refused(libc::EPERM)).contains("CAP_PERFMON"));
        assert!(advice(&refused(libc::EBUSY)).contains("nmi_watchdog"));
        assert!(advice(&refused(libc::ENOENT)).contains("next event"));
        assert!(advice(&Refused::NoCounters).contains("next event"));
    }
}
