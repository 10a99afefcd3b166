//! The facts of a run in words, above the table: where, when, how, and what the measurement cost.

use super::accounting::Accounting;
use super::completeness::{self, share};
use super::number::{bytes, grouped, percent, scaled, seconds, several};
use super::residual::Residual;
use crate::mix::{Method, MethodShare};
use crate::snapshot::{Event, EventUnit, KernelTextSource, Period, Run};

/// What was measured and when; recordings of other tools do not tell the time of day, and texts none at all.
fn measured(run: &Run) -> String {
    let scope = &run.scope;
    match (run.duration, run.started) {
        (0, 0) => scope.clone(),
        (duration, 0) => format!("{scope}, for {} s", seconds(duration, 3)),
        (duration, started) => format!("{scope}, for {} s from {}", seconds(duration, 3), utc(started)),
    }
}

/// The header: a label and a sentence for each line.
pub(super) fn facts(
    run: &Run,
    methods: &[MethodShare],
    accounting: &Accounting,
    residuals: &[Residual],
) -> Vec<(&'static str, String)> {
    let build_id = match run.kernel_build_id.as_slice() {
        [] => String::new(),
        build_id => format!(", build id {}", hex(build_id)),
    };
    let mut facts = vec![
        ("measured", measured(run)),
        ("host", run.host.clone()),
        ("kernel", format!("{}{build_id}", run.kernel_release)),
        (
            "CPU",
            match run.n_cpus {
                0 => run.cpu_model.clone(),
                n_cpus => format!("{}, {n_cpus} online", run.cpu_model),
            },
        ),
    ];
    // Recordings of other tools do not tell all of it.
    facts.retain(|(_, said)| !said.is_empty());
    facts.extend(run.events.iter().map(|event| ("event", event_in_words(event))));
    let counted = accounting.counted;
    let samples = format!(
        "{} of the kernel, {} of user code",
        grouped(counted.kernel),
        grouped(counted.user)
    );
    facts.push(("samples", samples));
    facts.extend(
        run.events
            .iter()
            .map(|event| ("completeness", completeness_in_words(event))),
    );
    facts.extend(methods_in_words(methods).map(|methods| ("executions by", methods)));
    facts.extend(
        residuals
            .iter()
            .map(|residual| ("residual", residual_in_words(residual))),
    );
    facts.push(("kernel text", kernel_text_in_words(&run.kernel_text)));
    facts.push(("own cost", own_cost_in_words(run)));
    facts
}

/// An event with its period: `cpu-clock, every 1,000,000 ns`.
fn event_in_words(event: &Event) -> String {
    let unit = unit_in_words(event.unit);
    let period = match event.period {
        Period::Fixed(period) if event.varied() => format!("about every {} {unit}", grouped(period)),
        Period::Fixed(period) => format!("every {} {unit}", grouped(period)),
        Period::Frequency(frequency) => format!("{} times a second", grouped(frequency)),
    };
    let precise = if event.precise == 0 {
        String::new()
    } else {
        format!(", precise level {}", event.precise)
    };
    let stacks = if event.branch_stack {
        ", with branch stacks"
    } else {
        ""
    };
    format!("{}, {period}{precise}{stacks}", event.name)
}

/// How many of the due samples of an event reached the collector.
fn completeness_in_words(event: &Event) -> String {
    let runs = grouped(event.runs);
    let Some((due, share)) = event.due().zip(completeness::overall(event)) else {
        return format!("{runs} samples of {}; how many were due is not known", event.name);
    };
    let worst = match completeness::worst_cpu(event) {
        Some(worst) => format!("; least on CPU {}: {} %", worst.cpu, percent(worst.share)),
        None => String::new(),
    };
    let due = grouped(due.saturating_sub(completeness::idle(event)));
    let share = percent(share);
    format!(
        "{share} %: {runs} of {due} samples of {} that were due reached the collector{worst}",
        event.name
    )
}

/// The share of the executed instructions that each method serves; nothing where there is no choice, that is without
/// branch stacks.
fn methods_in_words(methods: &[MethodShare]) -> Option<String> {
    let total: f64 = methods.iter().map(MethodShare::instructions).sum();
    let stacks = methods.iter().any(|share| share.method == Method::Lbr);
    let in_words = |share: &MethodShare| {
        let (blocks, share_of_all) = (
            several(share.blocks, "block"),
            percent(share.instructions() / total),
        );
        let balanced = if share.balanced { "balanced " } else { "" };
        format!("{balanced}{} {share_of_all} % ({blocks})", share.method.name())
    };
    Some(methods.iter().map(in_words).collect::<Vec<_>>().join(", ")).filter(|_| stacks && 0.0 < total)
}

/// How far the estimates are from what was counted.
fn residual_in_words(residual: &Residual) -> String {
    let off = residual.relative();
    let sign = if off < 0.0 { "-" } else { "+" };
    format!(
        "{sign}{} % of the {}: {} estimated, {} counted by the sampling events themselves",
        percent(off.abs()),
        unit_in_words(residual.unit),
        scaled(residual.estimated, 4),
        scaled(residual.counted, 4)
    )
}

pub(super) const fn unit_in_words(unit: EventUnit) -> &'static str {
    match unit {
        EventUnit::Nanoseconds => "ns",
        EventUnit::Cycles => "cycles",
        EventUnit::Instructions => "instructions",
        EventUnit::TakenBranches => "taken branches",
        EventUnit::MicroOps => "micro-operations",
        EventUnit::Other => "units",
    }
}

fn kernel_text_in_words(source: &KernelTextSource) -> String {
    match source {
        KernelTextSource::None => "not read".to_owned(),
        KernelTextSource::Kcore => "live, read from /proc/kcore".to_owned(),
        KernelTextSource::Probe => "live, copied by a BPF program".to_owned(),
        KernelTextSource::Vmlinux(path) => format!("of the file {path}, not the live one"),
    }
}

/// What the tool itself used, against what the machine could have given while it was measured.
fn own_cost_in_words(run: &Run) -> String {
    let machine = run.duration.saturating_mul(u64::from(run.n_cpus));
    let of_machine = match share(run.own_cpu, machine) {
        Some(share) => format!(" ({} % of the machine)", percent(share)),
        None => String::new(),
    };
    let (cpu, memory) = (seconds(run.own_cpu, 3), bytes(run.own_memory));
    format!("{cpu} s of CPU time before this report{of_machine}, {memory} of memory")
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A time in ns since 1970 as `2026-11-20 05:13:41 UTC`.
///
/// The calendar is counted in years that begin with March, so that the leap day is the last of its year, within
/// periods of 400 years, which are all alike.
fn utc(ns: u64) -> String {
    const DAYS_OF_ERA: u64 = 146_097;
    // From 1 March of the year 0 to 1 January 1970.
    const DAYS_BEFORE_1970: u64 = 719_468;

    let seconds = ns / 1_000_000_000;
    let days = seconds / 86_400 + DAYS_BEFORE_1970;
    let (era, day) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    // The last day of 4, of 100 and of 400 years has no full year before it.
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March have 31, 30, 31, 30, 31 days, and so on: 153 in five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 {
        (year, month + 3)
    } else {
        (year + 1, month - 9)
    };
    let year = 400 * era + year;
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // Each from `date -u -d @SECONDS`.
        let dates = [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_709_164_800, "2024-02-29 00:00:00 UTC"),
            (1_795_151_621, "2026-11-20 05:13:41 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ];
        for (seconds, shown) in dates {
            assert_eq!(utc(seconds * 1_000_000_000), shown);
        }
    }

    #[test]
    fn own_cost_is_a_share_of_all_cpus() {
        let run = Run {
            n_cpus: 4,
            duration: 10_000_000_000,
            own_cpu: 20_000_000,
            own_memory: 1 << 24,
            ..Run::default()
        };
        let shown = "0.020 s of CPU time before this report (0.05 % of the machine), 16.0 MiB of memory";
        assert_eq!(own_cost_in_words(&run), shown);
    }
}
