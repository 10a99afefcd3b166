//! `cargo xtask vm recordings`: how exact the mix is that `hbbp-sys import` makes of a recording of perf(1), whose stacks any event
//! may have triggered; over the workloads, on a model of a processor.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Parser;
use kernel_tests::kernel::Kernel;
use kernel_tests::recording::{Recorded, record};

use crate::accuracy::Selection;
use crate::profile_file::hardware_profile;
use crate::results::{self, Results};

/// What to record.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Options of perf record that choose the events.
    #[arg(long, default_value = TIME_TRIGGERED, allow_hyphen_values = true)]
    events: String,
    /// Directory in which to keep recordings, profiles and references.
    #[arg(long)]
    keep: Option<PathBuf>,
    #[command(flatten)]
    results: results::Options,
}

/// Stacks that time triggers, every prime number of cycles.
const TIME_TRIGGERED: &str = "-b -e cycles -c 20011";

/// The default rule, on stacks as recorded.
const AS_RECORDED: &str = "name recorded\nstreams balanced\nwithout weights\nlbr\n";

/// Columns: instructions in millions, share of the kernel in %, and stacks. Then average weighted errors of shares in %: as
/// recorded, with weights, and with weights in each ring.
const TITLES: &str = "workload       M instr. %kernel   stacks recorded weighted   kernel     user";

/// The errors of shares of a workload, as fractions.
struct Line {
    recorded: f64,
    weighed: f64,
}

/// Records, imports, compares and prints, line by line as the runs end.
pub(crate) fn recordings(args: &Args) -> Result<()> {
    let mut results = Results::begin(&args.results)?;
    let mut failed = Vec::new();
    for series in &args.selection.kernel {
        let kernel = Kernel::get(series)?;
        for name in &args.selection.hardware_profile {
            let text = hardware_profile(name)?;
            results.text(format_args!(
                "kernel {series}, hardware profile {name}, perf record -a {}: on a model of a processor\n{TITLES}",
                args.events
            ));
            let mut lines = Vec::new();
            for workload in args.selection.workloads()? {
                let measured = record(workload, &kernel, &text, &args.events).and_then(|recorded| {
                    if let Some(directory) = &args.keep {
                        recorded.keep(&directory.join(format!("{series}-{name}-{}", workload.name)))?;
                    }
                    print(
                        &mut results,
                        [series, name, &args.events, workload.name],
                        &recorded,
                    )
                });
                match measured {
                    Ok(line) => lines.push(line),
                    Err(error) => {
                        eprintln!("{:<14}failed: {error:#}", workload.name);
                        failed.push(workload.name);
                    }
                }
            }
            summary(&results, &lines);
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("not measured: {}", failed.join(", "))
    }
}

fn print(
    results: &mut Results,
    [series, hardware_profile, events, workload]: [&str; 4],
    recorded: &Recorded,
) -> Result<Line> {
    let rule = recorded.outcome().directory().join("recorded.rule");
    std::fs::write(&rule, AS_RECORDED)?;
    let as_recorded = recorded.errors(&rule.display().to_string())?.whole;
    let errors = recorded.errors("balanced")?;
    let ring = |name: &str| errors.named(name).ok();
    let share_error = |name: &str| {
        ring(name)
            .and_then(|group| group.share_error.hybrid)
            .unwrap_or(0.0)
    };
    let kernel = ring("kernel").map_or(0.0, |group| group.instructions.reference);
    let total = errors.whole.instructions.reference;
    let line = Line {
        recorded: as_recorded.share_error.hybrid.unwrap_or(0.0),
        weighed: errors.whole.share_error.hybrid.unwrap_or(0.0),
    };
    results.figures(&serde_json::json!({
        "kernel": series, "hardware_profile": hardware_profile, "events": events, "workload": workload,
        "instructions": total, "kernel_instructions": kernel, "stacks": errors.stacks,
        "share_error": {
            "recorded": line.recorded, "weighed": line.weighed,
            "kernel": share_error("kernel"), "user": share_error("user"),
        },
    }))?;
    results.text(format_args!(
        "{workload:<14} {:>8.1} {:>7.1} {:>8.0} {:>8.2} {:>8.2} {:>8.2} {:>8.2}",
        total / 1e6,
        100.0 * kernel / total.max(1.0),
        errors.stacks,
        100.0 * line.recorded,
        100.0 * line.weighed,
        100.0 * share_error("kernel"),
        100.0 * share_error("user"),
    ));
    Ok(line)
}

/// Mean and worst of both.
fn summary(results: &Results, lines: &[Line]) {
    let columns = [|line: &Line| line.recorded, |line: &Line| line.weighed];
    let mean = columns.map(|of| lines.iter().map(of).sum::<f64>() / lines.len().max(1) as f64);
    let worst = columns.map(|of| lines.iter().map(of).fold(0.0, f64::max));
    for (name, [recorded, weighed]) in [("mean", mean), ("worst", worst)] {
        results.text(format_args!(
            "{name:<14} {:>25} {:>8.2} {:>8.2}",
            "",
            100.0 * recorded,
            100.0 * weighed
        ));
    }
    results.text("");
}
