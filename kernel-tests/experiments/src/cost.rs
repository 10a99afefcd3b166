//! `cargo xtask vm cost`: what a branch stack costs in instructions, compared with `perf record -b -a`, on a model of a
//! processor.

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use kernel_tests::accuracy::Errors;
use kernel_tests::budget;
use kernel_tests::cost::{self, Costs, FLAT, LOOPS, Overhead, PERIODS, Tool};
use kernel_tests::kernel::Kernel;
use kernel_tests::workload::Workload;

use crate::profile_file::hardware_profile;
use crate::results::{self, Results};

/// What to measure.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Kernel series.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Workloads by name. Default: those of flat code and of loops.
    #[arg(long, value_delimiter = ',')]
    workload: Vec<String>,
    /// Sampling periods of branch stacks in taken branches, comma-separated; at least three.
    #[arg(long, value_delimiter = ',', default_values_t = PERIODS)]
    period: Vec<u64>,
    /// Measure the overhead of both events at their default periods, and what cycles or call chains add, over this number of rounds of
    /// 330 million instructions. The cost of a stack is not measured then.
    #[arg(long, value_name = "ROUNDS")]
    overhead: Option<u32>,
    /// Measure what a daemon takes instead, phase by phase from idle to storms and back, each of
    /// this many seconds of guest time.
    #[arg(long, value_name = "SECONDS", conflicts_with = "overhead")]
    daemon: Option<u32>,
    /// Only these phases: idle, work, storm.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "daemon", value_parser = ["idle", "work", "storm"])]
    phase: Vec<String>,
    /// Seconds of an interval of the daemon.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, requires = "daemon")]
    interval: u32,
    /// More options of the daemon, such as '--cpu-budget 5% --branch-period 10007'.
    #[arg(
        long,
        value_name = "OPTIONS",
        default_value = "",
        requires = "daemon",
        allow_hyphen_values = true
    )]
    options: String,
    /// Print the errors of what the daemon estimates of all phases together instead of what it takes.
    #[arg(long, requires = "daemon")]
    estimates: bool,
    #[command(flatten)]
    results: results::Options,
}

/// The hardware profile whose stacks have 32 entries, always.
const HARDWARE_PROFILE: &str = "ideal";

/// Measures and prints, line by line as the runs end.
pub(crate) fn cost(args: &Args) -> Result<()> {
    let mut results = Results::begin(&args.results)?;
    let kernel = Kernel::get(&args.kernel)?;
    let hardware_profile = hardware_profile(HARDWARE_PROFILE)?;
    if let Some(rounds) = args.overhead {
        let overhead = cost::overhead(&kernel, &hardware_profile, rounds, "")?;
        return print_overhead(args, &mut results, &overhead);
    }
    if let Some(seconds) = args.daemon {
        let mut phases = budget::from_idle_to_storm(seconds);
        phases.retain(|phase| args.phase.is_empty() || args.phase.iter().any(|name| name == phase.name));
        let options = format!("--interval {}s {}", args.interval, args.options);
        if args.estimates {
            let errors = budget::errors(&kernel, &hardware_profile, &phases, &options)?;
            return print_errors(args, &mut results, &errors);
        }
        let settle = 2 * args.interval + 4;
        let taken = budget::measure(&kernel, &hardware_profile, &phases, &options, settle)?;
        return print_budget(args, &mut results, &taken);
    }
    ensure!(
        3 <= args.period.len(),
        "a slope takes at least three periods: --period {}",
        PERIODS.map(|period| period.to_string()).join(",")
    );
    results.text(format_args!(
        "kernel {}, hardware profile {HARDWARE_PROFILE}: on a model of a processor, instructions of kernel and user code for each \
         stack of 32 entries\n{TITLES}",
        args.kernel
    ));
    let named = args.workload.iter().map(String::as_str);
    let names: Vec<&str> = if args.workload.is_empty() {
        FLAT.into_iter().chain(LOOPS).collect()
    } else {
        named.collect()
    };
    for name in names {
        let workload = Workload::named(name).with_context(|| format!("unknown workload `{name}`"))?;
        let costs = cost::measure(workload, &kernel, &hardware_profile, &args.period, &Tool::ALL, 1)?;
        print(args, &mut results, name, &costs)?;
    }
    Ok(())
}

/// Code; instructions in millions without a tool; stacks at the shortest period; instructions for each stack of the
/// machine alone, of hbbp-sys, of perf, and of perf without
/// build ids, all with the machine's; the ratio of hbbp-sys to perf, and the ratio without the machine's.
const TITLES: &str =
    "workload       code  M instr.   stacks  machine hbbp-sys     perf    -B -N    ratio      own";

fn print(args: &Args, results: &mut Results, name: &str, costs: &Costs) -> Result<()> {
    let code = if FLAT.contains(&name) {
        "flat"
    } else if LOOPS.contains(&name) {
        "loop"
    } else {
        "-"
    };
    let [machine, hbbp, perf, bare] = Tool::ALL.map(|tool| costs.per_stack(tool));
    let (ratio, own_ratio) = (costs.ratio(), costs.own_ratio());
    let [of_machine, of_hbbp, of_perf, of_bare] = Tool::ALL.map(|tool| {
        let mut tools = costs.tools.iter();
        tools.find(|(it, _)| *it == tool).map(|(_, spans)| spans)
    });
    results.figures(&serde_json::json!({
        "kernel": args.kernel, "hardware_profile": HARDWARE_PROFILE, "workload": name, "code": code, "alone": costs.alone,
        "spans": {"machine": of_machine, "hbbp-sys": of_hbbp, "perf": of_perf, "perf -B -N": of_bare},
        "per_stack": {"machine": machine, "hbbp-sys": hbbp, "perf": perf, "perf -B -N": bare},
        "ratio": ratio, "own_ratio": own_ratio,
    }))?;
    let spans = costs.tools.iter().flat_map(|(_, spans)| spans);
    let stacks = spans.map(|span| span.stacks).max();
    results.text(format_args!(
        "{name:<14} {code:<4} {:>9.1} {:>8} {machine:>8.0} {hbbp:>8.0} {perf:>8.0} {bare:>8.0} {ratio:>8.2} {own_ratio:>8.2}",
        costs.alone.instructions() as f64 / 1e6,
        stacks.unwrap_or(0),
    ));
    Ok(())
}

/// A line for each phase: length in seconds of guest time; instructions in millions alone, while the emulated PMU looks
/// for records, and with the daemon; samples; the daemon's part of the CPU's time.
fn print_budget(args: &Args, results: &mut Results, phases: &[budget::Taken]) -> Result<()> {
    results.figures(&serde_json::json!({
        "kernel": args.kernel, "hardware_profile": HARDWARE_PROFILE, "interval": args.interval, "options": args.options,
        "phases": phases,
    }))?;
    results.text("phase              seconds    alone  looking  watched  samples  percent of the CPU");
    for taken in phases {
        let millions = |span: cost::Span| span.instructions() as f64 / 1e6;
        results.text(format_args!(
            "{:<18} {:>7.2} {:>8.1} {:>8.1} {:>8.1} {:>8} {:>8.3}",
            taken.phase,
            taken.length as f64 / 1e9,
            millions(taken.alone),
            millions(taken.looking),
            millions(taken.watched),
            taken.watched.stacks,
            100.0 * taken.share(),
        ));
    }
    Ok(())
}

/// Average weighted errors of all code and of each ring.
fn print_errors(args: &Args, results: &mut Results, errors: &Errors) -> Result<()> {
    results.text(format_args!(
        "kernel {}, hardware profile {HARDWARE_PROFILE}: on a model of a processor, a daemon with intervals of {} s {}\n\
         {} samples of addresses and {} branch stacks",
        args.kernel, args.interval, args.options, errors.samples, errors.stacks
    ));
    for group in std::iter::once(&errors.whole).chain(&errors.groups) {
        let ring = group.key.last().map_or("all", String::as_str);
        let (exact, estimated) = (group.instructions.reference, group.instructions.hybrid);
        let error = group.average_weighted_error.hybrid.context("nothing ran")?;
        results.text(format_args!(
            "{ring:<8} {:>9.1} M instructions, {:>9.1} M estimated, average weighted error {:.2} %",
            exact / 1e6,
            estimated / 1e6,
            100.0 * error,
        ));
        results.figures(&serde_json::json!({
            "kernel": args.kernel, "hardware_profile": HARDWARE_PROFILE, "interval": args.interval, "options": args.options,
            "ring": ring, "instructions": exact, "estimated": estimated, "average_weighted_error": error,
        }))?;
    }
    Ok(())
}

fn print_overhead(args: &Args, results: &mut Results, overhead: &Overhead) -> Result<()> {
    results.figures(&serde_json::json!({
        "kernel": args.kernel, "hardware_profile": HARDWARE_PROFILE, "overhead": overhead.fraction(),
        "of_time": overhead.of_time(), "of_callers": overhead.of_callers(), "spans": overhead,
    }))?;
    let millions = |instructions: u64| instructions as f64 / 1e6;
    results.text(format_args!(
        "kernel {}, hardware profile {HARDWARE_PROFILE}: on a model of a processor, both events at their default periods\n\
         work alone {:.1} M instructions, {:.1} M while the emulated PMU looks for records, {:.1} M while hbbp-sys samples, \
         with {} samples\n{:.3} % are added by the tool, {:.3} % with what the looking adds\n\
         {:.1} M instructions while it samples cycles as well, with {} samples: {:.3} % more\n\
         {:.1} M instructions while it samples the clock with call chains: each costs {:.0}, {:.3} % more\n\
         start and end of the tool: {:.1} M instructions in all",
        args.kernel,
        millions(overhead.alone.instructions()),
        millions(overhead.looking.instructions()),
        millions(overhead.watched.instructions()),
        overhead.watched.stacks,
        100.0 * overhead.fraction(),
        100.0 * overhead.with_looking(),
        millions(overhead.with_time.instructions()),
        overhead.with_time.stacks,
        100.0 * overhead.of_time(),
        millions(overhead.with_callers.instructions()),
        overhead.of_chain(),
        100.0 * overhead.of_callers(),
        millions(overhead.ends.instructions()),
    ));
    Ok(())
}
