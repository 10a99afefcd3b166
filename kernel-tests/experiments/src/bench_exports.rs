//! What exports cost: a profile of a minute of the whole machine in each format, with its time, memory and size.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::results::Results;

/// Formats of the whole profile. Those of one image need branch stacks, which this machine may not have.
const FORMATS: [&str; 9] = [
    "collapsed",
    "callgrind",
    "pprof",
    "firefox",
    "parquet",
    "arrow",
    "blocks",
    "mca",
    "counts",
];

/// Exports a profile of 60 s to files in `folder`.
pub(crate) fn measure(results: &mut Results, program: &Path, profile: &Path, folder: &Path) -> Result<()> {
    results.text(format_args!(
        "\nexports of this profile of {:.1} MB:\n{:>10} {:>8} {:>10} {:>10}",
        megabytes(profile)?,
        "format",
        "time",
        "memory",
        "size"
    ));
    for format in FORMATS {
        let output = folder.join(format!("minute.{format}"));
        let file =
            fs::File::create(&output).with_context(|| format!("failed to make {}", output.display()))?;
        let mut export = Command::new(program);
        export.args(["export", "--format", format]).arg(profile);
        export.stdout(file).stderr(Stdio::null());
        let begun = Instant::now();
        let child = export
            .spawn()
            .with_context(|| format!("failed to start {export:?}"))?;
        let memory = peak_memory(child).with_context(|| format!("failed to run {export:?}"))?;
        let (seconds, mib, megabytes) = (
            begun.elapsed().as_secs_f64(),
            memory / 1024.0,
            megabytes(&output)?,
        );
        results.text(format_args!(
            "{format:>10} {seconds:>6.2} s {mib:>6.0} MiB {megabytes:>7.2} MB"
        ));
        results.figures(&serde_json::json!({
            "export": format, "seconds": seconds, "memory_mib": mib, "size_mb": megabytes,
        }))?;
    }
    Ok(())
}

fn megabytes(path: &Path) -> Result<f64> {
    let metadata = fs::metadata(path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(metadata.len() as f64 / 1e6)
}

/// Waits for a program, and returns the most memory that it was seen to have, in KiB.
fn peak_memory(mut child: Child) -> Result<f64> {
    const BETWEEN: Duration = Duration::from_millis(2);

    let path = format!("/proc/{}/status", child.id());
    let mut most = 0.0_f64;
    loop {
        let status = fs::read_to_string(&path).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|line| line.split_whitespace().next()?.parse().ok());
        most = most.max(kib.unwrap_or(0.0));
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "{status}");
            return Ok(most);
        }
        thread::sleep(BETWEEN);
    }
}
