//! Accuracy of recordings: perf(1) records a workload on the emulated machine, `hbbp-sys import` reads what it recorded, and
//! `hbbp-sys eval` compares that with the exact counts of the same span.
//!
//! As in [`crate::accuracy`], these are results on a model of a processor.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::accuracy::{Errors, errors};
use crate::kernel::Kernel;
use crate::machine::{Machine, Marks};
use crate::outcome::Outcome;
use crate::workload::{Source, Workload};
use crate::{artifacts, host};

/// Records the whole system while the command runs. `perf record --kcore` finds no folder of modules in the guest and gives up;
/// `perf buildid-cache --kcore` makes the same copy.
const SCRIPT: &str = "
perf buildid-cache --kcore /proc/kcore >&2 || exit 1
perf record -q -a -m 4M EVENTS -o /out/perf.data -- COMMAND >&2 || exit 2
busybox cp $HOME/.debug/*kernel.kcore*/*/*/* /out/
";

/// A recording with its reference.
pub struct Recorded {
    program: PathBuf,
    outcome: Outcome,
}

/// Records a workload with options of `perf record` that choose the events, such as `-b -e cycles -c 20011`.
///
/// # Errors
/// When something does not build, the guest does not end well, or the recording cannot be imported.
pub fn record(
    workload: &Workload,
    kernel: &Kernel,
    hardware_profile: &str,
    events: &str,
) -> Result<Recorded> {
    let mut machine = Machine::new(kernel)
        .marks(Marks::Events)
        .hardware_profile(hardware_profile);
    workload.install(&mut machine, kernel)?;
    let mut binaries = vec![PathBuf::from("/bin/busybox")];
    if let Source::Own(file) = workload.source {
        binaries.push(artifacts::workload(file)?);
    }
    let words = workload.words();
    record_command(machine, &words.each_ref().map(String::as_str), events, &binaries)
}

/// Records a command on a machine that has all it needs; `binaries` are programs that the host has at other paths.
///
/// # Errors
/// As [`record`].
pub fn record_command(
    mut machine: Machine,
    command: &[&str],
    events: &str,
    binaries: &[PathBuf],
) -> Result<Recorded> {
    machine.files().copy("bin/busybox", Path::new("/bin/busybox"))?;
    machine.files().program(Path::new("/usr/bin/perf"))?;
    let quoted: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    let script = SCRIPT
        .replace("EVENTS", events)
        .replace("COMMAND", &quoted.join(" "));
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", &script])?;
    outcome.stdout()?;
    for (name, bytes) in &outcome.files {
        fs::write(outcome.directory().join(name), bytes)?;
    }
    let recorded = Recorded {
        program: artifacts::hbbp_sys()?,
        outcome,
    };
    let mut import = Command::new(&recorded.program);
    import.args(["import", "perf.data", "--kcore", ".", "-o", "imported"]);
    for binary in binaries {
        import.arg("--binary").arg(binary);
    }
    host::run(import.current_dir(recorded.outcome.directory())).context("failed to import the recording")?;
    Ok(recorded)
}

/// A word of a shell's command line.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

impl Recorded {
    /// The errors of each ring, by a rule's name or file.
    ///
    /// # Errors
    /// When the comparison fails.
    pub fn errors(&self, rule: &str) -> Result<Errors> {
        let folder = self.outcome.directory();
        let [reference, imported] = [folder.join("reference"), folder.join("imported")];
        errors(&self.program, &reference, &imported, "ring", rule)
    }

    /// What the guest left.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// What perf recorded, as long as this lives.
    pub fn recording(&self) -> PathBuf {
        self.outcome.directory().join("perf.data")
    }

    /// The imported profile, as long as this lives.
    pub fn profile(&self) -> PathBuf {
        self.outcome.directory().join("imported")
    }

    /// Keeps recording, profile and reference in a directory on the host.
    ///
    /// # Errors
    /// When they cannot be copied there.
    pub fn keep(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).with_context(|| format!("failed to make {}", directory.display()))?;
        for name in [
            "perf.data",
            "imported",
            "reference",
            "kcore",
            "kallsyms",
            "modules",
        ] {
            fs::copy(self.outcome.directory().join(name), directory.join(name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(super::quoted("perl -e 'print 1'"), r"'perl -e '\''print 1'\'''");
    }
}
