//! What a daemon takes from a guest in instructions, phase by phase, while the load goes from idle to storms and back.
//!
//! Guest time is a function of the instructions, one for each nanosecond, so a budget of CPU time is one of instructions. Each
//! phase is a span of the same work three times: alone, while both events run with periods that are never reached, and while
//! `hbbp-sys daemon` measures with its defaults. What the last has more than the second is the daemon: its threads, its
//! programs and the interrupts of its samples. What the second has more than the first is how the emulated PMU looks for
//! records, which no processor does.
//! These are results on a model of a processor.

use anyhow::{Context as _, Result, ensure};

use crate::cost::{self, Span};
use crate::kernel::Kernel;
use crate::workload::Workload;

/// A phase of the load.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// A script of the guest for a second of one CPU, or near it.
    second: &'static str,
}

/// From idle to storm and back.
pub const PHASES: [Phase; 5] = [
    Phase {
        name: "idle",
        second: "busybox sleep 1",
    },
    WORK,
    Phase {
        name: "storm of forks",
        second: "storms forks 600",
    },
    WORK,
    Phase {
        name: "idle",
        second: "busybox sleep 1",
    },
];

const WORK: Phase = Phase {
    name: "work",
    second: "heapsort 600000; storms syscalls 150000",
};

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
    /// What the daemon took, as a part of the time of the CPU.
    pub fn share(&self) -> f64 {
        (self.watched.instructions() as f64 - self.looking.instructions() as f64) / self.length as f64
    }
}

/// Runs [`PHASES`], each for `seconds` of work, on one CPU, beside a daemon with intervals of `interval` seconds, and returns
/// what each took.
///
/// # Errors
/// As [`cost::measure`], and when the daemon lost anything.
pub fn measure(kernel: &Kernel, hardware_profile: &str, seconds: u32, interval: u32) -> Result<Vec<Taken>> {
    let named = |name| Workload::named(name).with_context(|| format!("unknown workload `{name}`"));
    let mut machine = cost::machine(named("heapsort")?, kernel, hardware_profile)?;
    named("syscalls")?.install(&mut machine, kernel)?;
    let mut script = cost::SETTLE.to_owned();
    let mut phases = String::from("set -e\n");
    for (n, phase) in PHASES.iter().enumerate() {
        let work = format!("for i in $(busybox seq {seconds}); do {}; done", phase.second);
        machine.files().file(&format!("/opt/phase-{n}"), work.as_bytes());
        phases += &format!(
            "read begin rest < /proc/uptime\nguest-span busybox sh /opt/phase-{n}\nread end rest < /proc/uptime\n\
             echo $begin $end\n"
        );
    }
    machine.files().file("/opt/phases", phases.as_bytes());
    let (all, never) = ("busybox sh /opt/phases", cost::NEVER);
    // The daemon starts for some seconds of guest time: it reads the kernel's symbols and types.
    script += &format!(
        "\n{all}\n{pause}\nguest-witness returning 2 {never} {never} {all}\n{pause}\n\
         hbbp-sys daemon --dir /tmp/segments --interval {interval}s &\nbusybox sleep {settle}\n{all}\nkill %1\nwait %1\n\
         hbbp-sys report --format json --top 1 /tmp/segments > /out/report\n",
        pause = cost::PAUSE,
        settle = 2 * interval + 4,
    );
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", &script])?;
    let times = outcome.stdout()?;
    let said = outcome.text("stderr")?;
    ensure!(
        !said.contains("lost") && !said.contains("failed"),
        "the daemon lost something: {said}"
    );
    let spans = cost::read_spans(&outcome, &[0; 3 * PHASES.len()])?;
    let (alone, rest) = spans.split_at(PHASES.len());
    let (looking, watched) = rest.split_at(PHASES.len());
    // The first two rounds printed their times as well.
    let times = times.lines().skip(2 * PHASES.len());
    let all = PHASES.iter().zip(alone).zip(looking).zip(watched).zip(times);
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

/// Nanoseconds between two times of /proc/uptime.
fn length(line: &str) -> Option<u64> {
    let (begin, end) = line.split_once(' ')?;
    let hundredths = |time: &str| time.replace('.', "").parse::<u64>().ok();
    Some((hundredths(end)? - hundredths(begin)?) * 10_000_000)
}
