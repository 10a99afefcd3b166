//! The debug trace: every branch and every sample of the marked spans, in files on the host.
//!
//! Read by `kernel_tests::trace`, which documents the format.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use kernel_tests::layout::{Branch, MAX_CPUS, Record};
use kernel_tests::trace;

use crate::cpu::{Cpu, HISTORY};

/// What is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traced {
    /// No files.
    Nothing,
    /// Each branch stack that was written into a ring.
    Stacks,
    /// Each branch and each sample; every block takes the careful path.
    Branches,
}

/// The files of one run; none when the trace is off.
#[derive(Default)]
pub(crate) struct Trace {
    branches: Vec<BufWriter<File>>,
    samples: Vec<BufWriter<File>>,
    stacks: Vec<BufWriter<File>>,
    /// CPUs that are in a marked span, or whose span is frozen with the counters.
    open: [bool; MAX_CPUS],
}

impl Trace {
    /// Opens the files of each CPU.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub(crate) fn open(directory: &Path, traced: Traced) -> std::io::Result<Self> {
        let mut opened = Self::default();
        let file = |name: String| File::create(directory.join(name)).map(BufWriter::new);
        for cpu in 0..MAX_CPUS {
            match traced {
                Traced::Nothing => {}
                Traced::Stacks => opened.stacks.push(file(trace::stack_file(cpu))?),
                Traced::Branches => {
                    opened.branches.push(file(trace::branch_file(cpu))?);
                    opened.samples.push(file(trace::sample_file(cpu))?);
                }
            }
        }
        Ok(opened)
    }

    /// A branch was taken; `cpu` has already recorded it, unless it is frozen.
    pub(crate) fn branch(&mut self, cpu_idx: usize, cpu: &Cpu, branch: Branch) {
        let Some(file) = self.branches.get_mut(cpu_idx) else {
            return;
        };
        self.open[cpu_idx] = cpu.active == 1 || cpu.frozen && self.open[cpu_idx];
        if self.open[cpu_idx] {
            let executed = cpu.executed(0) + cpu.executed(1);
            let entry = trace::Entry {
                number: if cpu.frozen { 0 } else { cpu.branches },
                executed,
                branch,
            };
            // A trace that cannot be written ends short, which its reader notices.
            let _ = file.write_all(&entry.to_bytes());
        }
    }

    /// A marked span begins: the branches that stacks may still show go first.
    pub(crate) fn preface(&mut self, cpu_idx: usize, cpu: &Cpu) {
        let Some(file) = self.branches.get_mut(cpu_idx) else {
            return;
        };
        if std::mem::replace(&mut self.open[cpu_idx], true) {
            return;
        }
        for number in cpu.branches.saturating_sub(HISTORY as u64)..cpu.branches {
            let branch = cpu.history[number as usize % HISTORY];
            let entry = trace::Entry {
                number: number + 1,
                executed: 0,
                branch,
            };
            let _ = file.write_all(&entry.to_bytes());
        }
    }

    /// A record was written.
    pub(crate) fn sample(&mut self, cpu_idx: usize, record: &Record, [counted, executed]: [u64; 2]) {
        if let Some(file) = self.samples.get_mut(cpu_idx) {
            let sample = trace::Sample {
                counted,
                executed,
                ip: record.ip,
                counter: record.counter,
                tgid: record.tgid,
                branches: record.branches,
            };
            let _ = file.write_all(&sample.to_bytes());
        }
        if let Some(file) = self.stacks.get_mut(cpu_idx) {
            let stack = trace::Stack {
                period: record.period,
                wrong_path: record.wrong_path,
                entries: record.entries.iter().take(record.nr as usize).copied().collect(),
            };
            let _ = file.write_all(&stack.to_bytes());
        }
    }

    /// Everything so far will reach the files.
    pub(crate) fn flush(&mut self) {
        let files = self.branches.iter_mut().chain(&mut self.samples);
        for file in files.chain(&mut self.stacks) {
            let _ = file.flush();
        }
    }
}
