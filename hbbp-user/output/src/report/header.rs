//! The header of the text report: scope, host, events, completeness and overhead of the run.

use jiff::Timestamp;

use super::accounting::Accounting;
use super::completeness::{self, Missing, share};
use super::number::{bytes, grouped, percent, scaled, seconds, several};
use super::residual::Residual;
use hbbp_analysis::mix::{Analysis, Method, MethodShare};
use hbbp_model::snapshot::run::RunTime;
use hbbp_model::snapshot::{Event, EventUnit, KernelTextSource, Period, Run, hex};

/// Scope and time of the measurement; recordings of other tools have no time of day, and text has no time at all.
fn measured(run: &Run) -> String {
    let scope = &run.scope;
    match (run.duration, run.started) {
        (0, 0) => scope.clone(),
        (duration, 0) => format!("{scope}, for {} s", seconds(duration, 3)),
        (duration, started) => format!("{scope}, for {} s from {}", seconds(duration, 3), utc(started)),
    }
}

/// Scope, length, host and kernel of a run in one line.
pub(super) fn facts_in_a_line(run: &Run) -> String {
    /// Tenths of a second matter only for a short run.
    const SHORT: u64 = 10_000_000_000;

    let decimals = if run.duration < SHORT { 2 } else { 0 };
    let time = match run.duration {
        0 => String::new(),
        duration => format!(", {} s", seconds(duration, decimals)),
    };
    let model = model_in_short(&run.host.cpu_model);
    let place = [run.host.name.as_str(), &run.host.kernel_release, &model].into_iter();
    let place: Vec<&str> = place.filter(|it| !it.is_empty() && *it != "(none)").collect();
    if place.is_empty() {
        return format!("{}{time}", run.scope);
    }
    format!("{}{time}; {}", run.scope, place.join(", "))
}

/// The name of a processor without trade marks and its frequency.
fn model_in_short(model: &str) -> String {
    let name = model.split('@').next().unwrap_or_default();
    let name = name.replace("(R)", "").replace("(TM)", "").replace("(tm)", "");
    let words = name
        .split_whitespace()
        .filter(|word| !["CPU", "Processor"].contains(word));
    words.collect::<Vec<_>>().join(" ")
}

/// The header: a label and a sentence for each line.
pub(super) fn facts(
    run: &Run,
    analysis: &Analysis,
    accounting: &Accounting,
    residuals: &[Residual],
) -> Vec<(&'static str, String)> {
    let build_id = match run.host.kernel_build_id.as_slice() {
        [] => String::new(),
        build_id => format!(", build id {}", hex(build_id)),
    };
    let mut facts = vec![
        ("measured", measured(run)),
        ("host", run.host.name.clone()),
        ("kernel", format!("{}{build_id}", run.host.kernel_release)),
        (
            "CPU",
            match run.host.n_cpus {
                0 => run.host.cpu_model.clone(),
                n_cpus => format!("{}, {n_cpus} online", run.host.cpu_model),
            },
        ),
    ];
    // Recordings of other tools lack some of these.
    facts.retain(|(_, value)| !value.is_empty());
    facts.extend(run.events.iter().map(|event| ("event", event_in_words(event))));
    let counted = accounting.counted;
    // Where only branch stacks were taken, no sample of an address is missing.
    let stacks_alone = counted.total() == 0 && run.events.iter().any(|event| event.branch_stack);
    if !stacks_alone {
        let samples = format!(
            "{} kernel, {} user",
            grouped(counted.kernel),
            grouped(counted.user)
        );
        facts.push(("samples", samples));
    }
    facts.extend(
        run.events
            .iter()
            .zip(&accounting.missing)
            .map(|(event, missing)| ("completeness", completeness_in_words(event, *missing))),
    );
    facts.extend(methods_in_words(&analysis.methods).map(|methods| ("estimated by", methods)));
    facts.extend(kernel_processes_in_words(analysis).map(|how| ("by process", how)));
    facts.extend(
        residuals
            .iter()
            .map(|residual| ("residual", residual_in_words(residual))),
    );
    facts.push(("kernel text", kernel_text_in_words(&run.kernel_text)));
    // What another tool recorded has cost this one nothing.
    if 0 < run.overhead.cpu {
        facts.push(("overhead", overhead_in_words(run)));
    }
    facts.extend(guests_in_words(of_guests(run), of_all_cpus(run)).map(|guests| ("guests", guests)));
    facts
}

/// An event with its period: `cpu-clock, every 1,000,000 ns`.
pub(super) fn event_in_words(event: &Event) -> String {
    let unit = unit_in_words(event.unit);
    let period = match event.period {
        // Without counters, as in a recording; see `Period`.
        Period::Fixed(1) if event.counters.is_empty() => "period unknown".to_owned(),
        Period::Fixed(period) if event.varied() => format!("about every {} {unit}", grouped(period)),
        Period::Fixed(period) => format!("every {} {unit}", grouped(period)),
        Period::Frequency(frequency) => format!("{} Hz", grouped(frequency)),
        Period::Between(shortest, longest) => {
            format!("every {} to {} {unit}", grouped(shortest), grouped(longest))
        }
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

/// How many of the expected samples of an event were received.
fn completeness_in_words(event: &Event, missing: Missing) -> String {
    let runs = grouped(event.runs);
    if event.runs == 0 && event.counters.is_empty() {
        return format!("number of samples of {} unknown", event.name);
    }
    let Some((due, share)) = event.due().zip(completeness::while_busy(event, missing)) else {
        return format!(
            "{runs} samples of {} received; expected number unknown",
            event.name
        );
    };
    let worst = match completeness::worst_cpu(event, missing) {
        Some(worst) => format!("; lowest on CPU {}: {} %", worst.cpu, percent(worst.share)),
        None => String::new(),
    };
    let all = completeness::with_idle(event).filter(|_| 0 < missing.idle);
    let all = all.map_or(String::new(), |all| {
        format!("; {} % with idle CPUs", percent(all))
    });
    let due = grouped(due.saturating_sub(missing.idle));
    let share = percent(share);
    format!(
        "{share} %: received {runs} of {due} expected samples of {}{worst}{all}",
        event.name
    )
}

/// The share of the executions that each method serves; `None` without branch stacks, where EBS is the only one.
fn methods_in_words(methods: &[MethodShare]) -> Option<String> {
    let total: f64 = methods.iter().map(MethodShare::instructions).sum();
    let stacks = methods.iter().any(|share| share.method == Method::Lbr);
    let in_words = |share: &MethodShare| {
        let (blocks, share_of_all) = (
            several(share.blocks, "block"),
            percent(share.instructions() / total),
        );
        let balanced = if share.balanced { "balanced " } else { "" };
        format!(
            "{balanced}{} {share_of_all} % of executions ({blocks})",
            share.method.name()
        )
    };
    Some(methods.iter().map(in_words).collect::<Vec<_>>().join(", ")).filter(|_| stacks && 0.0 < total)
}

/// How the kernel's streams are divided between processes; `None` where their stacks show it, or nothing does.
fn kernel_processes_in_words(analysis: &Analysis) -> Option<String> {
    let of_streams = |share: &MethodShare| share.method == Method::Lbr && 0.0 < share.kernel;
    let samples = analysis.counts.sampling.kernel_samples;
    let is_divided = 0.0 < samples && analysis.methods.iter().any(of_streams);
    is_divided.then(|| {
        format!(
            "kernel code is divided by its {} samples in each function; ± leaves that out",
            scaled(samples, 4)
        )
    })
}

/// The difference between the estimate and the counters.
fn residual_in_words(residual: &Residual) -> String {
    let off = residual.relative();
    let sign = if off < 0.0 { "-" } else { "+" };
    /// Half of the last digit that is printed.
    const SAME: f64 = 5e-5;

    let tied = residual.untied.filter(|untied| SAME <= (untied - off).abs());
    let untied = tied.map(|untied| {
        let sign = if untied < 0.0 { "-" } else { "+" };
        format!(
            "; {sign}{} % before streams were scaled to that",
            percent(untied.abs())
        )
    });
    format!(
        "{sign}{} % for {}: {} estimated, {} counted by the sampling events{}",
        percent(off.abs()),
        unit_in_words(residual.unit),
        scaled(residual.estimated, 4),
        scaled(residual.counted, 4),
        untied.unwrap_or_default()
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
        KernelTextSource::Probe => "live, read by a BPF program".to_owned(),
        KernelTextSource::Vmlinux(path) => format!("static image {path}, not the live text"),
    }
}

/// The time of all CPUs during a run, in ns.
pub(super) fn of_all_cpus(run: &Run) -> u64 {
    run.duration.saturating_mul(u64::from(run.host.n_cpus))
}

/// Time in ns that guests of this host took, over all CPUs; 0 if the kernel does not report it.
pub(super) fn of_guests(run: &Run) -> u64 {
    // Each event has a counter of each CPU.
    let of_event = |event: &Event| {
        let guests = event.counters.iter().filter_map(|counter| counter.guest);
        guests.fold(0, u64::saturating_add)
    };
    run.events.iter().map(of_event).max().unwrap_or(0)
}

/// The time that guests of this host took, and their share of that of all CPUs; `None` if they took none.
pub(super) fn guests_in_words(guests: u64, machine: u64) -> Option<String> {
    let of_machine = share(guests, machine).map_or_else(String::new, |share| {
        format!(" ({} % of all CPUs)", percent(share.min(1.0)))
    });
    (0 < guests).then(|| format!("{} s of CPU time{of_machine}", seconds(guests, 2)))
}

/// CPU time and memory of the tool; CPU time also as a share of all CPUs during the run.
fn overhead_in_words(run: &Run) -> String {
    let machine = of_all_cpus(run);
    let of_machine = |time| match share(time, machine) {
        Some(share) => format!(" ({} % of all CPUs)", percent(share)),
        None => String::new(),
    };
    let (cpu, memory) = (seconds(run.overhead.cpu, 3), bytes(run.overhead.memory));
    let budget = run.overhead.budget.map_or_else(String::new, |budget| {
        let all = of_machine(run.overhead.cpu.saturating_add(run.overhead.sampling));
        let how = match budget.programs {
            RunTime::Measured => "interrupts and records estimated",
            RunTime::Estimated => "estimated",
        };
        format!(
            "; with {} s of sampling ({how}) {} of a budget of {} %",
            seconds(run.overhead.sampling, 3),
            all.trim_start(),
            percent(f64::from(budget.share) / 1e6)
        )
    });
    format!(
        "{cpu} s CPU time before this report{}, {memory} memory{budget}",
        of_machine(run.overhead.cpu)
    )
}

/// A time in ns since 1970 as `2026-11-20 05:13:41 UTC`.
fn utc(ns: u64) -> String {
    // All of u64 lies before the year 2555.
    let time = Timestamp::from_nanosecond(i128::from(ns)).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use hbbp_model::snapshot::run::Counter;
    use hbbp_model::snapshot::{HostFacts, Overhead};

    use super::*;

    fn four_cpus() -> HostFacts {
        HostFacts {
            n_cpus: 4,
            ..HostFacts::default()
        }
    }

    #[test]
    fn utc_matches_the_calendar() {
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
    fn processors_have_short_names() {
        for (model, short) in [
            (
                "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
                "Intel Xeon Platinum 8481C",
            ),
            ("AMD EPYC 9R14 96-Core Processor", "AMD EPYC 9R14 96-Core"),
            ("QEMU TCG CPU version 2.5+", "QEMU TCG version 2.5+"),
            ("", ""),
        ] {
            assert_eq!(model_in_short(model), short);
        }
    }

    #[test]
    fn guests_are_a_fact_if_they_took_time() {
        let run = |guest: u64| {
            let counter = |cpu| Counter {
                cpu: Some(cpu),
                guest: Some(guest),
                ..Counter::default()
            };
            let event = Event {
                counters: (0..4).map(counter).collect(),
                ..Event::default()
            };
            Run {
                host: four_cpus(),
                duration: 10_000_000_000,
                // Each event has the times of the CPUs.
                events: vec![event.clone(), event],
                ..Run::default()
            }
        };
        let fact = |run: &Run| guests_in_words(of_guests(run), of_all_cpus(run));
        let shown = "1.80 s of CPU time (4.50 % of all CPUs)";
        assert_eq!(fact(&run(450_000_000)).as_deref(), Some(shown));
        assert_eq!(fact(&run(0)), None);
        // Ticks may add up to more than the time.
        let all = "48.00 s of CPU time (100.00 % of all CPUs)";
        assert_eq!(fact(&run(12_000_000_000)).as_deref(), Some(all));
    }

    #[test]
    fn overhead_is_a_share_of_all_cpus() {
        let run = Run {
            host: four_cpus(),
            duration: 10_000_000_000,
            overhead: Overhead {
                cpu: 20_000_000,
                memory: 1 << 24,
                ..Overhead::default()
            },
            ..Run::default()
        };
        let shown = "0.020 s CPU time before this report (0.05 % of all CPUs), 16.0 MiB memory";
        assert_eq!(overhead_in_words(&run), shown);
    }
}
