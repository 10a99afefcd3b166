//! `hbbp-sys check`: what this machine supports, including the ladder of events, and how to enable what is missing.

mod access;
mod counters;
mod finding;
mod kernel_text;
mod surroundings;

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use anyhow::bail;
use serde::Serialize;

use super::environment::{Environment, OfferHere, first_refusal};
use access::{btf, kernel, paranoia, privileges, ring_memory, sideband};
use counters::{branches, counters, names, step, watchdog};
pub(crate) use finding::{Finding, Status};
use finding::{missing, ok};
use hbbp_collect::event;
use hbbp_collect::object::{Constants, MapSizes, Object};
#[cfg(test)]
use hbbp_collect::pmu::Pmu;
use hbbp_collect::pmu::{DEVICES, read_pmus};
use hbbp_collect::source::Source;
use hbbp_model::printable::write_json;
use hbbp_output::report::TextOrJson;
use kernel_text::{kernel_symbols, kernel_text};
use surroundings::{guests, machine};

/// All findings.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Findings {
    /// Name and version of this layout.
    pub format: &'static str,
    /// Whether anything can be measured.
    pub measurable: bool,
    /// The default event of a run; `none` where there is none.
    pub best: String,
    /// Why no executions can be sampled, and what could; empty where they can.
    pub without_executions: String,
    /// The checks, most basic first.
    pub findings: Vec<Finding>,
    /// Where this machine lacks something, which machines of its kind have more.
    machine_types: Vec<OfferHere>,
}

/// Checks this machine and prints the findings; fails where nothing can be measured.
pub(crate) fn check(format: TextOrJson, out: &mut dyn Write) -> anyhow::Result<()> {
    let findings = look();
    match format {
        TextOrJson::Text => out.write_all(text(&findings).as_bytes())?,
        TextOrJson::Json => write_json(&findings, out)?,
    }
    if !findings.measurable {
        bail!("nothing can be measured here: see what is missing, and what to do about it");
    }
    Ok(())
}

fn text(findings: &Findings) -> String {
    // Writing to a String cannot fail.
    let mut text = String::new();
    if !findings.measurable && findings.lacks_privileges() {
        text.push_str("Run it as root: sudo hbbp-sys check\n\n");
    }
    if !findings.without_executions.is_empty() {
        let why = &findings.without_executions;
        let _ = writeln!(text, "No executions can be sampled, only time: {why}\n");
    }
    for finding in &findings.findings {
        let mark = match finding.status {
            Status::Ok => "ok     ",
            Status::Limited => "limited",
            Status::Missing => "missing",
        };
        let _ = writeln!(text, "{mark}  {:<16} {}", label(finding.id), finding.found);
        if !finding.advice.is_empty() {
            let _ = writeln!(text, "{:26}-> {}", "", finding.advice);
        }
    }
    let _ = writeln!(text, "\nDefault event: {}", findings.best);
    text.push_str(&surroundings::text(&findings.machine_types));
    text
}

/// What text calls a finding, where its stable name is not what users call it.
fn label(id: &str) -> &str {
    match id {
        "ladder" => "events",
        "ring-memory" => "locked memory",
        "records" => "process events",
        id => id,
    }
}

impl Findings {
    /// Whether root would see more.
    fn lacks_privileges(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.id == "privileges" && finding.status == Status::Missing)
    }
}

fn look() -> Findings {
    let pmus = read_pmus(Path::new(DEVICES));
    let environment = Environment::read();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut findings = vec![
        machine(&environment),
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
    findings.push(counters(&pmus, &environment));
    findings.push(branches(&pmus, &environment));
    let ladder = event::ladder();
    findings.extend(ladder.iter().map(step));
    findings.push(watchdog(&pmus));
    findings.push(kernel_text(object.as_mut()));
    findings.push(kernel_symbols());
    findings.extend(guests(&environment));
    let best = ladder.iter().find_map(|rung| rung.sources.as_ref().ok());
    let has_executions = best.is_some_and(|sources| counts_executions(sources));
    // Without rights, the kernel refuses what it may well have.
    let is_known = has_executions || best.is_some() || pmus.is_empty();
    Findings {
        format: "hbbp-sys.check/1",
        measurable: best.is_some() && object.is_some(),
        best: best.map_or_else(|| "none".to_owned(), |sources| describe(sources)),
        without_executions: if has_executions || !is_known {
            String::new()
        } else {
            environment.without_executions(&pmus, || first_refusal(&ladder))
        },
        machine_types: surroundings::offers(&pmus, &environment),
        findings,
    }
}

fn counts_executions(sources: &[Source]) -> bool {
    sources.iter().all(|source| source.unit.counts_executions())
}

fn describe(sources: &[Source]) -> String {
    let unit = if counts_executions(sources) {
        "estimated executions"
    } else {
        "time-weighted samples, not executions"
    };
    format!("{} ({unit})", names(sources))
}

/// What is said of a recorded machine that depends on its facts.
#[cfg(test)]
pub(super) fn of_recorded(environment: &Environment, pmus: &[Pmu]) -> String {
    let mut findings = vec![
        machine(environment),
        counters(pmus, environment),
        branches(pmus, environment),
    ];
    findings.extend(guests(environment));
    text(&Findings {
        format: "hbbp-sys.check/1",
        measurable: true,
        best: "as the kernel grants".to_owned(),
        without_executions: match pmus {
            [] => environment.without_executions(pmus, || None),
            _ => String::new(),
        },
        machine_types: surroundings::offers(pmus, environment),
        findings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for inner in ["ladder", "ring-memory"] {
            assert!(!text.contains(inner), "{text}");
        }
    }

    #[test]
    fn a_user_without_rights_reads_first_what_gives_them() {
        let findings = Findings {
            format: "hbbp-sys.check/1",
            measurable: false,
            best: "none".to_owned(),
            without_executions: "this Firecracker microVM has no PMU".to_owned(),
            machine_types: Vec::new(),
            findings: vec![missing("privileges", "missing CAP_BPF", "run as root (sudo)")],
        };
        assert!(text(&findings).starts_with(
            "Run it as root: sudo hbbp-sys check\n\nNo executions can be sampled, only time: this Firecracker"
        ));
    }
}
