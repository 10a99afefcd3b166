//! `hbbp-sys top` on a terminal of tmux: what is on the screen, what keys do, and what is left when it ends.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::load::Load;
use super::{kernel, run, skip_outside_ci};

/// How long a screen may take to show what is waited for; a busy machine takes some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a shell of its own; it is gone when the test ends.
struct Terminal {
    socket: tempfile::TempDir,
}

impl Terminal {
    /// A shell on a terminal of this size; `None` without tmux.
    fn open(width: u32, height: u32) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skip_outside_ci("tmux is not installed");
            return None;
        }
        let terminal = Self {
            socket: tempfile::tempdir().unwrap(),
        };
        let (width, height) = (width.to_string(), height.to_string());
        let opened = terminal.tmux(&[
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            "env PS1='$ ' sh",
        ]);
        assert!(opened.status.success(), "{opened:?}");
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(self.socket.path().join("socket"));
        tmux.args(["-f", "/dev/null"]).env("LC_ALL", "C.UTF-8");
        tmux.args(args).output().unwrap()
    }

    fn keys(&self, keys: &[&str]) {
        let sent = self.tmux(&[&["send-keys"], keys].concat());
        assert!(sent.status.success(), "{sent:?}");
    }

    /// A key right after another width of the screen.
    fn resize_and_press(&self, width: &str, key: &str) {
        let done = self.tmux(&["resize-window", "-x", width, ";", "send-keys", key]);
        assert!(done.status.success(), "{done:?}");
    }

    fn screen(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }

    /// Starts `top` in a folder; its first screen.
    fn start_top(&self, folder: &str) -> String {
        self.keys(&[&started(folder), "Enter"]);
        self.until("functions", |screen| screen.contains("FUNCTIONS by share"))
    }

    /// The screen as soon as it shows what is waited for.
    fn until(&self, what: &str, shows: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if shows(&screen) {
                return screen;
            }
            assert!(start.elapsed() < PATIENCE, "no {what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// The command line that starts the program, which says how it ended, and whether the terminal is as before.
fn started(folder: &str) -> String {
    let program = env!("CARGO_BIN_EXE_hbbp-sys");
    format!(
        "cd {folder}; a=$(stty -g); {program} top; echo \"code $?\"; [ \"$a\" = \"$(stty -g)\" ] && echo terminal \"as before\""
    )
}

#[test]
fn keys_drive_the_screen_and_the_terminal_is_left_as_it_was() {
    let Some(_kernel) = kernel() else { return };
    let Some(terminal) = Terminal::open(80, 24) else {
        return;
    };
    let _load = Load::syscalls();
    let folder = tempfile::tempdir().unwrap();
    let first = terminal.start_top(folder.path().to_str().unwrap());
    assert!(first.lines().all(|line| line.chars().count() <= 80), "{first}");
    assert!(
        first.contains("% complete") && first.lines().any(|line| line.starts_with("kernel ")),
        "{first}"
    );
    for (key, title) in [
        ("m", "MODULES"),
        ("p", "PROCESSES"),
        ("i", "INSTRUCTIONS"),
        ("e", "EXTENSIONS"),
        ("c", "CATEGORIES"),
    ] {
        terminal.keys(&[key]);
        terminal.until(title, |screen| screen.contains(&format!("{title} by share")));
    }
    assert_code_is_shown(&terminal);
    terminal.tmux(&["resize-window", "-x", "200", "-y", "60"]);
    terminal.until("a large screen", |screen| {
        let last = screen.lines().nth(59);
        last.is_some_and(|keys| keys.contains("w save"))
    });
    terminal.keys(&["w"]);
    terminal.until("a saved profile", |screen| {
        screen.contains("saved the last minute")
    });
    let saved = std::fs::read_dir(&folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let report = run(&["report", saved.to_str().unwrap(), "--top", "3"]);
    assert!(report.status.success(), "{report:?}");
    terminal.keys(&["q"]);
    let end = terminal.until("an end", |screen| screen.contains("terminal as before"));
    assert!(end.contains("code 0") && !end.contains("FUNCTIONS"), "{end}");
}

/// Keys that come together with the signal of another size are not left until the next key.
#[test]
fn keys_pressed_while_the_screen_is_resized_count() {
    let Some(_kernel) = kernel() else { return };
    let Some(terminal) = Terminal::open(80, 24) else {
        return;
    };
    let _load = Load::syscalls();
    let folder = tempfile::tempdir().unwrap();
    terminal.start_top(folder.path().to_str().unwrap());
    for round in 0..12 {
        let (key, title) = [("m", "MODULES"), ("f", "FUNCTIONS")][round % 2];
        let width = (100 + round).to_string();
        terminal.resize_and_press(&width, key);
        terminal.until(title, |screen| screen.contains(&format!("{title} by share")));
    }
    terminal.keys(&["q"]);
    terminal.until("an end", |screen| screen.contains("terminal as before"));
}

/// From the table of functions: the kernel alone, a filter, a frozen screen, the code of a function, and back.
fn assert_code_is_shown(terminal: &Terminal) {
    terminal.keys(&["f", "r"]);
    terminal.until("the kernel alone", |screen| screen.contains("kernel only"));
    // The load reads random numbers, most of the time in one function.
    terminal.keys(&["/", "chacha", "Enter"]);
    let filtered = terminal.until("the filter", |screen| screen.contains("with \"chacha\""));
    let rows: Vec<&str> = filtered
        .lines()
        .skip(5)
        .filter(|line| line.contains("[kernel]"))
        .collect();
    assert!(
        !rows.is_empty() && rows.iter().all(|row| row.contains("chacha")),
        "{filtered}"
    );
    terminal.keys(&["Space"]);
    terminal.until("a frozen screen", |screen| {
        screen.lines().any(|line| line.starts_with("FROZEN"))
    });
    terminal.keys(&["Enter"]);
    let code = terminal.until("code", |screen| screen.contains("Esc back"));
    assert!(code.contains("chacha") && code.contains("EBS"), "{code}");
    terminal.keys(&["Escape"]);
}

#[test]
fn signal_and_error_leave_the_terminal_as_it_was() {
    let Some(_kernel) = kernel() else { return };
    let Some(terminal) = Terminal::open(80, 24) else {
        return;
    };
    terminal.start_top("/");
    let shell = String::from_utf8(terminal.tmux(&["display-message", "-p", "#{pane_pid}"]).stdout).unwrap();
    let shell = shell.trim();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    let kill = Command::new("sh")
        .args(["-c", &format!("kill -TERM {children}")])
        .status();
    assert!(kill.unwrap().success());
    let end = terminal.until("an end", |screen| screen.contains("terminal as before"));
    assert!(end.contains("code 0"), "{end}");
    terminal.keys(&["clear", "Enter"]);
    terminal.until("an empty screen", |screen| !screen.contains("terminal as before"));
    let refused = started("/").replace("hbbp-sys top", "hbbp-sys top --event no-such-event");
    terminal.keys(&[&refused, "Enter"]);
    let end = terminal.until("an end", |screen| screen.contains("terminal as before"));
    assert!(end.contains("code 1") && end.contains("no-such-event"), "{end}");
}

#[test]
fn batch_prints_plain_lines() {
    let Some(_kernel) = kernel() else { return };
    let _load = Load::syscalls();
    let output = run(&["top", "--batch", "-n", "2", "--table", "modules", "--top", "1000"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let intervals: Vec<&str> = text.trim_end().split("\n\n").collect();
    assert_eq!(intervals.len(), 2, "{text}");
    for interval in intervals {
        let lines: Vec<&str> = interval
            .lines()
            .skip_while(|line| !line.contains(" samples, "))
            .collect();
        assert!(
            lines[0].contains(" samples, ") && lines[0].contains("overhead"),
            "{text}"
        );
        assert!(
            lines.iter().skip(2).any(|line| line.ends_with("[kernel]")),
            "{text}"
        );
        assert!(!interval.contains('\u{1b}'), "{text}");
    }
    let no_terminal = run(&["top"]);
    let said = String::from_utf8(no_terminal.stderr).unwrap();
    assert!(
        !no_terminal.status.success() && said.contains("top --batch"),
        "{said}"
    );
}
