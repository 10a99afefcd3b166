//! `hbbp-sys check`: what this machine supports, including the ladder of events, and how to enable what is missing.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::bail;
use serde::Serialize;

use crate::addr::Va;
use crate::collect::event::{self, Refused, Rung, Source};
use crate::collect::limits::{LockedMemory, effective_capabilities};
use crate::collect::object::{Constants, MapSizes, Object};
use crate::collect::pmu::{DEVICES, Pmu, read_pmus};
use crate::collect::sideband::Sideband;
use crate::collect::{perf, task_layout, text::TextWindow};
use crate::printable::write_json;
use crate::resolve;

/// Output format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// Lines for people.
    Text,
    /// One JSON object: `{"format": "hbbp-sys.check/1", "best": .., "findings": [..]}`.
    Json,
}

/// Status of a finding.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Available.
    Ok,
    /// Available with a limit that the text states.
    Limited,
    /// Not available.
    Missing,
}

/// The result of one check.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name.
    pub id: &'static str,
    /// Its status.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// How to fix it; empty if nothing needs fixing.
    pub advice: String,
}

/// All findings.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Version of this layout.
    pub format: &'static str,
    /// Whether anything can be measured.
    pub measurable: bool,
    /// The default event of a run; `none` where there is none.
    pub best: String,
    /// The checks, most basic first.
    pub findings: Vec<Finding>,
}

/// Checks this machine and prints the findings; fails where nothing can be measured.
pub fn check(format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
    let findings = look();
    match format {
        Format::Text => out.write_all(text(&findings).as_bytes())?,
        Format::Json => write_json(&findings, out)?,
    }
    if !findings.measurable {
        bail!("nothing can be measured here: see what is missing, and what to do about it");
    }
    Ok(())
}

fn text(findings: &Findings) -> String {
    let mut text = String::new();
    for finding in &findings.findings {
        let mark = match finding.status {
            Status::Ok => "ok     ",
            Status::Limited => "limited",
            Status::Missing => "missing",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{mark}  {:<16} {}", finding.id, finding.found);
        if !finding.advice.is_empty() {
            let _ = writeln!(text, "{:26}-> {}", "", finding.advice);
        }
    }
    let _ = writeln!(text, "\nDefault event: {}", findings.best);
    text
}

fn look() -> Findings {
    let pmus = read_pmus(Path::new(DEVICES));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut findings = vec![
        kernel(release.trim()),
        privileges(),
        paranoia(),
        ring_memory(),
        sideband(),
        btf(),
    ];
    let mut object = match Object::load(Constants::default(), MapSizes::default())
        .and_then(|mut object| object.on_ip(0).map(|_| object))
    {
        Ok(object) => {
            findings.push(ok("bpf", "the programs load"));
            Some(object)
        }
        Err(error) => {
            findings.push(missing(
                "bpf",
                format!("the programs do not load: {}", error.root_cause()),
                "run as root, or grant CAP_BPF and CAP_PERFMON",
            ));
            None
        }
    };
    findings.push(counters(&pmus));
    findings.push(branches(&pmus));
    let ladder = event::ladder();
    findings.extend(ladder.iter().map(step));
    findings.push(watchdog(&pmus));
    findings.push(kernel_text(object.as_mut()));
    findings.push(kernel_symbols());
    let best = ladder.iter().find_map(|rung| rung.sources.as_ref().ok());
    Findings {
        format: "hbbp-sys.check/1",
        measurable: best.is_some() && object.is_some(),
        best: best.map_or_else(|| "none".to_owned(), |sources| describe(sources)),
        findings,
    }
}

fn describe(sources: &[Source]) -> String {
    let unit = if sources.iter().all(|source| source.unit.counts_executions()) {
        "estimated executions"
    } else {
        "time-weighted samples, not executions"
    };
    format!("{} ({unit})", names(sources))
}

fn ok(id: &'static str, found: impl Into<String>) -> Finding {
    Finding {
        id,
        status: Status::Ok,
        found: found.into(),
        advice: String::new(),
    }
}

fn missing(id: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding {
        id,
        status: Status::Missing,
        found: found.into(),
        advice: advice.into(),
    }
}

fn limited(id: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding {
        id,
        status: Status::Limited,
        found: found.into(),
        advice: advice.into(),
    }
}

/// Capabilities by number (`include/uapi/linux/capability.h`), and the use of each.
const CAPABILITIES: [(u32, &str, &str); 6] = [
    (PERFMON, "CAP_PERFMON", "perf events, kernel text through BPF"),
    (BPF, "CAP_BPF", "loading BPF programs"),
    (17, "CAP_SYS_RAWIO", "reading /proc/kcore"),
    (34, "CAP_SYSLOG", "addresses of kernel symbols"),
    (19, "CAP_SYS_PTRACE", "files and memory of other processes"),
    (2, "CAP_DAC_READ_SEARCH", "files that only their owners can read"),
];

const PERFMON: u32 = 38;
const BPF: u32 = 39;
/// `CAP_SYS_ADMIN` includes these two, on kernels before 5.8 and on all later ones.
const CAP_SYS_ADMIN: u32 = 21;

/// The kernel, against those that the tests run on.
fn kernel(release: &str) -> Finding {
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

fn privileges() -> Finding {
    let Some(granted) = effective_capabilities() else {
        return missing(
            "privileges",
            "/proc/self/status lists no capabilities",
            "mount /proc",
        );
    };
    let has = |number: u32| granted >> number & 1 == 1;
    let covered = |number: u32| has(number) || (matches!(number, PERFMON | BPF) && has(CAP_SYS_ADMIN));
    let lacking: Vec<String> = CAPABILITIES
        .iter()
        .filter(|(number, ..)| !covered(*number))
        .map(|(_, name, purpose)| format!("{name} ({purpose})"))
        .collect();
    if lacking.is_empty() {
        return ok("privileges", "all required capabilities");
    }
    missing(
        "privileges",
        format!("missing {}", lacking.join(", ")),
        "run as root (sudo)",
    )
}

fn paranoia() -> Finding {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    match level.as_deref().map(str::trim) {
        Err(_) => missing(
            "perf",
            "the kernel has no perf events",
            "boot a kernel with CONFIG_PERF_EVENTS; nothing can be sampled without it",
        ),
        Ok(level) => {
            let is_free = effective_capabilities()
                .is_some_and(|granted| granted & (1 << PERFMON | 1 << CAP_SYS_ADMIN) != 0);
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
        "run as root, or grant CAP_PERFMON",
    )
}

/// The rings of all CPUs, which need more locked memory than users may have by default from 32 CPUs on.
fn ring_memory() -> Finding {
    let n_cpus = usize::try_from(read_n_cpus()).unwrap_or(1);
    match LockedMemory::read(n_cpus).lacking() {
        None => ok("ring-memory", "enough for the rings of all CPUs"),
        Some(lacking) => missing("ring-memory", lacking.found, lacking.advice),
    }
}

fn sideband() -> Finding {
    match Sideband::open(&[0]) {
        Ok(sideband) if sideband.missing().is_empty() => ok("records", "processes, mappings and kernel text"),
        Ok(sideband) => limited(
            "records",
            format!("not supported: {}", sideband.missing().join(", ")),
            "use a newer kernel; until then, text and symbols are re-read where possible",
        ),
        Err(error) => missing("records", error.to_string(), "run as root, or grant CAP_PERFMON"),
    }
}

fn btf() -> Finding {
    match task_layout::open_btf().and_then(|btf| task_layout::read_exec_id_offset(&btf)) {
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

fn counters(pmus: &[Pmu]) -> Finding {
    if !pmus.is_empty() {
        let names: Vec<_> = pmus
            .iter()
            .map(|pmu| format!("{} (precise {})", pmu.name, pmu.max_precise))
            .collect();
        return ok("counters", format!("hardware counters: {}", names.join(", ")));
    }
    let (found, advice) = if in_virtual_machine() {
        (
            "no hardware counters: this virtual machine has no virtual PMU",
            "enable the virtual PMU on the host (QEMU: -cpu host,pmu=on), or measure on the host",
        )
    } else {
        (
            "no hardware counters",
            "another driver may hold them, or the kernel does not support this CPU",
        )
    };
    missing("counters", found, advice)
}

/// Hypervisors set this flag of CPUID leaf 1 (SDM vol. 2, CPUID: bit 31 of ECX is not used by processors).
fn in_virtual_machine() -> bool {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn branches(pmus: &[Pmu]) -> Finding {
    let deepest = pmus.iter().map(|pmu| pmu.branches).max().unwrap_or(0);
    if 0 < deepest {
        return ok("branch-stack", format!("{deepest} entries"));
    }
    missing(
        "branch-stack",
        "no branch records (LBR, LBRv2, BRS)",
        "most virtual machines hide them; executions cannot be estimated from branch stacks here",
    )
}

fn step(rung: &Rung) -> Finding {
    match &rung.sources {
        Ok(sources) => ok("ladder", format!("{}: {}", rung.what, names(sources))),
        Err(reason) => missing("ladder", format!("{}: {reason}", rung.what), advice(reason)),
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

fn names(sources: &[Source]) -> String {
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

fn watchdog(pmus: &[Pmu]) -> Finding {
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

fn kernel_text(object: Option<&mut Object>) -> Finding {
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if resolve::kernel::kcore::open_kcore().is_ok() {
        return ok("kernel-text", "live, read from /proc/kcore");
    }
    let symbols = resolve::kernel::kallsyms::read_kallsyms();
    let start = symbols
        .ok()
        .and_then(|symbols| symbols.image.stext)
        .unwrap_or(Va(0));
    let window = object.and_then(|object| TextWindow::open(object).ok());
    if window.is_some_and(|window| window.read(start, &mut [0; 16])) {
        return ok(
            "kernel-text",
            "live, read by a BPF program (/proc/kcore is unavailable)",
        );
    }
    let advice = if lockdown.contains("[confidentiality]") {
        "kernel lockdown is `confidentiality`: only a static image can be used (--vmlinux FILE)"
    } else {
        "run as root, or use a static image with --vmlinux FILE"
    };
    missing("kernel-text", "live kernel text cannot be read", advice)
}

fn kernel_symbols() -> Finding {
    match resolve::kernel::kallsyms::read_kallsyms() {
        Ok(symbols) if !symbols.hidden => ok("kernel-symbols", "/proc/kallsyms shows addresses"),
        _ => missing(
            "kernel-symbols",
            "/proc/kallsyms hides addresses",
            "run as root with sysctl kernel.kptr_restrict=1 or 0; otherwise kernel functions have no names",
        ),
    }
}

/// The number of CPUs online, for the header of a report.
pub fn read_n_cpus() -> u32 {
    perf::read_online_cpus()
        .ok()
        .and_then(|cpus| u32::try_from(cpus.len()).ok())
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn missing_findings_have_advice() {
        let findings = look();
        for finding in &findings.findings {
            assert!(
                finding.status == Status::Ok || !finding.advice.is_empty(),
                "{finding:?}"
            );
        }
        let text = text(&findings);
        assert!(text.contains("Default event: "), "{text}");
    }
}
