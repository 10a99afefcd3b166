//! Other tools at the same time: perf gets the same records with and without this program, and so does another copy of
//! this program.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{kernel, number, program, report_of, skip_outside_ci, wait_until_it_measures};

/// Starts a few short programs, one after the other.
const SHORT_PROGRAMS: &str = "for i in 1 2 3 4 5 6 7 8; do /bin/true; cat /dev/null; done";

/// This program while it measures; it is gone when the test ends.
struct Beside(Child);

impl Beside {
    fn start(args: &[&str]) -> Self {
        let child = program(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let beside = Self(child.unwrap());
        wait_until_it_measures(beside.0.id());
        beside
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Records the short programs with perf, which must succeed: what each mapping of a file was of, sorted.
fn mappings_by_perf(folder: &Path, form: &[&str]) -> Vec<String> {
    let data = folder.join("perf.data");
    let recorded = Command::new("perf")
        .args(["record", "-e", "cpu-clock", "-o"])
        .arg(&data)
        .args(form)
        .args(["--", "sh", "-c", SHORT_PROGRAMS])
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{form:?}: {recorded:?}");
    let script = Command::new("perf")
        .args(["script", "--show-mmap-events", "-i"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(script.status.success(), "{script:?}");
    let text = String::from_utf8(script.stdout).unwrap();
    // `PERF_RECORD_MMAP2 PID/TID: [START(LEN) @ OFFSET MAJOR:MINOR INODE GENERATION]: PROTECTION PATH`
    let mapping = |line: &str| {
        let (_, record) = line.split_once("PERF_RECORD_MMAP2 ")?;
        let (_, file) = record.split_once(" @ ")?;
        (file.contains(" /bin/") || file.contains(" /usr/") || file.contains(" /lib"))
            .then(|| file.to_owned())
    };
    let mut mappings: Vec<String> = text.lines().filter_map(mapping).collect();
    mappings.sort_unstable();
    mappings
}

/// Without build ids the records of perf have inodes, with them build ids: neither may depend on us.
#[test]
fn perf_has_the_same_records_with_us_running() {
    let Some(_kernel) = kernel() else { return };
    if Command::new("perf").arg("--version").output().is_err() {
        skip_outside_ci("perf is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let (profile, segments, own) = (path("a.hbbp"), path("segments"), std::process::id().to_string());
    let forms: [&[&str]; 3] = [&[], &["--buildid-mmap"], &["-c", "1000000"]];
    let alone = forms.map(|form| mappings_by_perf(folder.path(), form));
    for of_form in &alone {
        assert!(16 <= of_form.len(), "{of_form:?}");
    }
    let beside: [&[&str]; 4] = [
        &["record", "-o", &profile],
        &["record", "-o", &profile, "--pid", &own],
        &["daemon", "--dir", &segments, "--interval", "5"],
        &["top", "--batch"],
    ];
    for args in beside {
        let _beside = Beside::start(args);
        for (form, alone) in forms.iter().zip(&alone) {
            let now = mappings_by_perf(folder.path(), form);
            assert_eq!(&now, alone, "{form:?} beside {args:?}");
        }
    }
}

#[test]
fn second_copy_measures_along_with_the_first() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let (segments, other, profile) = (path("segments"), path("other.hbbp"), path("profile.hbbp"));
    let beside: [&[&str]; 2] = [
        &["daemon", "--dir", &segments, "--interval", "5"],
        &["record", "-o", &other],
    ];
    for args in beside {
        let _beside = Beside::start(args);
        let recorded = program(&[
            "record",
            "-o",
            &profile,
            "--",
            "sh",
            "-c",
            "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done",
        ])
        .output();
        let recorded = recorded.unwrap();
        assert!(recorded.status.success(), "beside {args:?}: {recorded:?}");
        let in_mix = &report_of(&profile)["accounting"]["in_mix"]["user"];
        assert!(0 < number(in_mix), "beside {args:?}");
    }
}
