//! Events that users name by the numbers of their PMU: `cpu/config=0x20c4,unit=branches/`.

use std::path::Path;

use anyhow::{Context as _, bail};

use super::cpu_list;
use super::perf::{Request, Stack};
use super::pmu::{DEVICES, read_pmus};
use super::source::{Source, core_of};
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::run::{EventUnit, Period};

/// An event of a PMU by its numbers: `config`, `precise`, `unit` (instructions, branches, cycles, other), `name`.
/// Taken branches come with their branch stacks.
pub(super) fn raw(pmu: &str, terms: &str) -> anyhow::Result<Source> {
    if pmu.is_empty() || pmu.contains(['/', '.']) {
        bail!("invalid PMU name {pmu:?}");
    }
    let folder = Path::new(DEVICES).join(pmu);
    let kind = std::fs::read_to_string(folder.join("type"))
        .with_context(|| Advised::new(format!("unknown PMU `{pmu}`"), Advice::ListPmus))?;
    let cpus = std::fs::read_to_string(folder.join("cpus"));
    let mut source = Source {
        name: format!("{pmu}/{terms}/"),
        unit: EventUnit::Other,
        near_only: false,
        request: Request {
            kind: kind
                .trim()
                .parse()
                .with_context(|| format!("PMU {pmu} has no type"))?,
            config: 0,
            period: Period::default(),
            precise: 0,
            exclude_guest: false,
            pinned: true,
            stack: None,
            chain: false,
            ring: None,
        },
        cpus: cpus
            .ok()
            .and_then(|text| cpu_list::parse(&text))
            .unwrap_or_default(),
    };
    for term in terms.split(',').filter(|term| !term.is_empty()) {
        let (key, value) = term.split_once('=').unwrap_or((term, "1"));
        match (key, value) {
            ("config", _) => source.request.config = number(value)?,
            ("precise", _) => source.request.precise = u8::try_from(number(value)?).unwrap_or(u8::MAX),
            ("name", _) => source.name = value.to_owned(),
            ("unit", "instructions") => source.unit = EventUnit::Instructions,
            ("unit", "cycles") => source.unit = EventUnit::Cycles,
            ("unit", "other") => source.unit = EventUnit::Other,
            ("unit", "branches") => {
                source.unit = EventUnit::TakenBranches;
                source.request.stack = Some(Stack::Full);
            }
            ("unit", _) => {
                bail!("unknown unit `{value}`; expected one of instructions, branches, cycles, other")
            }
            _ => bail!("unknown event term `{key}`; expected one of config, precise, unit, name"),
        }
    }
    let pmus = read_pmus(Path::new(DEVICES));
    let known = pmus.iter().find(|known| known.name == pmu);
    let taken = known.and_then(|pmu| pmu.taken().or_else(|| core_of(pmu)?.taken));
    source.near_only = taken.is_some_and(|taken| taken.near_only && taken.config == source.request.config);
    Ok(source)
}

fn number(text: &str) -> anyhow::Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.with_context(|| format!("invalid number `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_numbers_and_names_are_refused() {
        assert!(raw("../../etc", "config=1").is_err());
        assert!(number("0xzz").is_err());
    }
}
