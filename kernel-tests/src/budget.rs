//! What a daemon takes from a guest in instructions, phase by phase, while the load goes from idle to storms and back.
//!
//! Guest time is a function of the instructions, one for each nanosecond, so a budget of CPU time is one of instructions. Each
//! phase is a span of the same work three times: alone, while both events run with periods that are never reached, and while
//! `hbbp-sys daemon` measures. What the last has more than the second is the daemon: its threads, its programs, the interrupts
//! of its samples, and the records of processes that the kernel writes for it. What the second has more than the first is how
//! the emulated PMU looks for records, which no processor does.
//! These are results on a model of a processor.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::accuracy::{self, DEFAULT_RULE, Errors, Setup};
use crate::artifacts;
use crate::cost::{self, Span};
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::workload::Workload;

/// A phase of the load.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// A script of the guest.
    pub script: String,
}

/// From idle to storm and back, each phase for a number of seconds of one CPU, or near it.
pub fn from_idle_to_storm(seconds: u32) -> Vec<Phase> {
    let idle = ("idle", "busybox sleep 1");
    let work = ("work", "heapsort 600000; storms syscalls 150000");
    let storm = ("storm", "storms forks 1500");
    let phase = |(name, second): (&'static str, &str)| Phase {
        name,
        script: format!("for i in $(busybox seq {seconds}); do {second}; done"),
    };
    [idle, work, storm, work, idle].map(phase).to_vec()
}

/// A storm of `n` processes, every other of which runs a program of its own.
pub fn storm(n: u32) -> Phase {
    Phase {
        name: "storm",
        script: format!("storms forks {}", n / 2),
    }
}

/// A phase in instructions.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Taken {
    /// The name of the phase.
    pub phase: &'static str,
    /// Without any tool.
    pub alone: Span,
    /// While the emulated PMU looks for records.
    pub looking: Span,
    /// While the daemon measures.
    pub watched: Span,
    /// Its length in ns, while the daemon measures.
    pub length: u64,
}

impl Taken {
    /// Instructions of the daemon and of the kernel for it.
    pub const fn instructions(&self) -> i64 {
        self.watched.instructions().cast_signed() - self.looking.instructions().cast_signed()
    }

    /// What the daemon took, as a part of the time of the CPU.
    pub fn share(&self) -> f64 {
        self.instructions() as f64 / self.length as f64
    }
}

/// Runs the phases on one CPU with a daemon with these options, from `settle` seconds after its start on, and returns
/// the cost of each.
///
/// # Errors
/// As [`cost::measure`], and when the daemon lost anything.
pub fn measure(
    kernel: &Kernel,
    hardware_profile: &str,
    phases: &[Phase],
    options: &str,
    settle: u32,
) -> Result<Vec<Taken>> {
    let named = |name| Workload::named(name).with_context(|| format!("unknown workload `{name}`"));
    let mut machine = cost::machine(named("heapsort")?, kernel, hardware_profile)?;
    named("syscalls")?.install(&mut machine, kernel)?;
    let mut script = String::from("set -e\n");
    for (n, phase) in phases.iter().enumerate() {
        let file = format!("/opt/phase-{n}");
        machine.files().file(&file, phase.script.as_bytes());
        script += &format!(
            "read begin rest < /proc/uptime\nguest-span busybox sh {file}\nread end rest < /proc/uptime\necho $begin $end\n"
        );
    }
    machine.files().file("/opt/phases", script.as_bytes());
    let (all, never, pause) = ("busybox sh /opt/phases", cost::NEVER, cost::PAUSE);
    // The daemon starts for a second of guest time: it reads the kernel's symbols and types.
    let script = format!(
        "{}\n{all}\n{pause}\nguest-witness returning 2 {never} {never} {all}\n{pause}\n\
         hbbp-sys daemon --dir /tmp/segments {options} &\nbusybox sleep {settle}\n{all}\nkill %1\nwait %1\n",
        cost::SETTLE
    );
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", &script])?;
    let times = outcome.stdout()?;
    let said = outcome.text("stderr")?;
    ensure!(
        !said.contains("lost") && !said.contains("failed"),
        "the daemon lost something: {said}"
    );
    let spans = cost::read_spans(&outcome, &vec![0; 3 * phases.len()])?;
    let (alone, rest) = spans.split_at(phases.len());
    let (looking, watched) = rest.split_at(phases.len());
    // The first two rounds printed their times as well.
    let times = times.lines().skip(2 * phases.len());
    let all = phases.iter().zip(alone).zip(looking).zip(watched).zip(times);
    all.map(|((((phase, alone), looking), watched), times)| {
        Ok(Taken {
            phase: phase.name,
            alone: *alone,
            looking: *looking,
            watched: *watched,
            length: length(times).with_context(|| format!("the guest's times are malformed: {times}"))?,
        })
    })
    .collect()
}

/// Runs the phases on one CPU while a daemon with these options measures. Returns the errors of its merged segments, over the
/// time in which it sampled.
///
/// # Errors
/// When the guest does not end well, or the comparison fails.
pub fn errors(kernel: &Kernel, hardware_profile: &str, phases: &[Phase], options: &str) -> Result<Errors> {
    let mut machine = Setup::new(hardware_profile.to_owned()).prepare(Machine::new(kernel));
    machine.files().hbbp_sys()?;
    for name in ["heapsort", "syscalls"] {
        let workload = Workload::named(name).with_context(|| format!("unknown workload `{name}`"))?;
        workload.install(&mut machine, kernel)?;
    }
    let scripts: Vec<&str> = phases.iter().map(|phase| phase.script.as_str()).collect();
    let script = format!(
        "set -e\nhbbp-sys daemon --dir /tmp/segments {options} &\nbusybox sleep 2\n{}\nkill %1\nwait %1\n\
         hbbp-sys merge -o /out/profile /tmp/segments\n",
        scripts.join("\n")
    );
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", &script])?;
    ensure!(
        outcome.exit_code == 0,
        "the guest failed: {}",
        outcome.text("stderr")?
    );
    let [profile, reference] = ["profile", "reference"].map(|name| outcome.directory().join(name));
    fs::write(
        &profile,
        outcome.files.get("profile").context("no merged profile")?,
    )?;
    let program = artifacts::hbbp_sys()?;
    accuracy::errors(&program, &reference, &profile, "ring", DEFAULT_RULE)
}

/// Nanoseconds between two times of /proc/uptime.
fn length(line: &str) -> Option<u64> {
    let (begin, end) = line.split_once(' ')?;
    let hundredths = |time: &str| time.replace('.', "").parse::<u64>().ok();
    Some((hundredths(end)? - hundredths(begin)?) * 10_000_000)
}
