//! Files of the perf on this machine: real ones, in all forms that it writes.

use std::process::{Command, Stdio};

use crate::run::{Folder, hbbp};
use crate::skip::skip;

/// Whether perf can sample here; without it a test skips itself, and says what perf said.
fn perf_works(folder: &Folder) -> bool {
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-o"])
        .arg(folder.path().join("try.data"))
        .arg("true");
    let reason = match perf.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "),
        Err(error) => format!("perf cannot be run: {error}"),
    };
    skip(&reason);
    false
}

/// The number of samples that a report of a recording accounts for.
fn n_samples(path: &str) -> u64 {
    let ran = hbbp(&["report", path, "--format", "json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let events = json["run"]["events"]
        .as_array()
        .or_else(|| json["events"].as_array())
        .unwrap();
    events
        .iter()
        .map(|event| {
            event["runs"]
                .as_u64()
                .or_else(|| event["samples"].as_u64())
                .unwrap()
        })
        .sum()
}

#[test]
fn files_pipes_and_compressed_files_of_perf() {
    let folder = Folder::new();
    if !perf_works(&folder) {
        return;
    }
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let record = |options: &[&str], out: &str| {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-e", "cpu-clock", "-c", "1000000"])
            .args(options)
            .args(["-o", out]);
        perf.args([
            "--",
            "sh",
            "-c",
            "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done",
        ]);
        let ran = perf.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        ran.stdout
    };
    let (plain, packed, pipe) = (path("plain.data"), path("packed.data"), path("pipe.data"));
    record(&[], &plain);
    record(&["-z"], &packed);
    std::fs::write(&pipe, record(&[], "-")).unwrap();
    for file in [plain, packed, pipe] {
        let script = Command::new("perf")
            .args(["script", "-F", "ip", "-i", &file])
            .stderr(Stdio::null())
            .output();
        let known = u64::try_from(
            script
                .unwrap()
                .stdout
                .split(|b| *b == b'\n')
                .filter(|line| !line.is_empty())
                .count(),
        );
        let known = known.unwrap();
        assert!(0 < known, "{file}");
        assert_eq!(n_samples(&file), known, "{file}");
    }
}
