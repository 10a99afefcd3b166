//! The self-test on this machine: what it says, and that nothing is left of it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{kernel, program, run};

/// How long a start or an end may take; a busy machine takes some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until there is an answer.
fn awaited<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let answer = ask();
        if answer.is_some() || PATIENCE < start.elapsed() {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The process that runs the loads for this one.
fn loads_of(parent: &Child) -> Option<u32> {
    let asked = format!("selftest-loads\0{}\0", parent.id());
    std::fs::read_dir("/proc").unwrap().find_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        String::from_utf8_lossy(&words).contains(&asked).then_some(pid)
    })
}

fn is_gone(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // Whoever is its parent now may not have reaped it yet.
    stat.map_or(true, |stat| stat.contains(") Z "))
}

/// The last line of what it prints and its exit code are one verdict; a profile is kept where one was asked for.
#[test]
fn selftest_says_whether_all_passed() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("selftest.hbbp");
    let output = run(&["selftest", "--duration", "2", "-o", profile.to_str().unwrap()]);
    let (printed, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{printed}{said}");
    let last = printed.lines().last().unwrap();
    assert!(last.starts_with("PASS: "), "{printed}");
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let rows = |name: &str| {
        printed
            .lines()
            .filter(|line| line.starts_with(name) && line.ends_with("PASS"))
            .count()
    };
    for name in ["nested_loops", "divisions", "strings", "vectors_128"] {
        assert_eq!(rows(name), 1, "{name}: {printed}");
    }
    if printed.contains("sampled: cpu-clock\n") {
        assert!(last.ends_with("executions were not tested"), "{printed}");
        assert!(
            printed.contains("not tested: executions, branch stacks and counters: "),
            "{printed}"
        );
        assert_eq!(rows("system calls"), 1, "{printed}");
    }
    let kept = hbbp_model::profile::read(Path::new(&profile)).unwrap();
    assert!(
        kept.modules
            .iter()
            .any(|module| module.name.contains("hbbp-selftest"))
    );
    assert!(said.contains("saved "), "{said}");
}

/// A container leaves root these of its capabilities (the default of Docker), and none that a measurement needs.
const OF_A_CONTAINER: &str = "--bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,\
                              +net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap";

/// Root of a container cannot be helped by sudo.
#[test]
fn selftest_in_a_container_says_what_is_missing() {
    let Some(_kernel) = kernel() else { return };
    let output = Command::new("setpriv")
        .args(["--inh-caps=-all", OF_A_CONTAINER])
        .args([env!("CARGO_BIN_EXE_hbbp-sys"), "selftest", "--duration", "1"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("root has neither CAP_PERFMON and CAP_BPF"),
        "{said}"
    );
    assert!(!said.contains("sudo") && output.stdout.is_empty(), "{said}");
}

#[test]
fn selftest_refuses_two_durations() {
    assert_eq!(
        run(&["selftest", "--quick", "--duration", "1"]).status.code(),
        Some(2)
    );
}

#[test]
fn loads_end_with_the_selftest_that_is_killed() {
    let Some(_kernel) = kernel() else { return };
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        let mut selftest = program(&["selftest", "--duration", "1h"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let loads = awaited(|| loads_of(&selftest)).unwrap();
        // SAFETY: a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(selftest.id().cast_signed(), signal) }, 0);
        assert!(awaited(|| selftest.try_wait().unwrap()).is_some());
        assert!(awaited(|| is_gone(loads).then_some(())).is_some(), "{signal}");
        let output = selftest.wait_with_output().unwrap();
        if signal == libc::SIGTERM {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.code() == Some(1) && said.contains("interrupted"),
                "{said}"
            );
        }
    }
}
