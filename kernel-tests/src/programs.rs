//! What the program on branch stacks takes for one of them, as the kernel measures it (`kernel.bpf_stats_enabled`).
//!
//! The guest's clock counts instructions, and so does the kernel's measure of a program, to which it adds the reading
//! of the clock itself. What the perf core and the emulated PMU add is not in it, nor what the kernel does with freed
//! pages: a change of the program alone shows, however small it is compared with those.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use crate::cost::{NEVER, SETTLE, machine};
use crate::kernel::Kernel;
use crate::workload::Workload;

/// `bpf_prog_type` of programs on perf events (include/uapi/linux/bpf.h).
const PERF_EVENT: u64 = 7;

/// Taken branches from stack to stack.
const PERIOD: u64 = 1_009;

/// What a program did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Runs {
    /// Number of its runs.
    pub n: u64,
    /// Instructions for each run, the reading of the clock included.
    pub each: f64,
}

/// Measures the program while a workload runs.
///
/// # Errors
/// When something does not build, the guest does not end well, or the kernel measured nothing.
pub fn measure(workload: &Workload, kernel: &Kernel, hardware_profile: &str) -> Result<Runs> {
    let mut machine = machine(workload, kernel, hardware_profile)?;
    let [.., command] = workload.words();
    // Descriptors of files come and go while they are listed; those of the programs stay.
    let watched =
        format!("{{ {command}; }} > /dev/null; busybox cat /proc/$PPID/fdinfo/* > /out/fdinfo; true");
    machine.files().file("/opt/watched", watched.as_bytes());
    let script = format!(
        "{SETTLE}\necho 1 > /proc/sys/kernel/bpf_stats_enabled\n\
         hbbp-sys record -o /tmp/profile --all --duration 1h --period {NEVER} --branch-period {PERIOD} -- busybox sh /opt/watched\n"
    );
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", &script])?;
    outcome.stdout()?;
    most_run(&outcome.text("fdinfo")?).context("the kernel measured no program on perf events")
}

/// The program on perf events with the most runs: that on instructions never has.
fn most_run(fdinfo: &str) -> Option<Runs> {
    let (mut kind, mut id, mut time, mut all) = (0, 0, 0, BTreeMap::new());
    for line in fdinfo.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let Ok(number) = value.trim().parse::<u64>() else {
            continue;
        };
        match key {
            "prog_type" => kind = number,
            "prog_id" => id = number,
            "run_time_ns" => time = number,
            "run_cnt" if kind == PERF_EVENT => {
                all.insert(id, (number, time));
            }
            _ => {}
        }
    }
    let (n, time) = all.into_values().max()?;
    (0 < n).then(|| Runs {
        n,
        each: time as f64 / n as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_frequently_started_program_is_found() {
        let of = |kind, id, time, n| {
            format!(
                "pos:\t0\nflags:\t02\nprog_type:\t{kind}\nprog_tag:\t00ff\nprog_id:\t{id}\nrun_time_ns:\t{time}\nrun_cnt:\t{n}\n"
            )
        };
        let text = [
            of(7, 1, 0, 0),
            of(7, 2, 7_000, 10),
            of(17, 3, 9_000, 90),
            of(7, 2, 7_000, 10),
        ]
        .concat();
        assert_eq!(most_run(&text), Some(Runs { n: 10, each: 700.0 }));
        assert_eq!(most_run(&of(7, 1, 0, 0)), None);
        assert_eq!(most_run(""), None);
    }
}
