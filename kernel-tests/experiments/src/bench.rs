//! `cargo xtask bench`: what hbbp-sys costs on this machine.
//!
//! It measures the instructions of stacks and processes, reports of hostile profiles of rising size, and of very many
//! streams. Then come a run of ten seconds under load, and the time of reports and exports.
//!
//! All but the first are times, which depend on what else the machine does: they are printed and not asserted.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use kernel_tests::{artifacts, host};
use serde_json::Value;

use crate::results::Results;
use crate::{bench_exports, guards};

/// Runs, of which each is printed: a host that takes a processor away from its virtual machine has that time charged to
/// the running program, so the cheapest is nearest to the truth.
const RUNS: u32 = 3;

/// A program that works until it is dropped.
struct Load(Child);

impl Load {
    fn shell(script: &str) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self(
            shell
                .spawn()
                .with_context(|| format!("failed to start {shell:?}"))?,
        ))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A finished run: the time that it took and its CPU time, in seconds, and its report.
struct Cost {
    wall: f64,
    cpu: f64,
    report: Value,
}

/// What to print.
#[derive(Debug, Parser)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    guards: guards::Args,
}

/// Measures the program, which xtask has built.
pub(crate) fn bench(args: &BenchArgs) -> Result<()> {
    let mut results = Results::begin(&args.guards.results)?;
    guards::guards(&args.guards, &mut results)?;
    for (package, bench) in [
        ("hbbp-sys", "slopes"),
        ("hbbp-sys", "distinct_streams"),
        ("hbbp-analysis", "stages"),
        ("hbbp-decode", "speed"),
    ] {
        let mut cargo = artifacts::cargo();
        cargo.args(["bench", "--package", package, "--bench", bench]);
        if results.is_json() {
            // These print tables.
            cargo.stdout(io::stderr());
        }
        let status = cargo.status()?;
        ensure!(status.success(), "{cargo:?} failed");
    }
    // The folder of a process belongs to its effective user.
    let process = fs::metadata("/proc/self").context("failed to read /proc/self")?;
    ensure!(
        process.uid() == 0,
        "measuring the whole system needs root: run as root or with sudo"
    );
    let folder = host::workspace().join("target/bench");
    fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;
    let source = folder.join("load.c");
    fs::write(&source, functions()).with_context(|| format!("failed to write {}", source.display()))?;
    let source = source.display();
    let _loads = [
        Load::shell("exec dd if=/dev/urandom of=/dev/null bs=4k")?,
        Load::shell(&format!("while :; do cc -O2 -c {source} -o {source}.o; done"))?,
    ];
    let program = host::workspace().join("target/release/hbbp-sys");
    runs(&mut results, &program)?;
    let minute = folder.join("minute.hbbp");
    reports(&mut results, &program, &minute)?;
    bench_exports::measure(&mut results, &program, &minute, &folder)
}

/// Measures some seconds of the loads, run by run.
fn runs(results: &mut Results, program: &Path) -> Result<()> {
    results.text(format_args!(
        "10 s under a compiler and dd; shares are of all CPUs together:\n{:>4} {:>14} {:>18} {:>18} {:>10}",
        "run", "report after", "CPU until report", "CPU of the whole", "memory"
    ));
    for run in 1..=RUNS {
        let Cost { wall, cpu, report } = measure(program)?;
        let field = |name: &str| {
            let value = report.pointer(&format!("/run/{name}")).and_then(Value::as_f64);
            value.with_context(|| format!("the report has no run.{name}"))
        };
        let seconds = |name: &str| field(name).map(|ns| ns / 1e9);
        let (duration, cpus) = (seconds("duration")?, field("n_cpus")?);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let report_after = now.as_secs_f64() - seconds("started")? - duration;
        let until_report = seconds("own_cpu")? / (duration * cpus);
        let of_the_whole = cpu / (wall * cpus);
        let mib = field("own_memory")? / f64::from(1 << 20);
        results.text(format_args!(
            "{run:>4} {report_after:>12.2} s {:>16.2} % {:>16.2} % {mib:>6.0} MiB",
            100.0 * until_report,
            100.0 * of_the_whole,
        ));
        results.figures(&serde_json::json!({
            "run": run, "report_after_seconds": report_after, "cpu_until_report": until_report,
            "cpu_of_the_whole": of_the_whole, "memory_mib": mib,
        }))?;
    }
    Ok(())
}

/// Reports of a profile of a minute: pivots, from the simplest to one with a row for each block of each process, and
/// annotated code.
const REPORTS: [&[&str]; 7] = [
    &["report", "--rows", "mnemonic"],
    &[
        "report",
        "--rows",
        "module,function",
        "--cols",
        "packing",
        "--values",
        "executions,share,samples,bytes,blocks",
    ],
    &["report", "--rows", "process,block,form"],
    &[
        "report",
        "--rows",
        "function",
        "--cols",
        "long-latency",
        "--filter",
        "extension=AVX*",
    ],
    &["report", "--view", "mitigations"],
    &["annotate", "--hottest", "1", "--no-pager"],
    &["annotate", "--hottest", "20", "--no-pager"],
];

/// Records a profile of 60 s under the same load, and prints the time that reports of it take.
fn reports(results: &mut Results, program: &Path, profile: &Path) -> Result<()> {
    let mut record = Command::new(program);
    record.args(["record", "--duration", "60", "-o"]).arg(profile);
    ensure!(record.status()?.success(), "failed to record a minute");
    results.text("\nreports of a profile of 60 s under the same load:");
    for words in REPORTS {
        let mut report = Command::new(program);
        report.args(words).arg(profile).stdout(Stdio::null());
        let began = Instant::now();
        ensure!(report.status()?.success(), "{report:?} failed");
        let (seconds, words) = (began.elapsed().as_secs_f64(), words.join(" "));
        results.text(format_args!("{seconds:>8.2} s  {words}"));
        results.figures(&serde_json::json!({"report": words, "seconds": seconds}))?;
    }
    Ok(())
}

fn measure(program: &Path) -> Result<Cost> {
    let (began, before) = (Instant::now(), children_cpu()?);
    let mut hbbp = Command::new(program);
    hbbp.args(["--duration", "10", "--top", "all", "--format", "json"]);
    let output = hbbp
        .output()
        .with_context(|| format!("failed to start {hbbp:?}"))?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(Cost {
        wall: began.elapsed().as_secs_f64(),
        cpu: children_cpu()? - before,
        report: serde_json::from_slice(&output.stdout).context("the report is not JSON")?,
    })
}

/// CPU time in seconds of the children that have been waited for: the loads are not among them (proc_pid_stat(5), fields 16
/// and 17, in hundredths of a second on x86-64).
fn children_cpu() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("failed to read /proc/self/stat")?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |number: usize| -> Result<f64> {
        let field = after_name.split_whitespace().nth(number - 3);
        Ok(field.context("/proc/self/stat is short")?.parse()?)
    };
    Ok((field(16)? + field(17)?) / 100.0)
}

/// Some hundred functions for the compiler.
fn functions() -> String {
    let function = |n| {
        format!(
            "int f{n}(int a, int b) {{ int s = {n}; for (int i = 0; i < b; i++) s += a * i % (b + 1); return s; }}\n"
        )
    };
    (0..400).map(function).collect()
}
