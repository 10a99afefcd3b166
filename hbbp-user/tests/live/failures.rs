//! How the program fails: one clear sentence, the right exit code, and no half-written file.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::load::SmallDisk;
use super::{kernel, program, run};

#[track_caller]
fn fails(output: &Output, code: i32, says: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(stderr.contains(says), "{stderr:?} does not say {says:?}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn missing_root_is_explained() {
    let Some(_kernel) = kernel() else { return };
    // The binary may lie where only root may look.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("hbbp-sys");
    std::fs::copy(env!("CARGO_BIN_EXE_hbbp-sys"), &copy).unwrap();
    open_to_all(folder.path());
    let nobody = |args: &[&str]| {
        Command::new(&copy)
            .args(args)
            .uid(65534)
            .gid(65534)
            .output()
            .unwrap()
    };
    fails(&nobody(&["--duration", "1"]), 1, "hbbp-sys");
    let stderr = String::from_utf8(nobody(&["--duration", "1"]).stderr).unwrap();
    assert!(
        stderr.contains("root") || stderr.contains("hbbp-sys check"),
        "{stderr}"
    );
    let check = nobody(&["check"]);
    assert_eq!(check.status.code(), Some(1), "nothing can be measured: {check:?}");
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(
        said.contains("run as root") && said.contains("Default event: none"),
        "{said}"
    );
    let other = said.replace("sudo hbbp-sys check", "");
    assert!(!other.contains("hbbp-sys check"), "it recommends itself: {said}");
}

fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn unknown_targets_are_named() {
    let Some(_kernel) = kernel() else { return };
    fails(
        &run(&["--duration", "1", "--pid", "4194303"]),
        1,
        "no process 4194303",
    );
    fails(&run(&["--duration", "1", "--cpu", "9999"]), 1, "9999");
    fails(
        &run(&["--duration", "1", "--cgroup", "/no/such/cgroup"]),
        1,
        "/no/such/cgroup",
    );
    fails(&run(&["--", "/no/such/program"]), 1, "/no/such/program");
    fails(&run(&["--duration", "1", "--event", "flops"]), 1, "cpu-clock");
    fails(
        &run(&["--duration", "1", "--event", "nopmu/config=1/"]),
        1,
        "nopmu",
    );
}

#[test]
fn invalid_options_are_usage_errors() {
    fails(&run(&["--cpu", "none"]), 2, "0-3,8");
    fails(&run(&["--pid", "1", "--cpu", "0"]), 2, "cannot be used with");
    let Some(_kernel) = kernel() else { return };
    fails(
        &run(&["--duration", "1", "--event", "cpu-clock", "--period", "100"]),
        1,
        "--period",
    );
    fails(
        &run(&[
            "--duration",
            "1",
            "--event",
            "cpu-clock",
            "--frequency",
            "100000000",
        ]),
        1,
        "perf_event_max_sample_rate",
    );
}

#[test]
fn full_disk_keeps_the_old_file() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let Some(disk) = SmallDisk::mount(path) else {
        return;
    };
    let file = folder.path().join("old.hbbp");
    std::fs::write(&file, "old").unwrap();
    let output = run(&["record", "--duration", "1", "-o", file.to_str().unwrap()]);
    let (kept, n_files) = (
        std::fs::read(&file).unwrap(),
        std::fs::read_dir(folder.path()).unwrap().count(),
    );
    drop(disk);
    fails(&output, 1, "No space left");
    let said = String::from_utf8(output.stderr).unwrap();
    let (_, elsewhere) = said.split_once("it was saved as ").unwrap();
    let elsewhere = Path::new(elsewhere.split_once(" instead").unwrap().0);
    let saved = hbbp_model::profile::read(elsewhere);
    std::fs::remove_file(elsewhere).unwrap();
    assert!(!saved.unwrap().intervals.is_empty(), "the recording is not lost");
    assert_eq!(kept, b"old", "the old file is whole");
    assert_eq!(n_files, 1, "no half-written file stays");
}

#[test]
fn too_few_open_files_are_explained() {
    let Some(_kernel) = kernel() else { return };
    for limit in ["8", "12", "20"] {
        let binary = env!("CARGO_BIN_EXE_hbbp-sys");
        let script = format!("ulimit -n {limit}; exec {binary} --duration 200ms");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        fails(&output, 1, "ulimit -n");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains(&format!("({limit})")) && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn unwritable_output_fails_early_or_after_the_report() {
    let Some(_kernel) = kernel() else { return };
    // It would take an hour to measure.
    fails(
        &run(&["--duration", "1h", "-o", "/no/such/dir/x"]),
        1,
        "/no/such/dir/x",
    );
    fails(&run(&["record", "--duration", "1h", "-o", "/tmp"]), 1, "/tmp");
    let full = run(&["--duration", "200ms", "-o", "/dev/full", "--details"]);
    fails(&full, 1, "No space left");
    assert!(String::from_utf8_lossy(&full.stdout).contains("Sample accounting"));
}

#[test]
fn closed_pipe_is_not_an_error() {
    let Some(_kernel) = kernel() else { return };
    let mut child = program(&["--duration", "500ms", "--top", "all", "--details"]);
    let mut child = child
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn signal_ends_the_wait_for_the_command() {
    let Some(_kernel) = kernel() else { return };
    let mut group = Group::spawn(
        &["--duration", "300ms", "--details", "--", "sleep", "1000000"],
        Stdio::piped(),
    );
    let mut report = String::new();
    let mut out = std::io::BufReader::new(group.0.stdout.take().unwrap());
    while !report.contains("in the figures") {
        assert!(0 < std::io::BufRead::read_line(&mut out, &mut report).unwrap());
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    // Without a signal it would wait for the command.
    assert_eq!(group.signal_until_it_ends(libc::SIGTERM), Some(130));
}

/// The program in a process group of its own, which ends with the test: the command that it measures outlives it.
struct Group(std::process::Child);

impl Group {
    fn spawn(args: &[&str], out: Stdio) -> Self {
        let mut program = program(args);
        Self(
            program
                .process_group(0)
                .stdout(out)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    /// Sends the signal until the program has ended: on a busy machine a second one may come before the first was taken,
    /// and is none then.
    fn signal_until_it_ends(&mut self, signal: i32) -> Option<i32> {
        while self.0.try_wait().unwrap().is_none() {
            // SAFETY: a signal to a child that has not been waited for.
            assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        self.0.wait().unwrap().code()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: a signal to the group that was made for this child; where no process is left it does nothing.
        unsafe { libc::kill(-self.pid(), libc::SIGKILL) };
    }
}

#[test]
fn second_signal_aborts() {
    let Some(_kernel) = kernel() else { return };
    let args = ["--duration", "1000000", "--", "sleep", "1000000"];
    let mut group = Group::spawn(&args, Stdio::null());
    super::wait_until_it_listens(group.0.id(), libc::SIGINT);
    assert_eq!(group.signal_until_it_ends(libc::SIGINT), Some(130));
    let said = group.0.stderr.take().unwrap();
    // The command holds the pipe, too.
    drop(group);
    let said = std::io::read_to_string(said).unwrap();
    assert!(said.contains("was complete before"), "{said}");
}

/// The kernel gives up verifying a program when a signal is pending for the thread that loads it. So the main thread
/// blocks the signals that another one handles, and the command is started without them blocked.
#[test]
fn signals_never_reach_the_thread_that_loads_programs() {
    let Some(_kernel) = kernel() else { return };
    let blocked = [libc::SIGINT, libc::SIGTERM].map(|signal| 1 << (signal - 1));
    let blocked = blocked.iter().sum::<u64>();
    let args = ["--duration", "1000000", "--", "sleep", "1000000"];
    let mut group = Group::spawn(&args, Stdio::null());
    let pid = group.0.id();
    super::wait_until_it_listens(pid, libc::SIGINT);
    while super::signal_set(pid, "SigBlk:") & blocked != blocked {
        assert!(group.0.try_wait().unwrap().is_none(), "it ended");
    }
    drop(group);
    // A shell would unblock them.
    let output = run(&["--duration", "1", "--", "grep", "SigBlk", "/proc/self/status"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("SigBlk:\t0000000000000000"), "{said}");
}

/// However early it comes, a signal ends the measurement in order.
#[test]
fn a_signal_at_the_start_still_gives_a_report() {
    let Some(_kernel) = kernel() else { return };
    for delay in (0..10).map(|step| std::time::Duration::from_millis(8 * step)) {
        let mut child = program(&["--duration", "1000000", "--details"]);
        let child = child
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        super::wait_until_it_listens(child.id(), libc::SIGINT);
        std::thread::sleep(delay);
        // SAFETY: a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) }, 0);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{delay:?}: {output:?}");
        let report = String::from_utf8(output.stdout).unwrap();
        assert!(report.contains("Sample accounting"), "{delay:?}: {report}");
    }
}

#[test]
fn image_of_another_kernel_is_rejected() {
    let Some(_kernel) = kernel() else { return };
    for (image, why) in [
        ("/nowhere", "does not exist"),
        ("/bin/true", "another kernel"),
        ("/etc/passwd", "neither a kernel image nor a boot image"),
    ] {
        for command in [&["kernel-text"][..], &["--duration", "1"]] {
            let output = run(&[command, &["--vmlinux", image]].concat());
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(
                said.contains(image) && said.contains(why) && said.contains("build id"),
                "{said}"
            );
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}
