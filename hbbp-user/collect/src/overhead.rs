//! What the tool itself costs: CPU time and memory of its user side, and CPU time of the sampling and of the records of
//! processes.

use super::bpf::ProgramRuns;
use hbbp_model::record::{Record, Timed};
use hbbp_model::snapshot::run::RunTime;

/// Run time of a program that the kernel does not measure, in ns: without branch stacks it takes some 600 instructions, with
/// one some 1800 (`cargo xtask vm cost`), many of them on data that is in no cache any more.
const SAMPLE: u64 = 1_000;
const STACK_SAMPLE: u64 = 2_500;

/// What the interrupt of a sample costs in addition to the program, in ns: entry and exit, the kernel's own part of a
/// sample, and with a branch stack the registers that hold it, two or three for each of 32 entries.
const INTERRUPT: u64 = 1_500;
const STACK_INTERRUPT: u64 = 3_500;

/// What the kernel takes to write a record, in ns. The record of a mapping takes some 7000 instructions, most of them for the
/// path and the build id of its file. Others take some 2000 (`cargo xtask vm cost --daemon`, Linux 6.12).
const MAPPING_RECORD: u64 = 3_000;
const TASK_RECORD: u64 = 800;

/// What it takes to read and keep one, in ns: 6 us for the records of a process, from fork to exit.
pub const READ_RECORD: u64 = 1_000;

/// The runs of the program of an event so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Runs {
    /// Whether its samples carry branch stacks.
    pub has_stack: bool,
    /// All runs.
    pub samples: u64,
    /// Those that the kernel measured.
    pub measured: ProgramRuns,
}

/// CPU time in ns of the samples between two readings, programs and interrupts, and where that of the programs comes from.
pub fn sampling_time(before: &[Runs], after: &[Runs]) -> (u64, RunTime) {
    let mut time = 0_u64;
    let mut source = RunTime::Measured;
    for (n, after) in after.iter().enumerate() {
        let before = before.get(n).copied().unwrap_or_default();
        let samples = after.samples.saturating_sub(before.samples);
        let n_measured = after.measured.n.saturating_sub(before.measured.n);
        let measured = after.measured.time.saturating_sub(before.measured.time);
        let (program, interrupt) = if after.has_stack {
            (STACK_SAMPLE, STACK_INTERRUPT)
        } else {
            (SAMPLE, INTERRUPT)
        };
        let program = match measured.checked_div(n_measured) {
            Some(mean) => mean,
            None => {
                if 0 < samples {
                    source = RunTime::Estimated;
                }
                program
            }
        };
        time = time.saturating_add(samples.saturating_mul(program + interrupt));
    }
    (time, source)
}

/// CPU time in ns that the kernel took to write these records, and their number.
pub fn record_time(records: &[Timed]) -> (u64, u64) {
    let of = |timed: &Timed| match timed.record {
        Record::Mmap(_) => (MAPPING_RECORD, 1),
        Record::Lost(n) => (n.saturating_mul(TASK_RECORD), n),
        _ => (TASK_RECORD, 1),
    };
    let add =
        |(time, n): (u64, u64), (more, one): (u64, u64)| (time.saturating_add(more), n.saturating_add(one));
    records.iter().map(of).fold((0, 0), add)
}

/// CPU time of this process so far in ns, user and system.
pub fn read_own_cpu() -> u64 {
    // SAFETY: rusage is plain numbers, and all zeroes is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is valid for writing.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return 0;
    }
    let ns = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_usec).unwrap_or(0) * 1000
    };
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// Peak resident memory of this process in bytes.
pub fn read_own_memory() -> u64 {
    let status = procfs::process::Process::myself().and_then(|process| process.status());
    status
        .ok()
        .and_then(|status| status.vmhwm)
        .map_or(0, |kilobytes| kilobytes * 1024)
}

/// Begins a new peak, where the kernel lets a process do that.
pub fn reset_own_memory() {
    // Where it does not, the peak is that since the start.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs are measured where the kernel does and estimated elsewhere.
    #[test]
    fn program_time_is_estimated_unless_the_kernel_measures_it() {
        let runs = |samples, n, time| Runs {
            has_stack: false,
            samples,
            measured: ProgramRuns { n, time },
        };
        let before = [runs(100, 0, 0)];
        let estimated = (10 * (SAMPLE + INTERRUPT), RunTime::Estimated);
        assert_eq!(sampling_time(&before, &[runs(110, 0, 0)]), estimated);
        // Measured from the middle on: the mean holds for all.
        let measured = (10 * (400 + INTERRUPT), RunTime::Measured);
        assert_eq!(sampling_time(&before, &[runs(110, 5, 2_000)]), measured);
        let stack = Runs {
            has_stack: true,
            ..runs(1, 0, 0)
        };
        let (time, _) = sampling_time(&[], &[stack]);
        assert_eq!(time, STACK_SAMPLE + STACK_INTERRUPT);
        assert_eq!(sampling_time(&before, &before), (0, RunTime::Measured));
    }
}
