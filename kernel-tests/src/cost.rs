//! The cost of a branch stack in instructions of kernel and user code, for `hbbp-sys` and for `perf record -b -a`.
//!
//! One guest runs a workload repeatedly, once for each tool and period, each run in its own span. Guest time is a
//! function of the instructions. The emulated PMU counts all instructions of a span, including interrupts and eBPF
//! programs, and the driver counts the stacks. Both tools make a complete recording: they start, sample, drain, and
//! save a file. The cost of one stack is the slope of instructions over stacks. It excludes the workload and the start
//! and end of the tool, except for parts that grow with the number of stacks.
//!
//! The slope includes the loop in which the emulated PMU delivers its records, as the interrupt handler of a real PMU
//! would. That part is measured with a program that returns at once ([`Tool::Returning`]), and is reported with the
//! costs; it is not subtracted. These are results on a model of a processor.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::artifacts;
use crate::kernel::Kernel;
use crate::machine::{Clock, Machine, Marks};
use crate::outcome::Outcome;
use crate::workload::{Source, Workload};

/// Where `guest-span` leaves the records of each span.
pub const SPANS: &str = "/out/spans";
/// The workload, as a script of the guest.
const SCRIPT: &str = "/opt/workload";
/// Start of every script. The kernel tests its ciphers for 400 million instructions after it has started its first
/// program; idle time costs nothing here. Each ten seconds it looks for memory to join to huge pages (mm/khugepaged.c), which
/// takes ten million instructions of one span or the other.
pub(crate) const SETTLE: &str = "set -e\necho 4294967295 > /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs\nbusybox sleep 20";
/// The rounds of work, likewise.
const ROUNDS: &str = "/opt/rounds";
/// The pause between two spans: the kernel frees maps and events of the last one asynchronously.
pub(crate) const PAUSE: &str = "busybox sleep 2";
/// A period of instructions that no run here reaches: the samples are branch stacks, and nothing else.
pub(crate) const NEVER: &str = "1000000000039";

/// What is asked of perf: the taken branches that `hbbp-sys` samples, with their stacks.
const PERF: &str = "-q -b -a -e cpu/event=0xc4,umask=0x20/pp -o /tmp/perf.data";

/// Code whose stacks hold streams that differ, as most programs have.
pub const FLAT: [&str; 3] = ["heapsort", "gcc", "syscalls"];
/// Code whose stacks hold the same few streams again and again.
pub const LOOPS: [&str; 3] = ["latency", "callchain", "virtual"];
/// Taken branches from stack to stack: 2500 stacks of each workload at the least.
pub const PERIODS: [u64; 3] = [503, 1_009, 2_003];

/// Who takes the stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// An eBPF program that returns at once: what the machine itself needs.
    Returning,
    /// `hbbp-sys record --all`.
    HbbpSys,
    /// `perf record -b -a`, with its defaults.
    Perf,
    /// The same without its look for build ids at the end (`-B -N`): what it cannot do without.
    BarePerf,
}

impl Tool {
    /// All, in the order of the columns.
    pub const ALL: [Self; 4] = [Self::Returning, Self::HbbpSys, Self::Perf, Self::BarePerf];

    /// The words before the command that it watches.
    fn words(self, period: u64) -> String {
        match self {
            Self::Returning => format!("guest-witness returning 2 0 {period}"),
            Self::HbbpSys => format!(
                "hbbp-sys record -o /tmp/profile --all --duration 1h --period {NEVER} --branch-period {period} --"
            ),
            Self::Perf => format!("perf record {PERF} -c {period} --"),
            Self::BarePerf => format!("perf record -B -N {PERF} -c {period} --"),
        }
    }
}

/// One span.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Span {
    /// Taken branches from stack to stack; 0 without a tool.
    pub period: u64,
    /// Stacks that the PMU delivered.
    pub stacks: u64,
    /// Instructions of user code.
    pub user: u64,
    /// Instructions of the kernel.
    pub kernel: u64,
}

impl Span {
    /// All instructions.
    pub const fn instructions(&self) -> u64 {
        self.user + self.kernel
    }
}

/// What a workload cost under each tool.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Without any.
    pub alone: Span,
    /// Each tool with one span for each period.
    pub tools: Vec<(Tool, Vec<Span>)>,
}

impl Costs {
    /// Instructions for each stack, with what the machine itself needs.
    pub fn per_stack(&self, tool: Tool) -> f64 {
        let found = self.tools.iter().find(|(other, _)| *other == tool);
        found.map_or(0.0, |(_, spans)| slope(spans))
    }

    /// The cost of `hbbp-sys` as a multiple of perf's, with what the machine itself needs in both.
    pub fn ratio(&self) -> f64 {
        self.per_stack(Tool::HbbpSys) / self.per_stack(Tool::Perf)
    }

    /// The same without what the machine itself needs.
    pub fn own_ratio(&self) -> f64 {
        let machine = self.per_stack(Tool::Returning);
        (self.per_stack(Tool::HbbpSys) - machine) / (self.per_stack(Tool::Perf) - machine)
    }
}

/// The slope of instructions over stacks, by least squares.
pub fn slope(spans: &[Span]) -> f64 {
    let n = spans.len().max(1) as f64;
    let mean = |of: fn(&Span) -> u64| spans.iter().map(|span| of(span) as f64).sum::<f64>() / n;
    let (stacks, instructions) = (mean(|span| span.stacks), mean(Span::instructions));
    let (mut up, mut down) = (0.0, 0.0);
    for span in spans {
        let x = span.stacks as f64 - stacks;
        up += x * (span.instructions() as f64 - instructions);
        down += x * x;
    }
    up / down
}

/// Runs a workload under each of the tools, with every period, on a machine whose chance begins with `seed`.
///
/// # Errors
/// When something does not build, is not installed, or fails in the guest, and when perf lost samples.
pub fn measure(
    workload: &Workload,
    kernel: &Kernel,
    hardware_profile: &str,
    periods: &[u64],
    tools: &[Tool],
    seed: u32,
) -> Result<Costs> {
    let mut machine = machine(workload, kernel, hardware_profile)?.seed(seed);
    if tools.contains(&Tool::Perf) || tools.contains(&Tool::BarePerf) {
        machine.files().program(Path::new("/usr/bin/perf"))?;
    }
    // A first run of each is not counted: it fills the guest's caches of files, and perf's of build ids.
    let run = format!("busybox sh {SCRIPT}");
    let clean = format!("busybox rm -f /tmp/profile /tmp/perf.data\n{PAUSE}\n");
    let mut script = format!("{SETTLE}\n{run} > /dev/null\n{PAUSE}\nguest-span {run}\n{PAUSE}\n");
    for tool in tools {
        let [first, ..] = periods else { bail!("no periods") };
        script += &format!("{} {run} > /dev/null\n{clean}", tool.words(*first));
        for period in periods {
            script += &format!("guest-span {} {run}\n{clean}", tool.words(*period));
        }
    }
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", &script])?;
    outcome.stdout()?;
    let said = outcome.text("stderr")?;
    ensure!(!said.contains("lost"), "a tool lost samples: {said}");
    let all = [&[0], periods.repeat(tools.len()).as_slice()].concat();
    let spans = read_spans(&outcome, &all)?;
    let (alone, rest) = spans.split_first().context("no span was measured")?;
    let spans = rest.chunks(periods.len()).map(<[Span]>::to_vec);
    Ok(Costs {
        alone: *alone,
        tools: tools.iter().copied().zip(spans).collect(),
    })
}

/// What `hbbp-sys` adds at the paper's periods for runs of seconds, which are its defaults.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Overhead {
    /// The work, without the tool.
    pub alone: Span,
    /// The same work while both events run with periods that are never reached: the emulated PMU looks for records every
    /// 500 us by a timer, where a processor raises an interrupt by itself.
    pub looking: Span,
    /// The same work while the tool samples.
    pub watched: Span,
    /// The same work while the tool samples cycles as well, at their default period (`record --time`).
    pub with_time: Span,
    /// The same work while the tool samples time with call chains (`record --callers`): by the clock at its default period, as
    /// the emulated PMU has no chains for its records.
    pub with_callers: Span,
    /// The same at a fifth of that period, so that what a sample costs is known without what differs from run to run.
    pub with_more_callers: Span,
    /// A whole recording of a command that does nothing: start and end of the tool.
    pub ends: Span,
}

impl Overhead {
    /// The part of all instructions executed while the tool samples that the tool and the kernel for it add, as a fraction.
    pub fn fraction(&self) -> f64 {
        let watched = self.watched.instructions() as f64;
        (watched - self.looking.instructions() as f64) / watched
    }

    /// What the third event adds to the instructions executed while the tool samples without it, as a fraction; what the
    /// emulated PMU needs to deliver its samples is in it.
    pub fn of_time(&self) -> f64 {
        let watched = self.watched.instructions() as f64;
        (self.with_time.instructions() as f64 - watched) / watched
    }

    /// Instructions for each sample of time with its call chain, by the slope over two periods.
    pub fn of_chain(&self) -> f64 {
        let (few, many) = (
            self.with_callers.instructions() as f64,
            self.with_more_callers.instructions() as f64,
        );
        // The clock of the guest counts instructions.
        (many - few) / (many / MORE_CALLERS as f64 - few / CALLERS as f64)
    }

    /// What samples of time with call chains add at their default period, as a fraction.
    pub fn of_callers(&self) -> f64 {
        self.of_chain() / CALLERS as f64
    }

    /// What both events add with what the emulated PMU adds by looking for records.
    pub fn with_looking(&self) -> f64 {
        let watched = self.watched.instructions() as f64;
        (watched - self.alone.instructions() as f64) / watched
    }
}

/// The default period of time in ns or cycles, and a fifth of it.
const CALLERS: u64 = 3_000_017;
const MORE_CALLERS: u64 = 600_011;

/// Sorting and system calls in turn, 330 million instructions in each round.
const ROUND: &str = "heapsort 200000; storms syscalls 50000";

/// Measures the overhead of both events, and that of additional cycles, at their default periods over `rounds` rounds
/// of work.
///
/// # Errors
/// As [`measure`].
pub fn overhead(kernel: &Kernel, hardware_profile: &str, rounds: u32, boot: &str) -> Result<Overhead> {
    let named = |name| Workload::named(name).with_context(|| format!("unknown workload `{name}`"));
    let mut machine = machine(named("heapsort")?, kernel, hardware_profile)?.kernel_parameters(boot);
    named("syscalls")?.install(&mut machine, kernel)?;
    let work = format!("for i in $(busybox seq {rounds}); do {ROUND}; done > /dev/null");
    machine.files().file(ROUNDS, work.as_bytes());
    let record = "hbbp-sys record -o /tmp/profile --all --duration 30s";
    // First runs are not counted, as in `measure`.
    let script = format!(
        "{SETTLE}\n{record} --callers -- busybox sh {SCRIPT} > /dev/null\n{PAUSE}\n{record} --time -- busybox sh {SCRIPT} > /dev/null\n{PAUSE}\nguest-span busybox sh {ROUNDS}\n{PAUSE}\n\
         guest-witness returning 2 {NEVER} {NEVER} guest-span busybox sh {ROUNDS}\n{PAUSE}\n\
         {record} -- guest-span busybox sh {ROUNDS}\n{PAUSE}\n{record} --time -- guest-span busybox sh {ROUNDS}\n{PAUSE}\n\
         {record} --callers -- guest-span busybox sh {ROUNDS}\n{PAUSE}\n\
         {record} --callers --time={MORE_CALLERS} -- guest-span busybox sh {ROUNDS}\n{PAUSE}\n\
         guest-span {record} -- busybox true\n"
    );
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", &script])?;
    outcome.stdout()?;
    let spans = read_spans(&outcome, &[0; 7])?;
    let [
        alone,
        looking,
        watched,
        with_time,
        with_callers,
        with_more_callers,
        ends,
    ] = spans[..]
    else {
        bail!("{} spans of 7", spans.len())
    };
    Ok(Overhead {
        alone,
        looking,
        watched,
        with_time,
        with_callers,
        with_more_callers,
        ends,
    })
}

/// A machine for one workload, whose spans are marked by `guest-span`.
pub(crate) fn machine(workload: &Workload, kernel: &Kernel, hardware_profile: &str) -> Result<Machine> {
    let mut machine = Machine::new(kernel)
        .clock(Clock::Instructions)
        .marks(Marks::Program)
        .hardware_profile(hardware_profile)
        .limit(Duration::from_secs(3 * 3600));
    workload.install(&mut machine, kernel)?;
    if let Source::Host(_) = workload.source {
        machine.files().directory("opt");
    }
    let [.., command] = workload.words();
    machine.files().file(SCRIPT, command.as_bytes());
    machine.files().hbbp_sys()?;
    for name in ["guest-span", "guest-witness"] {
        let program = artifacts::guest_program(name)?;
        machine.files().copy(&format!("bin/{name}"), &program)?;
    }
    Ok(machine)
}

/// The spans of a run, with the period that each was taken at.
pub(crate) fn read_spans(outcome: &Outcome, periods: &[u64]) -> Result<Vec<Span>> {
    let stacks = outcome.text("spans")?;
    let stacks: Vec<u64> = stacks
        .lines()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .context("the guest's list of spans is malformed")?;
    ensure!(
        stacks.len() == periods.len(),
        "{} spans of {}",
        stacks.len(),
        periods.len()
    );
    let spans = periods.iter().zip(&stacks).zip(0..);
    spans
        .map(|((period, stacks), n)| {
            let [user, kernel] = outcome.reference_of(n)?.instructions;
            Ok(Span {
                period: *period,
                stacks: *stacks,
                user,
                kernel,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slope_ignores_constants() {
        let span = |stacks, user| Span {
            period: 1,
            stacks,
            user,
            kernel: 7,
        };
        let spans = [span(10, 1_000), span(20, 31_000), span(40, 91_000)];
        assert!((slope(&spans) - 3_000.0).abs() < 1e-6);
    }
}
