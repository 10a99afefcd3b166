//! What exported profiles are worth to clang and to llvm-bolt: a program is recorded once by perf(1), and built again with the
//! profiles that `hbbp-sys export` makes of that recording, and with those of LLVM's own converters.
//!
//! ```text
//! perf.data -> hbbp-sys import, export autofdo -> clang -fprofile-sample-use     user instructions and
//!           -> llvm-profgen                    -> clang -fprofile-sample-use     taken branches, exactly
//!           -> hbbp-sys import, export bolt    -> llvm-bolt                      and BOLT's gaps of the flow
//!           -> perf2bolt                       -> llvm-bolt
//! ```
//!
//! The program is zstd, of the sources that the build of `hbbp-sys` has. Exact counts come from the emulated machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::kernel::Kernel;
use crate::machine::{Machine, Marks};
use crate::recording::{Recorded, record_command};
use crate::{artifacts, host};

/// LLVM of Debian's packages, as for the eBPF linker.
const LLVM: &str = "/usr/lib/llvm-22/bin";

/// The program's file name, in the guest too.
const PROGRAM: &str = "zstd_round_trip";

/// What it compresses, in the guest.
const INPUT: &str = "/opt/input";

/// Flags of every build. BOLT needs relocations, and debug information must tell inlined calls apart.
const FLAGS: [&str; 12] = [
    "-O2",
    "-g",
    "-fdebug-info-for-profiling",
    "-static",
    "-fno-pie",
    "-no-pie",
    "-DNDEBUG",
    "-DZSTD_DISABLE_ASM=1",
    "-DZSTD_LEGACY_SUPPORT=0",
    "-Wno-backend-plugin",
    "-Wl,--build-id",
    "-Wl,--emit-relocs",
];

/// Optimizations that BOLT's documentation recommends (bolt/docs/OptimizingClang.md, LLVM 22).
const BOLT_FLAGS: [&str; 4] = [
    "--reorder-blocks=ext-tsp",
    "--reorder-functions=cdsort",
    "--split-functions",
    "--split-all-cold",
];

/// Folders of zstd's library that the program is made of.
const FOLDERS: [&str; 3] = ["common", "compress", "decompress"];

/// What of ours, and what of LLVM's converter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pair<T> {
    /// With the export of `hbbp-sys`.
    pub ours: T,
    /// With the conversion of `llvm-profgen` or `perf2bolt`.
    pub theirs: T,
}

/// User code that a run executed, exactly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Instructions.
    pub instructions: u64,
    /// Near taken branches.
    pub taken: u64,
}

/// What BOLT says of a profile (bolt/lib/Passes/ProfileQualityStats.cpp): the worst twentieth of functions with a profile, in
/// per cent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gaps {
    /// Functions that have a profile.
    pub functions: u32,
    /// Executions of blocks that no executed path leads to.
    pub discontinuity: f64,
    /// Calls against entries.
    pub call_graph: f64,
    /// Inflow against outflow of blocks, weighted.
    pub flow: f64,
}

/// A program with and without profiles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Optimized {
    /// Branch stacks of the recording.
    pub stacks: f64,
    /// Without a profile.
    pub plain: Work,
    /// Built by clang with a sample profile.
    pub clang: Pair<Work>,
    /// Rewritten by llvm-bolt.
    pub bolt: Pair<Work>,
    /// The profiles of `bolt`.
    pub gaps: Pair<Gaps>,
}

/// Records the program at this period of taken branches, builds it with each profile, and counts what each build executes;
/// `keep` is a directory for recording, profiles and programs.
///
/// # Errors
/// When a program of LLVM is not installed, something does not build, or a guest does not end well.
pub fn measure(
    kernel: &Kernel,
    hardware_profile: &str,
    period: u64,
    keep: Option<&Path>,
) -> Result<Optimized> {
    let sources = Sources::find()?;
    let folder = tempfile::tempdir_in(host::work_directory()?)?;
    let at = |name: &str| folder.path().join(name);
    let plain = at(PROGRAM);
    sources.build(&plain, None)?;
    let recorded = sources.record(&plain, kernel, hardware_profile, period)?;
    let exporter = artifacts::hbbp_sys()?;
    let export = |format: &str, to: &Path| {
        let mut export = Command::new(&exporter);
        export
            .arg("export")
            .arg(recorded.profile())
            .args(["--format", format, "-o"])
            .arg(to);
        host::run(export.arg("--image").arg(&plain).arg("--binary").arg(&plain))
    };
    let recording = recorded.outcome().directory().join("perf.data");

    export("autofdo", &at("ours.afdo"))?;
    let mut convert = llvm("llvm-profgen")?;
    convert
        .arg("--perfdata")
        .arg(&recording)
        .arg("--binary")
        .arg(&plain);
    host::run(convert.args(["--format=text", "--output"]).arg(at("theirs.afdo")))?;
    export("bolt", &at("ours.preagg"))?;
    let mut convert = llvm("perf2bolt")?;
    convert
        .arg("-p")
        .arg(&recording)
        .arg("-o")
        .arg(at("theirs.fdata"));
    host::run(convert.arg(&plain))?;

    sources.build(&at("clang-ours"), Some(&at("ours.afdo")))?;
    sources.build(&at("clang-theirs"), Some(&at("theirs.afdo")))?;
    let gaps = Pair {
        ours: bolt(&plain, &["--pa", "-p"], &at("ours.preagg"), &at("bolt-ours"))?,
        theirs: bolt(&plain, &["--data"], &at("theirs.fdata"), &at("bolt-theirs"))?,
    };
    if let Some(to) = keep {
        recorded.keep(to)?;
        for entry in fs::read_dir(folder.path())? {
            let entry = entry?;
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    let programs = [PROGRAM, "clang-ours", "clang-theirs", "bolt-ours", "bolt-theirs"].map(at);
    let work = sources.work(kernel, &programs)?;
    let [plain, clang_ours, clang_theirs, bolt_ours, bolt_theirs] = work[..] else {
        anyhow::bail!("{} of {} programs ran", work.len(), programs.len())
    };
    Ok(Optimized {
        stacks: recorded.errors("balanced")?.stacks,
        plain,
        clang: Pair {
            ours: clang_ours,
            theirs: clang_theirs,
        },
        bolt: Pair {
            ours: bolt_ours,
            theirs: bolt_theirs,
        },
        gaps,
    })
}

/// A program of LLVM.
fn llvm(name: &str) -> Result<Command> {
    let path = Path::new(LLVM).join(name);
    ensure!(
        path.exists(),
        "{} is not installed; `cargo xtask setup` installs it",
        path.display()
    );
    Ok(Command::new(path))
}

/// The sources of zstd's library.
struct Sources {
    library: PathBuf,
}

impl Sources {
    /// In the package that `hbbp-sys` is built with.
    fn find() -> Result<Self> {
        let mut metadata = artifacts::cargo();
        let text = host::output(metadata.args(["metadata", "--format-version=1", "--locked"]))?;
        let metadata: serde_json::Value =
            serde_json::from_str(&text).context("failed to understand what cargo metadata says")?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let manifest = packages
            .filter(|package| package["name"] == "zstd-sys")
            .find_map(|package| package["manifest_path"].as_str());
        let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
        let folder = folder.context("hbbp-sys is not built with the sources of zstd")?;
        Ok(Self {
            library: folder.join("zstd/lib"),
        })
    }

    /// Builds the program, with a sample profile if there is one.
    fn build(&self, to: &Path, profile: Option<&Path>) -> Result<()> {
        let mut compile = llvm("clang")?;
        compile.args(FLAGS).arg("-I").arg(&self.library).arg("-o").arg(to);
        if let Some(profile) = profile {
            compile.arg(format!("-fprofile-sample-use={}", profile.display()));
        }
        compile.arg(artifacts::package().join(format!("workloads/{PROGRAM}.c")));
        for folder in FOLDERS {
            let mut files = Vec::new();
            for entry in fs::read_dir(self.library.join(folder))? {
                files.push(entry?.path());
            }
            files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
            files.sort();
            compile.args(files);
        }
        host::run(&mut compile)
    }

    /// What the program compresses: a source of its own.
    fn input(&self) -> PathBuf {
        self.library.join("compress/zstd_compress.c")
    }

    fn record(
        &self,
        program: &Path,
        kernel: &Kernel,
        hardware_profile: &str,
        period: u64,
    ) -> Result<Recorded> {
        let mut machine = Machine::new(kernel)
            .marks(Marks::Events)
            .hardware_profile(hardware_profile);
        machine.files().copy(&format!("bin/{PROGRAM}"), program)?;
        machine.files().copy(INPUT, &self.input())?;
        let command = [&format!("/bin/{PROGRAM}"), INPUT];
        let events = format!("-b -e cpu/event=0xc4,umask=0x20/pp -c {period}");
        record_command(machine, &command, &events, &[program.to_owned()])
    }

    /// What each program executes, in one guest.
    fn work(&self, kernel: &Kernel, programs: &[PathBuf]) -> Result<Vec<Work>> {
        let mut machine = Machine::new(kernel).marks(Marks::Program);
        machine.files().copy("bin/busybox", Path::new("/bin/busybox"))?;
        machine
            .files()
            .copy("bin/guest-span", &artifacts::guest_program("guest-span")?)?;
        machine.files().copy(INPUT, &self.input())?;
        let mut script = "set -e\n".to_owned();
        for program in programs {
            let name = program
                .file_name()
                .context("a program has a name")?
                .to_string_lossy();
            machine.files().copy(&format!("bin/{name}"), program)?;
            script += &format!("guest-span /bin/{name} {INPUT}\n");
        }
        let outcome = machine.run(&["/bin/busybox", "sh", "-c", &script])?;
        outcome.stdout()?;
        let work = |n| {
            let reference = outcome.reference_of(n)?;
            let ([instructions, _], [taken, _]) = (reference.instructions, reference.taken);
            Ok(Work { instructions, taken })
        };
        (0..).take(programs.len()).map(work).collect()
    }
}

/// Rewrites a program; returns what BOLT says of the profile.
fn bolt(program: &Path, option: &[&str], profile: &Path, to: &Path) -> Result<Gaps> {
    let mut rewrite = llvm("llvm-bolt")?;
    rewrite.arg(program).args(option).arg(profile).arg("-o").arg(to);
    let said = host::output(rewrite.args(BOLT_FLAGS))?;
    gaps(&said).with_context(|| format!("llvm-bolt does not judge the profile:\n{said}"))
}

/// Reads BOLT's line of metrics.
fn gaps(said: &str) -> Option<Gaps> {
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
        let gaps = gaps(said).unwrap();
        assert_eq!(gaps.functions, 39);
        assert_eq!(
            (gaps.discontinuity, gaps.call_graph, gaps.flow),
            (1.5, 12.0, 3.25)
        );
    }
}
