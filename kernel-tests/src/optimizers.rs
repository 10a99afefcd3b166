//! Measures what exported profiles are worth to clang and to llvm-bolt.
//!
//! A program is recorded once by perf(1). It is built again with the profiles that `hbbp-sys export` makes of that recording, and
//! with those of LLVM's own converters.
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

use anyhow::{Context as _, Result};

use crate::bolt::{Gaps, Pair, bolt_profiles, export, gaps, llvm, rewrite};
use crate::kernel::Kernel;
use crate::machine::{Machine, Marks};
use crate::recording::{Recorded, record_command};
use crate::{artifacts, host};

/// The program's file name, in the guest too.
const PROGRAM: &str = "zstd_round_trip";

/// What it compresses, in the guest.
const INPUT: &str = "/opt/input";

/// Flags of every build. BOLT needs relocations, and debug information must distinguish inlined calls.
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

/// Folders of zstd's library that the program is made of.
const FOLDERS: [&str; 3] = ["common", "compress", "decompress"];

/// User code that a run executed, exactly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Instructions.
    pub instructions: u64,
    /// Near taken branches.
    pub taken: u64,
}

/// A program with and without profiles.
#[derive(Clone, Debug, Default)]
pub struct Optimized {
    /// Branch stacks of the recording.
    pub stacks: f64,
    /// Without a profile.
    pub plain: Work,
    /// Built by clang with a sample profile.
    pub clang: Pair<Work>,
    /// Rewritten by llvm-bolt.
    pub bolt: Pair<Work>,
    /// What BOLT says of the profiles, in the order of [`SCOPES`](crate::bolt::SCOPES).
    pub gaps: Vec<Pair<Gaps>>,
}

/// Records the program at this period of taken branches, builds it with each profile, and counts what each build executes.
/// The directory `keep` receives recording, profiles and programs.
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

    export(&recorded, &plain, "autofdo", &at("ours.afdo"))?;
    let mut convert = llvm("llvm-profgen")?;
    convert
        .arg("--perfdata")
        .arg(recorded.recording())
        .arg("--binary")
        .arg(&plain);
    host::run(convert.args(["--format=text", "--output"]).arg(at("theirs.afdo")))?;
    let profiles = bolt_profiles(&recorded, &plain, folder.path())?;

    sources.build(&at("clang-ours"), Some(&at("ours.afdo")))?;
    sources.build(&at("clang-theirs"), Some(&at("theirs.afdo")))?;
    rewrite(&plain, &profiles.ours, &at("bolt-ours"))?;
    rewrite(&plain, &profiles.theirs, &at("bolt-theirs"))?;
    let gaps = gaps(&plain, &profiles)?;
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
