//! `hbbp-sys check`: what this machine offers, rung by rung of the ladder, and what to do about what is missing.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::addr::Va;
use crate::collect::event::{self, Rung, Source};
use crate::collect::object::{Constants, Object, Room};
use crate::collect::pmu::{DEVICES, Pmu, read_pmus};
use crate::collect::sideband::Sideband;
use crate::collect::{perf, task_layout, text::TextWindow};
use crate::resolve;

/// How to print the findings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// Lines for people.
    Text,
    /// One JSON object: `{"format": "hbbp-sys.check/1", "best": .., "findings": [..]}`.
    Json,
}

/// How well something is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is there.
    Ok,
    /// It works with a limit that the text names.
    Limited,
    /// It is not there.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name.
    pub id: &'static str,
    /// How well it is.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do about it; empty where there is nothing to do.
    pub advice: String,
}

/// All findings.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Version of this layout.
    pub format: &'static str,
    /// The rung of the ladder that a run would take.
    pub best: String,
    /// What was looked at, the most basic first.
    pub findings: Vec<Finding>,
}

/// Looks at this machine and prints what it finds.
pub fn check(format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
    let findings = look();
    match format {
        Format::Text => out.write_all(text(&findings).as_bytes())?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &findings)?;
            writeln!(out)?;
        }
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
    let _ = writeln!(text, "\nA run samples: {}", findings.best);
    text
}

fn look() -> Findings {
    let pmus = read_pmus(Path::new(DEVICES));
    let mut findings = vec![privileges(), paranoia(), sideband(), btf()];
    let mut object = match Object::load(Constants::default(), Room::default())
        .and_then(|mut object| object.on_ip(0).map(|_| object))
    {
        Ok(object) => {
            findings.push(ok("bpf", "the kernel takes the programs"));
            Some(object)
        }
        Err(error) => {
            findings.push(missing(
                "bpf",
                format!("{error:#}"),
                "run as root, or grant CAP_BPF and CAP_PERFMON",
            ));
            None
        }
    };
    findings.push(counters(&pmus));
    findings.push(branches(&pmus));
    findings.extend(event::ladder().iter().map(step));
    findings.push(watchdog(&pmus));
    findings.push(kernel_text(object.as_mut()));
    findings.push(kernel_symbols());
    let best = event::choose(&event::Choice::default());
    let best = best.map_or_else(
        |error| format!("nothing: {error:#}"),
        |sources| describe(&sources),
    );
    Findings {
        format: "hbbp-sys.check/1",
        best,
        findings,
    }
}

fn describe(sources: &[Source]) -> String {
    let weighs = if sources.iter().all(|source| source.unit.counts_executions()) {
        "estimated executions"
    } else {
        "time-weighted samples, not executions"
    };
    format!("{} ({weighs})", names(sources))
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

/// Capabilities by number (`include/uapi/linux/capability.h`) and what each is for here.
const CAPABILITIES: [(u32, &str, &str); 6] = [
    (
        38,
        "CAP_PERFMON",
        "to open perf events and read kernel text through BPF",
    ),
    (39, "CAP_BPF", "to load the programs"),
    (17, "CAP_SYS_RAWIO", "to read /proc/kcore"),
    (34, "CAP_SYSLOG", "to see the addresses of kernel symbols"),
    (
        19,
        "CAP_SYS_PTRACE",
        "to read the files and memory of other processes",
    ),
    (
        2,
        "CAP_DAC_READ_SEARCH",
        "to read files that only their owners may read",
    ),
];

/// `CAP_SYS_ADMIN` stands for the first two on kernels before 5.8 and on all later ones.
const CAP_SYS_ADMIN: u32 = 21;

fn privileges() -> Finding {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(granted) = parse_effective(&status) else {
        return missing(
            "privileges",
            "/proc/self/status does not tell the capabilities",
            "mount /proc",
        );
    };
    let has = |number: u32| granted >> number & 1 == 1;
    let covered = |number: u32| has(number) || (matches!(number, 38 | 39) && has(CAP_SYS_ADMIN));
    let lacking: Vec<String> = CAPABILITIES
        .iter()
        .filter(|(number, ..)| !covered(*number))
        .map(|(_, name, purpose)| format!("{name} {purpose}"))
        .collect();
    if lacking.is_empty() {
        return ok("privileges", "all capabilities that the tool uses");
    }
    missing(
        "privileges",
        format!("lacks {}", lacking.join(", ")),
        "run as root (sudo)",
    )
}

fn parse_effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn paranoia() -> Finding {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    match level.as_deref().map(str::trim) {
        Err(_) => missing(
            "perf",
            "this kernel has no perf events",
            "boot a kernel with CONFIG_PERF_EVENTS; nothing can be sampled here",
        ),
        Ok(level) => ok(
            "perf",
            format!("kernel.perf_event_paranoid is {level} (no limit for root)"),
        ),
    }
}

fn sideband() -> Finding {
    match Sideband::open(&[0]) {
        Ok(sideband) if sideband.missing().is_empty() => ok("records", "of processes, mappings, kernel text"),
        Ok(sideband) => limited(
            "records",
            format!("without {}", sideband.missing().join(", ")),
            "a newer kernel tells more; the tool reads text and symbols again where it can",
        ),
        Err(error) => missing("records", error.to_string(), "run as root, or grant CAP_PERFMON"),
    }
}

fn btf() -> Finding {
    match task_layout::open_btf().and_then(|btf| task_layout::read_exec_id_offset(&btf)) {
        Ok(offset) => ok(
            "btf",
            format!("the kernel describes its types (self_exec_id at {offset})"),
        ),
        Err(reason) => limited(
            "btf",
            reason,
            "programs that one process runs after another are told apart by time only; CONFIG_DEBUG_INFO_BTF helps",
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
            "no hardware counters: this is a virtual machine that is given none",
            "ask the host for a virtual PMU (QEMU: -cpu host,pmu=on), or measure on the host",
        )
    } else {
        (
            "no hardware counters",
            "another driver may hold them, or the kernel does not know this processor",
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
        "executions cannot be estimated from branch stacks here; most virtual machines hide them",
    )
}

fn step(rung: &Rung) -> Finding {
    match &rung.sources {
        Ok(sources) => ok("ladder", format!("{}: {}", rung.what, names(sources))),
        Err(reason) => missing("ladder", format!("{}: {reason}", rung.what), advice(reason)),
    }
}

/// What to do about the kernel's answer.
fn advice(reason: &str) -> &'static str {
    if reason.contains("Permission denied") || reason.contains("not permitted") {
        "run as root, or grant CAP_PERFMON"
    } else if reason.contains("busy") {
        "another user holds the counters: end it, or sysctl kernel.nmi_watchdog=0"
    } else {
        "the next rung serves instead"
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
            "holds one counter on each CPU",
            "sysctl kernel.nmi_watchdog=0 frees it, if events are refused or shared",
        );
    }
    ok("nmi-watchdog", "holds no counter")
}

fn kernel_text(object: Option<&mut Object>) -> Finding {
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if resolve::kernel::kcore::open_kcore().is_ok() {
        return ok("kernel-text", "live, through /proc/kcore");
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
            "live, copied by a BPF program (no /proc/kcore here)",
        );
    }
    let advice = if lockdown.contains("[confidentiality]") {
        "kernel lockdown is `confidentiality`; only a static vmlinux can be used: --kernel-text PATH"
    } else {
        "run as root; else name a static image: --kernel-text PATH"
    };
    missing("kernel-text", "live kernel text cannot be read", advice)
}

fn kernel_symbols() -> Finding {
    match resolve::kernel::kallsyms::read_kallsyms() {
        Ok(symbols) if !symbols.hidden => ok("kernel-symbols", "/proc/kallsyms has addresses"),
        _ => missing(
            "kernel-symbols",
            "/proc/kallsyms shows no addresses",
            "run as root with sysctl kernel.kptr_restrict at most 1; without it kernel code has no names",
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
    fn effective_capabilities_are_hexadecimal() {
        assert_eq!(
            parse_effective("Name:\tx\nCapEff:\t000001ffffffffff\n"),
            Some(0x1ff_ffff_ffff)
        );
        assert_eq!(parse_effective("Name:\tx\n"), None);
    }

    #[test]
    fn every_missing_thing_comes_with_advice() {
        let findings = look();
        for finding in &findings.findings {
            assert!(
                finding.status == Status::Ok || !finding.advice.is_empty(),
                "{finding:?}"
            );
        }
        let text = text(&findings);
        assert!(text.contains("A run samples: "), "{text}");
    }
}
