//! How a measurement ends: signals that come twice, `timeout` of coreutils, outputs that take nothing, and a terminal that is
//! lost. Nothing ends without a file or a sentence.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{kernel, program, run, wait_until_it_listens, wait_until_it_measures};

/// How long an end may take; a busy machine takes some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

fn send(child: &Child, signal: i32) {
    // SAFETY: a signal to a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

/// How the child ends by itself; `None` if it does not.
fn end_of(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

fn is_whole(profile: &Path) -> bool {
    hbbp_model::profile::read(profile).is_ok()
}

#[test]
fn two_signals_at_once_are_one() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (first, second) in [
        (libc::SIGTERM, libc::SIGTERM),
        (libc::SIGINT, libc::SIGTERM),
        (libc::SIGHUP, libc::SIGINT),
    ] {
        let profile = folder.path().join(format!("{first}-{second}.hbbp"));
        let mut child = program(&["record", "-o", profile.to_str().unwrap()])
            .spawn()
            .unwrap();
        wait_until_it_listens(child.id(), libc::SIGINT);
        send(&child, first);
        std::thread::sleep(Duration::from_millis(5));
        send(&child, second);
        assert_eq!(end_of(&mut child), Some(0), "{first} and {second}");
        assert!(is_whole(&profile), "{first} and {second}");
    }
}

/// Nothing else is printed until it ends, so it says how.
#[test]
fn a_measurement_without_end_says_what_ends_it() {
    let Some(_kernel) = kernel() else { return };
    let mut bare = program(&[]);
    bare.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = bare.spawn().unwrap();
    wait_until_it_listens(child.id(), libc::SIGINT);
    send(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with("hbbp-sys: measuring until Ctrl-C (or for a time: --duration 10)\n"),
        "{said}"
    );
    assert!(!output.stdout.is_empty());
}

#[test]
fn timeout_keeps_the_recording() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_hbbp-sys");
    let forms: [(&[&str], &[&str]); 6] = [
        (&["-s", "INT"], &[]),
        (&["-s", "TERM"], &[]),
        (&["-s", "HUP"], &[]),
        (&["-k", "300"], &[]),
        (&["--foreground"], &[]),
        (&["-s", "INT"], &["--", "sleep", "1000000"]),
    ];
    for (number, (form, command)) in forms.into_iter().enumerate() {
        let profile = folder.path().join(format!("{number}.hbbp"));
        let output = Command::new("timeout")
            .args(form)
            .args(["2", binary, "record", "-o"])
            .arg(&profile)
            .args(command)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(is_whole(&profile), "{form:?} {command:?}: {output:?}");
    }
}

/// The reader of the output never reads: what cannot be saved is said.
#[test]
fn a_later_signal_ends_with_a_sentence() {
    let Some(_kernel) = kernel() else { return };
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let (_unread, full) = std::io::pipe().unwrap();
        // SAFETY: the descriptor is open; a page is the least that a pipe holds.
        assert!(0 < unsafe { libc::fcntl(full.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) });
        let mut filler = &full;
        std::io::Write::write_all(&mut filler, &[0; 4096]).unwrap();
        let mut child = program(&["record", "-o", "-"])
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until_it_measures(child.id());
        for _ in 0..3 {
            send(&child, signal);
            std::thread::sleep(Duration::from_millis(700));
        }
        assert_eq!(end_of(&mut child), Some(130));
        let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        assert!(
            said.contains("a second signal") && said.contains("it is lost"),
            "{said}"
        );
    }
}

#[test]
fn an_output_that_takes_nothing_loses_nothing() {
    let Some(_kernel) = kernel() else { return };
    let elsewhere = |said: &str| {
        let (_, path) = said.split_once("it was saved as ").unwrap();
        let path = Path::new(path.split_once(" instead").unwrap().0);
        let is_whole = is_whole(path);
        std::fs::remove_file(path).unwrap();
        is_whole
    };
    let output = run(&["record", "--duration", "200ms", "-o", "/dev/full"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && elsewhere(&said), "{said}");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child = program(&["record", "--duration", "200ms", "-o", "-"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && elsewhere(&said), "{said}");
}

/// A pseudo terminal: the end of who draws and types, and the path of the other one.
fn terminal() -> (OwnedFd, CString) {
    // SAFETY: takes flags alone.
    let fd = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
    assert!(0 <= fd);
    // SAFETY: the descriptor is new and has no other owner.
    let ours = unsafe { OwnedFd::from_raw_fd(fd) };
    let size = libc::winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the descriptor is that of a terminal, and the size lives through the call.
    assert_eq!(unsafe { libc::ioctl(fd, libc::TIOCSWINSZ, &raw const size) }, 0);
    let mut name = [0; 64];
    // SAFETY: the descriptor is that of a terminal.
    assert_eq!(unsafe { libc::unlockpt(fd) }, 0);
    // SAFETY: the buffer is as long as said.
    assert_eq!(unsafe { libc::ptsname_r(fd, name.as_mut_ptr(), name.len()) }, 0);
    // SAFETY: the call has written a string with its zero.
    let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) }.to_owned();
    (ours, name)
}

/// What standard input of `top` is, and whether the terminal is that of its session, which is notified when it is lost.
#[derive(Clone, Copy, Debug)]
enum Lost {
    /// The terminal of the session.
    OfSession,
    /// The terminal of another one: there is no signal.
    OfOthers,
    /// Nothing: keys come from the terminal of the session.
    WithoutInput,
}

#[test]
fn top_ends_with_its_terminal() {
    let Some(_kernel) = kernel() else { return };
    for lost in [Lost::OfSession, Lost::OfOthers, Lost::WithoutInput] {
        let (ours, name) = terminal();
        let path = Path::new(name.to_str().unwrap());
        let open = || {
            let mut options = File::options();
            std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOCTTY);
            options.read(true).write(true).open(path).unwrap()
        };
        let mut command = program(&["top"]);
        command.stdout(open()).stderr(open());
        if !matches!(lost, Lost::WithoutInput) {
            command.stdin(open());
        }
        let is_own = !matches!(lost, Lost::OfOthers);
        let begin = move || {
            // SAFETY: takes nothing, and is safe after a fork (signal-safety(7)).
            let mut is_begun = unsafe { libc::setsid() } != -1;
            if is_own {
                // SAFETY: the descriptor is that of the terminal; a system call alone.
                is_begun &= unsafe { libc::ioctl(1, libc::TIOCSCTTY, 0) } == 0;
            }
            if is_begun {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        };
        // SAFETY: the closure makes two system calls.
        unsafe { command.pre_exec(begin) };
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut screen = File::from(ours);
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("share") {
            let mut part = [0; 4096];
            let n = std::io::Read::read(&mut screen, &mut part).unwrap();
            seen.extend_from_slice(&part[..n]);
        }
        drop(screen);
        assert_eq!(end_of(&mut child), Some(0), "{lost:?}");
    }
}
