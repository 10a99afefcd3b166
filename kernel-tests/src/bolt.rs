//! BOLT on recordings of the emulated machine: profiles by `hbbp-sys export` and by perf2bolt, and what BOLT says of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::kernel::Kernel;
use crate::recording::{Recorded, record};
use crate::workload::{Source, Workload};
use crate::{artifacts, host};

/// LLVM of Debian's packages, as for the eBPF linker.
const LLVM: &str = "/usr/lib/llvm-22/bin";

/// Optimizations that BOLT's documentation recommends (bolt/docs/OptimizingClang.md, LLVM 22).
const OPTIMIZATIONS: [&str; 4] = [
    "--reorder-blocks=ext-tsp",
    "--reorder-functions=cdsort",
    "--split-functions",
    "--split-all-cold",
];

/// The hottest functions that BOLT judges, and the percentile of them that it prints. The last is its default: with fewer than
/// 1000 functions, one in twenty of all that were seen at all, which a single stack of 32 entries says little about.
pub const SCOPES: [(u32, u32); 4] = [(20, 50), (20, 80), (20, 95), (1000, 95)];

/// What of ours, and what of LLVM's converter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pair<T> {
    /// With the export of `hbbp-sys`.
    pub ours: T,
    /// With the conversion of `llvm-profgen` or `perf2bolt`.
    pub theirs: T,
}

/// What BOLT says of a profile (bolt/lib/Passes/ProfileQualityStats.cpp), in per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gaps {
    /// Functions that were judged.
    pub functions: u32,
    /// Executions of blocks that no executed path leads to.
    pub discontinuity: f64,
    /// Calls against entries.
    pub call_graph: f64,
    /// Inflow against outflow of blocks, weighted.
    pub flow: f64,
}

/// A profile in a form that BOLT reads.
#[derive(Clone, Debug)]
pub struct BoltProfile {
    options: &'static [&'static str],
    path: PathBuf,
}

/// A program of LLVM.
///
/// # Errors
/// When it is not installed.
pub fn llvm(name: &str) -> Result<Command> {
    let path = Path::new(LLVM).join(name);
    ensure!(
        path.exists(),
        "{} is not installed; `cargo xtask setup` installs it",
        path.display()
    );
    Ok(Command::new(path))
}

/// Exports the profile of a program.
///
/// # Errors
/// When `hbbp-sys` does not build, or the program is not in the recording.
pub fn export(recorded: &Recorded, program: &Path, format: &str, to: &Path) -> Result<()> {
    let mut export = Command::new(artifacts::hbbp_sys()?);
    export
        .arg("export")
        .arg(recorded.profile())
        .args(["--format", format, "-o"]);
    host::run(
        export
            .arg(to)
            .arg("--image")
            .arg(program)
            .arg("--binary")
            .arg(program),
    )
}

/// Both profiles of a program, in a directory.
///
/// # Errors
/// As [`export`], and when perf2bolt is not installed.
pub fn bolt_profiles(recorded: &Recorded, program: &Path, folder: &Path) -> Result<Pair<BoltProfile>> {
    let (ours, theirs) = (folder.join("ours.preagg"), folder.join("theirs.fdata"));
    export(recorded, program, "bolt", &ours)?;
    let mut convert = llvm("perf2bolt")?;
    convert
        .arg("--allow-stripped")
        .arg("-p")
        .arg(recorded.recording());
    host::run(convert.arg("-o").arg(&theirs).arg(program))?;
    Ok(Pair {
        ours: BoltProfile {
            options: &["--pa", "-p"],
            path: ours,
        },
        theirs: BoltProfile {
            options: &["--data"],
            path: theirs,
        },
    })
}

/// Rewrites a program.
///
/// # Errors
/// When llvm-bolt is not installed or fails.
pub fn rewrite(program: &Path, profile: &BoltProfile, to: &Path) -> Result<()> {
    let mut rewrite = llvm("llvm-bolt")?;
    rewrite.arg(program).args(profile.options).arg(&profile.path);
    host::run(rewrite.arg("-o").arg(to).args(OPTIMIZATIONS))
}

/// What BOLT says of both profiles, in the order of [`SCOPES`].
///
/// # Errors
/// As [`rewrite`].
pub fn gaps(program: &Path, profiles: &Pair<BoltProfile>) -> Result<Vec<Pair<Gaps>>> {
    let of = |profile: &BoltProfile, (top, percentile): (u32, u32)| {
        let mut judge = llvm("llvm-bolt")?;
        judge
            .arg("--allow-stripped")
            .arg(program)
            .args(profile.options)
            .arg(&profile.path);
        judge.arg(format!("--top-functions-for-profile-quality-check={top}"));
        judge.arg(format!("--percentile-for-profile-quality-check={percentile}"));
        let said = host::output(judge.args(["-o", "/dev/null"]))?;
        read(&said).with_context(|| format!("llvm-bolt does not judge the profile:\n{said}"))
    };
    let both = |scope| {
        Ok(Pair {
            ours: of(&profiles.ours, scope)?,
            theirs: of(&profiles.theirs, scope)?,
        })
    };
    SCOPES.into_iter().map(both).collect()
}

/// Records a workload that is a program of the host, and returns what BOLT says of its profiles.
///
/// # Errors
/// As [`record`] and [`gaps`].
pub fn workload_gaps(
    workload: &Workload,
    kernel: &Kernel,
    hardware_profile: &str,
    events: &str,
) -> Result<Vec<Pair<Gaps>>> {
    let program = match workload.source {
        Source::Host(program) => PathBuf::from(program),
        Source::Own(file) => artifacts::workload(file)?,
    };
    let recorded = record(workload, kernel, hardware_profile, events)?;
    let folder = tempfile::tempdir_in(host::work_directory()?)?;
    gaps(&program, &bolt_profiles(&recorded, &program, folder.path())?)
}

/// Reads BOLT's line of metrics.
fn read(said: &str) -> Option<Gaps> {
    let after = |name: &str| said.split(name).nth(1).map(str::trim_start);
    let percent = |name: &str| after(name)?.split('%').next()?.parse().ok();
    Some(Gaps {
        functions: after("metrics for the hottest ")?
            .split(' ')
            .next()?
            .parse()
            .ok()?,
        discontinuity: percent("function CFG discontinuity")?,
        call_graph: percent("call graph flow conservation gap")?,
        flow: percent("CFG flow conservation gap")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_bolt_are_read() {
        let said = "BOLT-INFO: profile quality metrics for the hottest 39 functions (reporting top 5% values): function CFG \
                    discontinuity 1.50%; call graph flow conservation gap 12.00%; CFG flow conservation gap 3.25% (weighted) \
                    4.00% (worst); exception handling usage 0.00% (of total BBEC)";
        let expected = Gaps {
            functions: 39,
            discontinuity: 1.5,
            call_graph: 12.0,
            flow: 3.25,
        };
        assert_eq!(read(said), Some(expected));
    }
}
