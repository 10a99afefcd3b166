//! The Debian package and the service in it: what they hold, and how far the service is confined.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail and talk like tests")]

use hbbp_testing::missing;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory as _;
use hbbp_user::cli::Cli;

const UNIT: &str = include_str!("../../package/hbbp-sys.service");

/// The most exposure that systemd may see in the service, in tenths.
const MOST_EXPOSED: u32 = 25;

fn package_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("package")
}

/// The output of a command that must succeed; `None` if there is no such program.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{why}");
    Some(said)
}

/// The lines of the service that set something.
fn settings() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = UNIT.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('='))
}

#[test]
fn service_is_confined() {
    let mut analyze = Command::new("systemd-analyze");
    analyze
        .args(["security", "--offline=true", "--no-pager"])
        .arg(format!("--threshold={MOST_EXPOSED}"))
        .arg(package_folder().join("hbbp-sys.service"));
    let Some(said) = output(&mut analyze) else {
        missing::missing("systemd-analyze is missing (package systemd)");
        return;
    };
    println!("{}", said.lines().last().unwrap());
    assert!(said.contains("Overall exposure level"), "{said}");
}

#[test]
fn service_keeps_what_measuring_needs() {
    for (name, value) in settings() {
        let takes_away = [
            "ProtectKernelLogs",
            "ProtectKernelTunables",
            "ProtectProc",
            "ProcSubset",
            "PrivateUsers",
        ];
        assert!(!takes_away.contains(&name), "{name}={value}");
    }
    let value = |name: &str| settings().find(|(it, _)| *it == name).unwrap().1;
    let mut granted: Vec<&str> = value("AmbientCapabilities").split(' ').collect();
    granted.sort_unstable();
    let needed = ["BPF", "DAC_READ_SEARCH", "PERFMON", "SYSLOG", "SYS_PTRACE"];
    assert_eq!(granted, needed.map(|name| format!("CAP_{name}")));
    assert_eq!(value("AmbientCapabilities"), value("CapabilityBoundingSet"));
}

/// The system calls of a daemon with metrics on this C library and of the workers that it starts, as strace shows them.
const CALLS: &str = "accept4 bind bpf brk capget capset clock_gettime clone3 close close_range dup3 epoll_create1 epoll_ctl \
    epoll_pwait eventfd2 exit exit_group faccessat2 fcntl flock fstat fsync futex getdents64 geteuid getpid getrandom getrusage \
    gettid ioctl kill listen lseek madvise memfd_create mmap mprotect munmap newfstatat openat openat2 perf_event_open prctl \
    pread64 prlimit64 read readlinkat recvfrom recvmsg renameat rseq rt_sigaction rt_sigprocmask sched_getaffinity seccomp \
    sendmsg sendto set_robust_list setsockopt shutdown sigaltstack socket socketpair statx unlinkat wait4 write writev";

/// The system calls of a word of the filter of the service: the call, or those of a set of systemd.
fn calls_of(word: &str) -> BTreeSet<String> {
    if !word.starts_with('@') {
        return BTreeSet::from([word.to_owned()]);
    }
    let said = output(Command::new("systemd-analyze").args(["syscall-filter", "--no-pager", word])).unwrap();
    let lines = said.lines().skip(1).map(str::trim);
    let words = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    words.flat_map(calls_of).collect()
}

#[test]
fn filter_of_the_service_lets_the_daemon_work() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        missing::missing("systemd-analyze is missing (package systemd)");
        return;
    }
    let mut allowed = calls_of("@default");
    for (_, words) in settings().filter(|(name, _)| *name == "SystemCallFilter") {
        let (takes, words) = match words.strip_prefix('~') {
            Some(words) => (true, words),
            None => (false, words),
        };
        for call in words.split(' ').flat_map(calls_of) {
            if takes {
                allowed.remove(&call);
            } else {
                allowed.insert(call);
            }
        }
    }
    let refused: Vec<&str> = CALLS
        .split_whitespace()
        .filter(|call| !allowed.contains(*call))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
    for dangerous in ["execve", "ptrace", "mount", "init_module", "kexec_load", "setuid"] {
        assert_eq!(allowed.contains(dangerous), dangerous == "execve", "{dangerous}");
    }
}

#[test]
fn service_says_why_of_each_line() {
    let mut has_reason = false;
    for line in UNIT.lines().skip_while(|line| *line != "[Service]") {
        match line.chars().next() {
            Some('#') => has_reason = true,
            // A reason applies to the lines up to the next empty one.
            None => has_reason = false,
            Some('[') => {}
            Some(_) => assert!(
                has_reason || ["ExecStart", "WantedBy"].iter().any(|it| line.starts_with(it)),
                "{line}"
            ),
        }
    }
}

#[test]
fn command_of_the_service_is_one_of_the_program() {
    let command = settings().find(|(name, _)| *name == "ExecStart").unwrap().1;
    let words = command.split(' ').map(|word| match word {
        "${STATE_DIRECTORY}" => "/var/lib/hbbp-sys".to_owned(),
        word => word.replace("${RUNTIME_DIRECTORY}", "/run/hbbp-sys"),
    });
    Cli::command().try_get_matches_from(words).unwrap();
}

/// Removing stops the service, and purging removes its profiles.
fn assert_scripts(package: &Path, folder: &Path) {
    let scripts = folder.join("scripts");
    output(
        Command::new("dpkg-deb")
            .arg("--control")
            .arg(package)
            .arg(&scripts),
    )
    .unwrap();
    for (script, line) in [
        ("prerm", "deb-systemd-invoke stop hbbp-sys.service"),
        ("postrm", "rm -rf /var/lib/private/hbbp-sys /var/lib/hbbp-sys"),
    ] {
        let text = std::fs::read_to_string(scripts.join(script)).unwrap();
        assert!(text.contains(line), "{script}: {text}");
    }
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn package_holds_the_program_its_service_and_its_manual() {
    let is_there = Command::new("cargo").args(["deb", "--version"]).output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        missing::missing("cargo-deb is missing: cargo install --locked cargo-deb");
        return;
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_hbbp-sys"));
    let man = workspace.join("target/man");
    output(Command::new(program).args(["man", "--output"]).arg(&man)).unwrap();
    for (shell, file) in [
        ("bash", "hbbp-sys.bash"),
        ("zsh", "_hbbp-sys"),
        ("fish", "hbbp-sys.fish"),
    ] {
        let script = output(Command::new(program).args(["completions", shell])).unwrap();
        std::fs::write(man.join(file), script).unwrap();
    }
    let made = tempfile::tempdir().unwrap();
    let package = made.path().join("hbbp-sys.deb");
    let profile = match program.parent().unwrap().file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    output(
        Command::new("cargo")
            .current_dir(workspace)
            .args(["deb", "--quiet", "--no-build", "--fast", "--package", "hbbp-sys"])
            .args(["--maintainer", "A Maintainer <maintainer@example.org>"])
            .args(["--profile", profile, "--output"])
            .arg(&package),
    );
    let about = |what: &str| output(Command::new("dpkg-deb").arg(what).arg(&package)).unwrap();
    let info = about("--info");
    let version = env!("CARGO_PKG_VERSION");
    for line in [
        "Package: hbbp-sys",
        "Architecture: amd64",
        "Depends: libc6",
        &format!("Version: {version}"),
    ] {
        assert!(info.contains(line), "{line}: {info}");
    }
    let contents = about("--contents");
    for (mode, path) in [
        ("-rwxr-xr-x", "./usr/bin/hbbp-sys"),
        ("-rw-r--r--", "./usr/lib/systemd/system/hbbp-sys.service"),
        ("-rw-r--r--", "./usr/share/man/man1/hbbp-sys-daemon.1.gz"),
        ("-rw-r--r--", "./usr/share/doc/hbbp-sys/copyright"),
        ("-rw-r--r--", "./usr/share/doc/hbbp-sys/monitoring/alerts.yaml"),
        ("-rw-r--r--", "./usr/share/doc/hbbp-sys/monitoring/dashboard.json"),
    ] {
        let has = |line: &str| line.starts_with(mode) && line.ends_with(path);
        assert!(contents.lines().any(has), "{path}: {contents}");
    }
    assert_scripts(&package, made.path());
    // What is installed runs.
    let root = made.path().join("root");
    output(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&root));
    let said = output(Command::new(root.join("usr/bin/hbbp-sys")).arg("--version")).unwrap();
    assert!(said.contains(version), "{said}");
}
