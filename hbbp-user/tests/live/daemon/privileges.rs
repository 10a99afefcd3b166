//! The daemon keeps no more rights than it says, on any of its threads, and measures with these.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Daemon, assert_segments_close};
use crate::kernel;
use crate::load::Load;

/// CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_PERFMON, CAP_BPF (include/uapi/linux/capability.h).
const KEPT: u64 = 1 << 2 | 1 << 19 | 1 << 38 | 1 << 39;

/// A user without rights of its own.
const NOBODY: u32 = 65534;

/// `kernel.perf_event_paranoid`, put back when dropped. Above 2 Debian's kernel opens events with CAP_SYS_ADMIN alone.
struct Paranoia(String);

impl Paranoia {
    const PATH: &str = "/proc/sys/kernel/perf_event_paranoid";

    fn at_most_2() -> Self {
        let before = fs::read_to_string(Self::PATH).unwrap();
        if 2 < before.trim().parse::<i32>().unwrap() {
            fs::write(Self::PATH, "2").unwrap();
        }
        Self(before)
    }
}

impl Drop for Paranoia {
    fn drop(&mut self) {
        let _ = fs::write(Self::PATH, &self.0);
    }
}

/// What /proc says of a thread.
type Status = BTreeMap<String, String>;

/// The threads of a process by name.
fn threads(pid: u32) -> Vec<(String, Status)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let read = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let parsed = read.map(|text| {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let status: Status = lines
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        (status["Name"].clone(), status)
    });
    parsed.collect()
}

fn set(status: &Status, name: &str) -> u64 {
    u64::from_str_radix(&status[name], 16).unwrap()
}

/// No thread holds more than what is kept, and those that need nothing hold nothing.
fn assert_limited(pid: u32, main: u64) {
    let threads = threads(pid);
    for (name, status) in &threads {
        let (effective, permitted) = (set(status, "CapEff"), set(status, "CapPrm"));
        let expected = match name.as_str() {
            "metrics" | "segments" | "signals" => 0,
            _ => main,
        };
        assert_eq!((effective, permitted), (expected, expected), "{name}");
        assert_eq!((set(status, "CapInh"), set(status, "CapAmb")), (0, 0), "{name}");
        assert_eq!(
            (&*status["NoNewPrivs"], &*status["Seccomp"]),
            ("1", "2"),
            "{name}"
        );
    }
    let filters = |name: &str| {
        let (_, status) = threads.iter().find(|(it, _)| it == name).unwrap();
        status["Seccomp_filters"].parse::<u32>().unwrap()
    };
    assert!(filters("segments") < filters("metrics"));
}

/// A path of the metrics of a daemon.
fn listening(folder: &Path) -> (String, String) {
    let socket = folder.join("metrics.socket").to_str().unwrap().to_owned();
    (format!("unix:{socket}"), socket)
}

#[test]
fn each_thread_keeps_what_is_stated_and_no_more() {
    let Some(_kernel) = kernel() else { return };
    let (_load, _paranoia) = (Load::syscalls(), Paranoia::at_most_2());
    let made = tempfile::tempdir().unwrap();
    let (address, socket) = listening(made.path());
    let folder = made.path().join("segments");
    let daemon = Daemon::with(&folder, &["--listen", &address]);
    daemon.until_intervals(2);
    let said = daemon.said();
    let keeps = said.lines().find(|line| line.contains("keeps ")).unwrap();
    for name in [
        "CAP_PERFMON (",
        "CAP_BPF (",
        "CAP_SYS_PTRACE (",
        "CAP_DAC_READ_SEARCH (",
    ] {
        assert!(keeps.contains(name), "{keeps}");
    }
    assert_eq!(keeps.matches("CAP_").count(), 4, "{keeps}");
    assert_limited(daemon.child.id(), KEPT);
    let threads = threads(daemon.child.id());
    for (name, status) in &threads {
        assert_eq!(set(status, "CapBnd"), 0, "{name}");
    }
    assert!(super::metrics::get(Path::new(&socket), "/metrics", "").contains("hbbp_"));
    assert_limited(daemon.child.id(), KEPT);
    daemon.stop();
    assert!(0 < assert_segments_close(&folder));
    assert!(!Path::new(&socket).exists());
}

#[test]
fn five_capabilities_are_enough_to_start() {
    let Some(_kernel) = kernel() else { return };
    let (_load, _paranoia) = ([Load::syscalls(), Load::spin()], Paranoia::at_most_2());
    let made = tempfile::tempdir().unwrap();
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = made.path().join("hbbp-sys");
    fs::copy(env!("CARGO_BIN_EXE_hbbp-sys"), &program).unwrap();
    let folder = made.path().join("segments");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    let socket = folder.join("metrics.socket");
    let capabilities = "-all,+bpf,+perfmon,+syslog,+sys_ptrace,+dac_read_search";
    let mut command = Command::new("setpriv");
    command
        .args([
            &format!("--reuid={NOBODY}"),
            &format!("--regid={NOBODY}"),
            "--clear-groups",
            &format!("--inh-caps={capabilities}"),
            &format!("--ambient-caps={capabilities}"),
        ])
        .arg(program)
        .args(["daemon", "--interval", "1", "--dir"])
        .arg(&folder)
        .args(["--listen", &format!("unix:{}", socket.display())])
        .env_remove("SUDO_UID")
        .stdin(Stdio::null());
    let daemon = Daemon::of(command, &folder);
    daemon.until_intervals(2);
    assert_limited(daemon.child.id(), KEPT);
    let said = daemon.stop();
    assert!(!said.contains("lost"), "{said}");
    assert!(0 < assert_segments_close(&folder));
    let report = crate::report_of(folder.to_str().unwrap());
    let text = report["run"]["kernel_text"].to_string();
    println!("kernel text of a user with five capabilities: {text}");
    let (named, counted) = crate::resolved(&report, "kernel");
    assert!(counted / 2 < named, "{named} of {counted} kernel samples");
}

/// A directory that only a dropped capability could write to is refused.
#[test]
fn directory_writable_by_a_dropped_capability_is_refused() {
    let Some(_kernel) = kernel() else { return };
    let made = tempfile::tempdir().unwrap();
    chown(made.path(), Some(NOBODY), None).unwrap();
    let mut command = crate::program(&["daemon", "--dir", made.path().to_str().unwrap()]);
    // As sudo says whose directories are trusted.
    let refused = command.env("SUDO_UID", NOBODY.to_string()).output().unwrap();
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && why.contains("keeps no capability") && why.contains("chown 0"),
        "{why}"
    );
}
