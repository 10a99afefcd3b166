//! The debug trace: every branch and every sample of the marked spans, in files on the host.
//!
//! Read by `kernel_tests::trace`, where the format stands.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use kernel_tests::layout::{Branch, MAX_CPUS, Record};
use kernel_tests::trace;

use crate::cpu::{Cpu, HISTORY};

/// The files of one run; none when the trace is off.
#[derive(Default)]
pub(crate) struct Trace {
    branches: Vec<BufWriter<File>>,
    samples: Vec<BufWriter<File>>,
    /// CPUs that are in a marked span, or whose span stands still while the counters are frozen.
    open: [bool; MAX_CPUS],
}

impl Trace {
    /// Opens one file of branches and one of samples per CPU.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub(crate) fn open(directory: &Path) -> std::io::Result<Self> {
        let mut opened = Self::default();
        for cpu in 0..MAX_CPUS {
            opened.branches.push(BufWriter::new(File::create(
                directory.join(trace::branch_file(cpu)),
            )?));
            opened.samples.push(BufWriter::new(File::create(
                directory.join(trace::sample_file(cpu)),
            )?));
        }
        Ok(opened)
    }

    /// A branch was taken; `cpu` has already recorded it.
    pub(crate) fn branch(&mut self, cpu_idx: usize, cpu: &Cpu, branch: Branch) {
        let Some(file) = self.branches.get_mut(cpu_idx) else {
            return;
        };
        self.open[cpu_idx] = cpu.active == 1 || cpu.frozen && self.open[cpu_idx];
        if self.open[cpu_idx] {
            let executed = cpu.executed(0) + cpu.executed(1);
            let entry = trace::Entry {
                number: cpu.branches,
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
    pub(crate) fn sample(&mut self, cpu_idx: usize, record: &Record, [at, executed]: [u64; 2]) {
        if let Some(file) = self.samples.get_mut(cpu_idx) {
            let sample = trace::Sample {
                at,
                executed,
                ip: record.ip,
                counter: record.counter,
                tgid: record.tgid,
                branches: record.branches,
            };
            let _ = file.write_all(&sample.to_bytes());
        }
    }

    /// Everything so far is on its way to the files.
    pub(crate) fn flush(&mut self) {
        for file in self.branches.iter_mut().chain(&mut self.samples) {
            let _ = file.flush();
        }
    }
}
