//! `cargo xtask vm methods`: the sampling methods of "Establishing a Base of Trust with Performance Counters for Enterprise
//! Workloads" (ATC 2015) side by side, on a model of a processor.
//! The measure is its accuracy error over blocks (section 3.3).
//!
//! | method | event, period |
//! |---|---|
//! | classic | imprecise, even and fixed: what `perf record -c N` takes |
//! | precise | `:pp`, even and fixed |
//! | precise-prime | `:pp`, prime |
//! | ip+1 | `:p` with branch stacks, prime: each address is that of the next instruction, and corrected through the newest branch |
//! | distributed | `:ppp` on a processor whose precise records have no shadow, prime |
//! | ip+1-distributed | both: addresses of the next instruction without a shadow, corrected through the newest branch |
//! | randomised | the addresses of this program's own run, whose prime periods are drawn anew at drains |
//! | lbr | branch stacks of taken branches alone |
//! | hybrid | both, by the rule of this program |
//!
//! Addresses of `:pp` are those of the instruction itself: the kernel corrects them, or the processor since Haswell. So ip+1
//! should equal precise-prime. The blocks are those of the reference, the same for all methods. As in the paper, each is measured five
//! times. It has user code alone; kernel code is here as well.

use anyhow::{Context as _, Result};
use clap::Parser;
use kernel_tests::accuracy::{Errors, Fractions, Setup, measure};
use kernel_tests::kernel::Kernel;
use kernel_tests::recording::record;
use kernel_tests::workload::Workload;
use serde_json::Value;

use crate::profile_file::hardware_profile;
use crate::results::{self, Results};

/// What to measure.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Kernel series.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Workloads by name: the paper's kernels, and virtual calls instead of its test40.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "latency,callchain,g4box,virtual"
    )]
    workload: Vec<String>,
    /// Seeds of the hardware profile's chance: a run of each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,5")]
    seed: Vec<u64>,
    #[command(flatten)]
    results: results::Options,
}

/// Hardware profile and options of perf record of the methods that sample addresses.
const SAMPLED: [(&str, &str, &str); 6] = [
    ("classic", "precise", "-e cpu/event=0xc0/ -c 10000"),
    ("precise", "precise", "-e cpu/event=0xc0/pp -c 10000"),
    ("precise-prime", "precise", "-e cpu/event=0xc0/pp -c 10007"),
    (
        "ip+1",
        "next-ip",
        "-b -e cpu/event=0xc4,umask=0x20,period=20011/ -e cpu/event=0xc0,period=10007/p",
    ),
    ("distributed", "pdir", "-e cpu/event=0xc0/ppp -c 10007"),
    (
        "ip+1-distributed",
        "next-ip-pdir",
        "-b -e cpu/event=0xc4,umask=0x20,period=20011/ -e cpu/event=0xc0,period=10007/p",
    ),
];

/// The hardware profile of the methods with branch stacks.
const WITH_STACKS: &str = "precise";

/// Methods in a row: those that sample addresses, then those of a run of this program.
const METHODS: usize = SAMPLED.len() + OWN.len();
/// What a run of this program serves.
const OWN: [&str; 3] = ["randomised", "lbr", "hybrid"];
/// Of all methods, that with branch stacks alone.
const LBR: usize = SAMPLED.len() + 1;

/// The rings whose code is compared.
const RINGS: [&str; 2] = ["user", "kernel"];

/// The error of each method, as a fraction; not a number where it has none.
type Row = [f64; METHODS];

/// Measures and prints, line by line as the runs end.
pub(crate) fn methods(args: &Args) -> Result<()> {
    let mut results = Results::begin(&args.results)?;
    let kernel = Kernel::get(&args.kernel)?;
    let titles = names().chain(["classic/lbr"]).map(|name| format!(" {name:>16}"));
    results.text(format_args!(
        "kernel {}: accuracy errors over blocks, in %, on a model of a processor; mean, least and most of {} runs\n\
         {:<10} {:<6} {:<5}{}",
        args.kernel,
        args.seed.len(),
        "workload",
        "ring",
        "",
        titles.collect::<String>()
    ));
    for name in &args.workload {
        let workload = Workload::named(name).with_context(|| format!("unknown workload `{name}`"))?;
        let mut runs: Vec<[Row; RINGS.len()]> = Vec::new();
        for seed in &args.seed {
            let run = rows(workload, &kernel, *seed)?;
            for (ring, row) in RINGS.into_iter().zip(run) {
                let errors: serde_json::Map<String, Value> =
                    names().map(str::to_owned).zip(row.map(Value::from)).collect();
                let what = format!("{ring}_block_error");
                results.figures(&serde_json::json!({
                    "kernel": args.kernel, "workload": name, "seed": seed, what: errors,
                }))?;
            }
            runs.push(run);
        }
        for (n, ring) in RINGS.into_iter().enumerate() {
            let of_methods = |fold: fn(&[f64]) -> f64| -> Row {
                std::array::from_fn(|method| {
                    fold(&runs.iter().map(|run| run[n][method]).collect::<Vec<f64>>())
                })
            };
            let mean = of_methods(|all| all.iter().sum::<f64>() / all.len() as f64);
            results.text(format_args!(
                "{} {:>16.1}",
                line(name, ring, "mean", &mean),
                mean[0] / mean[LBR]
            ));
            let least = of_methods(|all| all.iter().copied().reduce(f64::min).unwrap_or(f64::NAN));
            results.text(line("", "", "least", &least));
            let most = of_methods(|all| all.iter().copied().reduce(f64::max).unwrap_or(f64::NAN));
            results.text(line("", "", "most", &most));
        }
    }
    Ok(())
}

/// The methods in the order of a row.
fn names() -> impl Iterator<Item = &'static str> {
    SAMPLED.iter().map(|(name, ..)| *name).chain(OWN)
}

fn line(name: &str, ring: &str, what: &str, row: &Row) -> String {
    let errors = row.map(|error| format!(" {:>16.2}", 100.0 * error));
    format!("{name:<10} {ring:<6} {what:<5}{}", errors.concat())
}

/// The errors of one run of each method, by ring.
fn rows(workload: &Workload, kernel: &Kernel, seed: u64) -> Result<[Row; RINGS.len()]> {
    let profile = |name| anyhow::Ok(format!("{}\nseed = {seed}\n", hardware_profile(name)?));
    let mut rows = [[f64::NAN; METHODS]; RINGS.len()];
    for (n, (_, name, events)) in SAMPLED.iter().enumerate() {
        let recorded = record(workload, kernel, &profile(name)?, events)?.errors("balanced")?;
        for (ring, row) in RINGS.iter().zip(&mut rows) {
            row[n] = known(of(&recorded, ring)?.ebs);
        }
    }
    let measured = measure(workload, kernel, &Setup::new(profile(WITH_STACKS)?))?;
    for (ring, row) in RINGS.iter().zip(&mut rows) {
        let Fractions { hybrid, lbr, ebs } = of(&measured.rings, ring)?;
        let own = [ebs, lbr, hybrid].map(known);
        row[SAMPLED.len()..].copy_from_slice(&own);
    }
    Ok(rows)
}

fn known(error: Option<f64>) -> f64 {
    error.unwrap_or(f64::NAN)
}

fn of(errors: &Errors, ring: &str) -> Result<Fractions> {
    Ok(errors.named(ring)?.block_error)
}
