//! `cargo xtask setup`: finds out what building and testing lack on this machine, says it, and installs it.
//!
//! What is missing becomes a list of shell lines; the same lines are printed and run, so that what it says is
//! what it does, and what somebody without root can do by hand.

mod packagers;

use std::env;
use std::fs;
use std::io;
use std::process::Command;

use anyhow::{Context as _, Error, Result, bail, ensure};
use hbbp_toolchain::{
    LINKER_VERSION, LLVM_MAJOR, OBJECTS_VARIABLE, TARGET, Toolchain, find_linker, objects_built_elsewhere,
};

use crate::command;
use crate::system::{self, System};
use packagers::{DEB, PACKAGERS, Packager};

/// Debian's compiler for the eBPF object.
const DEBIAN_COMPILER: [&str; 3] = ["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"];

/// The nightly compiler for the eBPF object elsewhere: one whose LLVM our linker reads.
const NIGHTLY: &str = "nightly-2026-05-20";

/// What the tests of hbbp-user compile their workloads with, and run together with the program.
const USER_TEST_PACKAGES: [&str; 7] = [
    "gcc",
    "libc6-dev",
    "binutils",
    "valgrind",
    "tmux",
    "systemd",
    "debuginfod",
];

/// Programs that read what we write; of LLVM, those of the version that links the eBPF object are mostly there already.
const READER_PACKAGES: [&str; 5] = ["python3-venv", "llvm-22", "bolt-22", "clang-22", "autofdo"];

/// Runtimes that compile programs, whose names for their code are read.
const RUNTIME_PACKAGES: [&str; 3] = ["nodejs", "default-jdk-headless", "golang-go"];

/// The virtual environment of the Python packages that read what we write, in the workspace.
const PYTHON_READERS: &str = "target/readers";

/// These packages. `pypprof` has the schema of pprof, which needs a `protobuf` of its time, and `axe-playwright-python` has
/// axe-core, a script that checks pages for accessibility; what else they ask for is not used.
const PYTHON_PACKAGES: [(&str, &str); 5] = [
    ("pyarrow", "26.0.1"),
    ("duckdb", "2.0.0"),
    ("protobuf", "3.20.3"),
    ("pypprof", "0.0.1"),
    ("axe-playwright-python", "0.1.8"),
];

/// The checker of metrics, unpacked into the workspace: its package would start a server on all addresses.
const PROMTOOL: &str = "target/promtool";

/// What cargo-deb asks for the libraries of a program.
const DEBIAN_PACKAGER: &str = "dpkg-dev";

/// The browser that the tests draw an HTML report with; other systems have no package of that name, and the tests skip themselves there.
const DEBIAN_BROWSER: &str = "chromium";

/// What the emulated machine needs: one Debian package a line.
const VM_PACKAGES: &str = "kernel-tests/packages.txt";

/// What a machine must be ready for; each includes those before it, but for releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    /// Building.
    Build,
    /// Building and making the files of a release.
    Release,
    /// The emulated machine.
    Machine,
    /// The tests that run by default.
    Test,
    /// All tests, with the programs that read what we write.
    AllTests,
}

/// What to do about what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Install {
    Do,
    Print,
}

/// Makes this machine ready, or stops with the commands that would.
pub(crate) fn setup(needs: Needs, install: Install) -> Result<()> {
    let system = System::read();
    let builds_objects = builds_objects()?;
    let missing = Missing::find(needs, builds_objects)?;
    let lines = missing.lines(system, system::missing_packages);
    if lines.is_empty() {
        return Ok(());
    }

    let obstacle = if install == Install::Print {
        Some("nothing was installed (--no-install)")
    } else if !system.has_apt() {
        Some("not a Debian or Ubuntu system: run the commands above, then retry")
    } else if !system::is_root() {
        Some("only root can install packages: run the commands above, then retry")
    } else {
        None
    };
    let (verb, sudo) = match obstacle {
        None => ("installing them", ""),
        Some(_) if system::is_root() => ("install them", ""),
        Some(_) => ("install them", "sudo "),
    };
    eprintln!("hbbp-sys has missing dependencies; {verb} with");
    for line in &lines {
        eprintln!("    {}{}", if line.needs_root { sudo } else { "" }, line.text);
    }
    if let Some(obstacle) = obstacle {
        bail!(obstacle);
    }
    let packages = system::missing_packages(missing.debian_packages(system));
    if system.has_apt() && !packages.is_empty() {
        eprintln!("{}", system::size_of_packages(&packages.join(" "))?);
    }
    for line in &lines {
        // The output of `cargo xtask run` is the program's alone.
        let to_stderr = format!("{{ {}; }} >&2", line.text);
        command::run(Command::new("sh").args(["-c", &to_stderr]))?;
    }
    if !builds_objects {
        return Ok(());
    }
    ensure!(
        Toolchain::find().is_some(),
        "found no compiler for {TARGET} on LLVM {LLVM_MAJOR} even after set-up"
    );
    ensure!(
        find_linker().is_some(),
        "found no bpf-linker {LINKER_VERSION} even after set-up"
    );
    Ok(())
}

/// Whether a build here makes the eBPF objects, or takes those of another build.
fn builds_objects() -> Result<bool> {
    let collect = command::workspace().join("hbbp-user/collect");
    let found = objects_built_elsewhere(env::var_os(OBJECTS_VARIABLE), &collect);
    Ok(found.map_err(Error::msg)?.is_none())
}

/// What this machine lacks. Packages of Debian's name the tests' needs on every system.
#[derive(Debug, Default)]
struct Missing {
    compiler: bool,
    linker: bool,
    test_packages: Vec<String>,
    packagers: Vec<Packager>,
    readers: bool,
    promtool: bool,
    browser: bool,
}

/// A shell line that installs something.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    text: String,
    needs_root: bool,
}

impl Missing {
    /// What this machine lacks of what is needed.
    fn find(needs: Needs, builds_objects: bool) -> Result<Self> {
        let reads = needs == Needs::AllTests;
        Ok(Self {
            compiler: builds_objects && Toolchain::find().is_none(),
            linker: builds_objects && find_linker().is_none(),
            test_packages: test_packages(needs)?,
            packagers: packagers::missing(match needs {
                Needs::Release => &PACKAGERS,
                Needs::AllTests => &[DEB],
                Needs::Build | Needs::Machine | Needs::Test => &[],
            }),
            readers: reads && !has_readers(),
            promtool: reads
                && !command::workspace()
                    .join(PROMTOOL)
                    .join("usr/bin/promtool")
                    .is_file(),
            browser: reads,
        })
    }

    /// The lines that install it on this system; `absent` picks the Debian packages that are not there.
    fn lines(&self, system: System, absent: impl Fn(Vec<String>) -> Vec<String>) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut add = |needs_root, text: String| lines.push(Line { text, needs_root });
        if system.has_apt() {
            let packages = absent(self.debian_packages(system));
            if !packages.is_empty() {
                add(true, "apt-get update -qq".to_owned());
                let install =
                    "DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends";
                add(true, format!("{install} {}", packages.join(" ")));
            }
        } else if let (true, Some(install)) = (self.linker, llvm_install(system)) {
            add(true, install.to_owned());
        }
        if self.compiler && system != System::Debian {
            add(
                false,
                format!("rustup toolchain install {NIGHTLY} --profile minimal --component rust-src"),
            );
        }
        if self.linker {
            let llvm = if system.has_apt() {
                format!("/usr/lib/llvm-{LLVM_MAJOR}")
            } else {
                "$(llvm-config --prefix)".to_owned()
            };
            add(
                false,
                format!(
                    "PATH={llvm}/bin:$PATH LLVM_SYS_{LLVM_MAJOR}1_PREFIX={llvm} cargo install --quiet --locked --force \
                     --version {LINKER_VERSION} --no-default-features --features llvm-{LLVM_MAJOR} bpf-linker"
                ),
            );
        }
        for Packager { name, version } in &self.packagers {
            add(
                false,
                format!("cargo install --quiet --locked --force --version {version} cargo-{name}"),
            );
        }
        if self.readers {
            let folder = command::workspace().join(PYTHON_READERS);
            let folder = folder.display();
            add(false, format!("python3 -m venv --clear {folder}"));
            add(false, format!("{folder}/bin/{}", install_python_packages()));
        }
        if self.promtool && system.has_apt() {
            add(false, unpack_promtool());
        }
        lines
    }

    fn debian_packages(&self, system: System) -> Vec<String> {
        let mut packages = Vec::new();
        if self.compiler && system == System::Debian {
            packages.extend(DEBIAN_COMPILER.map(str::to_owned));
        }
        if self.linker {
            packages.push(format!("llvm-{LLVM_MAJOR}-dev"));
        }
        if self.packagers.contains(&DEB) {
            packages.push(DEBIAN_PACKAGER.to_owned());
        }
        packages.extend(self.test_packages.iter().cloned());
        if self.browser && system == System::Debian {
            packages.push(DEBIAN_BROWSER.to_owned());
        }
        packages
    }
}

/// The arguments of a virtual environment's programs that install the readers.
fn install_python_packages() -> String {
    let packages = PYTHON_PACKAGES.map(|(name, version)| format!("{name}=={version}"));
    let packages = packages.join(" ");
    format!("pip install --quiet --disable-pip-version-check --no-deps {packages}")
}

/// The line that takes the checker of metrics out of its package.
fn unpack_promtool() -> String {
    let folder = command::workspace().join(PROMTOOL);
    let folder = folder.display();
    format!(
        "mkdir -p {folder} && cd {folder} && apt-get download -qq prometheus && \
         dpkg-deb --fsys-tarfile prometheus_*.deb | tar x ./usr/bin/promtool && rm prometheus_*.deb"
    )
}

/// How LLVM, a C compiler and rustup's needs are installed elsewhere, as far as we know.
fn llvm_install(system: System) -> Option<&'static str> {
    match system {
        System::Fedora => Some("dnf install gcc llvm-devel"),
        System::Arch => Some("pacman -S --needed gcc llvm"),
        System::Suse => Some("zypper install gcc llvm22-devel"),
        System::Debian | System::Ubuntu | System::Other => None,
    }
}

/// Whether the Python packages are installed in their versions: pip writes this folder of a package last.
fn has_readers() -> bool {
    let library = command::workspace().join(PYTHON_READERS).join("lib");
    let pythons = fs::read_dir(library).into_iter().flatten().flatten();
    let mut pythons = pythons.map(|python| python.path().join("site-packages"));
    pythons.any(|packages| {
        let folder = |(name, version): (&str, &str)| {
            packages.join(format!("{}-{version}.dist-info", name.replace('-', "_")))
        };
        PYTHON_PACKAGES.map(folder).iter().all(|folder| folder.is_dir())
    })
}

/// The Debian packages that tests need, or the emulated machine alone.
fn test_packages(needs: Needs) -> Result<Vec<String>> {
    if needs < Needs::Machine {
        return Ok(Vec::new());
    }
    let path = command::workspace().join(VM_PACKAGES);
    let list = match fs::read_to_string(&path) {
        Ok(list) => list,
        Err(err) if err.kind() == io::ErrorKind::NotFound => String::new(),
        Err(err) => return Err(err).with_context(|| format!("failed to read {}", path.display())),
    };
    let mut packages: Vec<&str> = parse_packages(&list).collect();
    if Needs::Test <= needs {
        packages.extend(USER_TEST_PACKAGES);
    }
    if Needs::AllTests <= needs {
        packages.extend(READER_PACKAGES);
        packages.extend(RUNTIME_PACKAGES);
    }
    Ok(packages.into_iter().map(str::to_owned).collect())
}

/// The names in a list of packages: one a line, `#` begins a comment.
fn parse_packages(list: &str) -> impl Iterator<Item = &str> {
    list.lines()
        .filter_map(|line| line.split('#').next())
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
