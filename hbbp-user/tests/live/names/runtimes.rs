//! Code of programs as their runtimes compile and name it: node and Java, which write perf maps, and Go, stripped.
//!
//! As in the programs of the other tests, `hot_mul` takes most of the time, and `hot_rot` nearly all of the rest.

use super::*;
use hbbp_testing::missing::missing;

const JAVASCRIPT: &str = r"
function hot_mul(x) { for (let i = 0; i < 4000000; i++) x = Math.imul(x, x) + 7 | 0; return x; }
function hot_rot(x) { for (let i = 0; i < 2000000; i++) x = (x >>> 5 | x << 27) ^ i; return x; }
let x = 3;
for (const end = Date.now() + 5000; Date.now() < end;) x += hot_mul(x) + hot_rot(x) | 0;
";

const JAVA: &str = r"
class Hot {
    static long hot_mul(long x) { for (int i = 0; i < 4000000; i++) x = x * x + 7; return x; }
    static long hot_rot(long x) { for (int i = 0; i < 2000000; i++) x = Long.rotateRight(x, 5) ^ i; return x; }
    public static void main(String[] arguments) {
        long x = 3, end = System.nanoTime() + 12000000000L;
        while (System.nanoTime() < end) x += hot_mul(x) + hot_rot(x);
        System.exit((int) (x & 0));
    }
}
";

const GO: &str = r"package main

import (
	`os`
	`time`
)

//go:noinline
func hot_mul(x uint64) uint64 {
	for i := 0; i < 4000000; i++ {
		x = x*x + 7
	}
	return x
}

//go:noinline
func hot_rot(x uint64) uint64 {
	for i := uint64(0); i < 2000000; i++ {
		x = (x>>5 | x<<59) ^ i
	}
	return x
}

func main() {
	x := uint64(3)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		x += hot_mul(x) + hot_rot(x)
	}
	os.Exit(int(x & 0))
}
";

/// Whether a program can be run, which may be missing where not all tests are.
fn has(name: &str, version: &str) -> bool {
    let found = Command::new(name)
        .arg(version)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_err() {
        missing(&format!(
            "{name} is not installed; `cargo xtask setup` installs it"
        ));
    }
    found.is_ok()
}

/// A folder with a source.
fn folder_with(file: &str, source: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(file), source).unwrap();
    folder
}

/// Both functions have their names, as far as a runtime writes them with more.
#[track_caller]
fn assert_both_named(folder: &Path, command: &[&OsStr], module: &str) {
    let profile = measured(folder, command);
    let shares = shares(&profile, module);
    let of = |function: &str| -> f64 {
        let named = shares.iter().filter(|(name, _)| name.contains(function));
        named.map(|(_, share)| share).sum()
    };
    let (mul, rot) = (of("hot_mul"), of("hot_rot"));
    assert!(0.8 < mul + rot && 0.05 < rot && rot < mul, "{shares:?}");
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn code_of_node_has_its_names() {
    let Some(_kernel) = kernel() else { return };
    if !has("node", "--version") {
        return;
    }
    let folder = folder_with("hot.js", JAVASCRIPT);
    // node leaves a log in its working directory.
    let script = "cd $0 && exec node --perf-basic-prof hot.js";
    let command: [&OsStr; 4] = [
        "sh".as_ref(),
        "-c".as_ref(),
        script.as_ref(),
        folder.path().as_os_str(),
    ];
    assert_both_named(folder.path(), &command, "[anon]");
}

/// Java writes its map when it is asked to, when the code has been running for seconds; again, as it may compile late.
#[test]
#[ignore = "needs a program that only --all installs"]
fn code_of_java_has_its_names() {
    let Some(_kernel) = kernel() else { return };
    if !has("javac", "-version") {
        return;
    }
    let folder = folder_with("Hot.java", JAVA);
    tool("javac", folder.path(), &["Hot.java"]);
    let script =
        "cd $0 && { java -cp . Hot & for n in 1 2; do sleep 4; jcmd $! Compiler.perfmap >&2; done; wait; }";
    let command: [&OsStr; 4] = [
        "sh".as_ref(),
        "-c".as_ref(),
        script.as_ref(),
        folder.path().as_os_str(),
    ];
    assert_both_named(folder.path(), &command, "[anon]");
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn code_of_stripped_go_has_its_names() {
    let Some(_kernel) = kernel() else { return };
    if !has("go", "version") {
        return;
    }
    let folder = folder_with("hot.go", &GO.replace('`', "\""));
    let built = Command::new("go")
        .args(["build", "-ldflags=-s", "-o", "hot", "hot.go"])
        .current_dir(folder.path())
        .env("GOCACHE", folder.path().join("cache"))
        .status();
    assert!(built.unwrap().success());
    let file = folder.path().join("hot");
    assert_both_named(folder.path(), &[file.as_os_str()], "hot");
}
