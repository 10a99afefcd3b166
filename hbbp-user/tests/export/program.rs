//! A program, what it executed exactly, and the profile that is made of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::step::{Trace, trace};
use crate::tool;

/// An executed program, in a folder of its own.
pub(crate) struct Program {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
    /// Its profile.
    pub(crate) profile: PathBuf,
    pub(crate) trace: Arc<Trace>,
}

/// What is made once for all tests: stepping through a program takes seconds.
struct Built {
    program: Vec<u8>,
    profile: Vec<u8>,
    trace: Arc<Trace>,
}

type Programs = BTreeMap<(String, Linked), Arc<Built>>;

static BUILT: Mutex<Programs> = Mutex::new(BTreeMap::new());

/// How a program is linked.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Linked {
    /// At a fixed address.
    Fixed,
    /// Anywhere.
    Pie,
}

impl Program {
    /// The program of this folder, compiled, run and imported.
    pub(crate) fn new(compiler: &str, linked: Linked) -> Self {
        let built = {
            let mut built = BUILT.lock().unwrap();
            let entry = built.entry((compiler.to_owned(), linked));
            Arc::clone(entry.or_insert_with(|| Arc::new(build(compiler, linked))))
        };
        let folder = tempfile::tempdir().unwrap();
        let (path, profile) = (folder.path().join("program"), folder.path().join("profile.hbbp"));
        std::fs::write(&path, &built.program).unwrap();
        std::fs::write(&profile, &built.profile).unwrap();
        Self {
            folder,
            path,
            profile,
            trace: Arc::clone(&built.trace),
        }
    }

    /// A file next to it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exports to a file, without a word on standard error, and returns the text.
    #[track_caller]
    pub(crate) fn export(&self, format: &str) -> String {
        let file = self.file(format);
        let binary = ["--binary", self.path.to_str().unwrap()];
        let (_, said) = tool::export(&self.profile, format, &file, &binary);
        assert_eq!(said, "");
        String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned()
    }
}

fn build(compiler: &str, linked: Linked) -> Built {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/export/program.c");
    let linked = match linked {
        Linked::Fixed => ["-static", "-fno-pie"],
        Linked::Pie => ["-static-pie", "-fPIE"],
    };
    // Both versions are tested; Debian's create_llvm_prof reads only the older one.
    let dwarf = if compiler == "cc" {
        "-gdwarf-4"
    } else {
        "-gdwarf-5"
    };
    let mut compile = Command::new(compiler);
    compile.args([
        "-O2",
        dwarf,
        "-nostdlib",
        "-ffreestanding",
        "-fno-stack-protector",
    ]);
    compile.args([
        "-fcf-protection=none",
        "-Wl,-e,begin",
        "-Wl,--build-id",
        "-Wl,--emit-relocs",
    ]);
    tool::run(compile.args(linked).args(["-o", path.to_str().unwrap(), source]));
    let trace = trace(&path);
    let text = folder.path().join("exact");
    std::fs::write(&text, trace.text()).unwrap();
    let profile = folder.path().join("profile.hbbp");
    let mut import = tool::hbbp(&[
        "import",
        text.to_str().unwrap(),
        "--binary",
        path.to_str().unwrap(),
    ]);
    tool::run(import.args(["-o", profile.to_str().unwrap()]));
    Built {
        program: std::fs::read(path).unwrap(),
        profile: std::fs::read(profile).unwrap(),
        trace: Arc::new(trace),
    }
}

/// Counts are thousandths of executions, which are relative here: nothing says what a sample represents.
pub(crate) const SCALE: u64 = 1000;
