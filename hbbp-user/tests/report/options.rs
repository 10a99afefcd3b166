//! Messages and help name only options and subcommands that the command line defines.

use std::collections::BTreeSet;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use hbbp_user::cli::Cli;

/// Options of `perf record`, `perf script` and valgrind that messages about recordings and references name, and of those that read exports.
const OF_OTHERS: [&str; 10] = [
    "performance-monitoring-unit",
    "call-graph",
    "show-mmap-events",
    "threads",
    "tool",
    "dump-instr",
    "pa",
    "unsymbolized-profile",
    "profiler",
    "perfscript",
];

/// The long options of a command and of its subcommands.
fn options(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().flat_map(|arg| {
        let aliases = arg.get_visible_aliases().unwrap_or_default();
        arg.get_long().into_iter().chain(aliases).map(str::to_owned)
    });
    own.chain(command.get_subcommands().flat_map(options)).collect()
}

/// The names that follow each `prefix` in a text: lower-case letters and hyphens.
fn names<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    let after = text
        .match_indices(prefix)
        .map(|(at, _)| &text[at + prefix.len()..]);
    let names = after.map(|rest| rest.split(|c| !is_part(c)).next().unwrap_or_default());
    names
        .map(|name| name.trim_matches('-'))
        .filter(|name| !name.is_empty())
        .collect()
}

/// Each line of the sources outside comments and tests, and of the help, with its location.
fn messages(command: &Command) -> Vec<(String, String)> {
    let mut messages = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let shown = text.split("#[cfg(test)]").next().unwrap_or_default();
                let lines = shown.lines().filter(|line| !line.trim_start().starts_with("//"));
                messages.extend(lines.map(|line| (path.display().to_string(), line.to_owned())));
            }
        }
    }
    let help = command.clone().render_long_help().to_string();
    messages.push((command.get_name().to_owned(), help));
    for command in command.get_subcommands() {
        let help = command.clone().render_long_help().to_string();
        messages.push((command.get_name().to_owned(), help));
    }
    messages
}

#[test]
fn options_in_messages_exist() {
    let mut command = Cli::command();
    command.build();
    let options = options(&command);
    let known = |name: &str| options.contains(name) || OF_OTHERS.contains(&name);
    for (place, message) in messages(&command) {
        for name in names(&message, "--") {
            assert!(known(name), "{place}: no option --{name}: {message}");
        }
    }
}

#[test]
fn subcommands_in_messages_exist() {
    let mut command = Cli::command();
    command.build();
    for (place, message) in messages(&command) {
        for name in names(&message, "`hbbp-sys ") {
            let found = command.find_subcommand(name).is_some();
            assert!(found, "{place}: no subcommand {name}: {message}");
        }
    }
}

/// The command line as it is shown on a terminal of this many columns, and its subcommands.
fn commands(width: usize) -> Vec<Command> {
    let mut command = Cli::command().term_width(width);
    command.build();
    let below: Vec<Command> = command.get_subcommands().cloned().collect();
    std::iter::once(command).chain(below).collect()
}

/// A newcomer reads a help of at most 40 lines, on a terminal of 80 columns; `--help` has everything.
#[test]
fn short_help_is_read_at_a_glance() {
    const FEW: usize = 40;

    for mut command in commands(80) {
        let short = command.render_help().to_string();
        let whole = command.render_long_help().to_string();
        let name = command.get_name();
        assert!(short.lines().count() <= FEW, "{name}: {short}");
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(whole.contains(&format!("--{option}")), "--{option}: {whole}");
        }
    }
    let short = commands(80)[0].render_help().to_string();
    assert!(
        short.contains("--duration") && !short.contains("--map-entries"),
        "{short}"
    );
}

/// The list of subcommands is a list: each has one line.
#[test]
fn subcommands_have_a_line_each() {
    let commands = commands(80);
    let list = commands[0].clone().render_help().to_string();
    for command in commands[1..].iter().filter(|it| !it.is_hide_set()) {
        let line = list
            .lines()
            .find(|line| line.trim_start().starts_with(command.get_name()));
        let about = command.get_about().unwrap().to_string();
        assert!(line.is_some_and(|line| line.ends_with(&about)), "{about}: {list}");
    }
}

/// A heading of the help has its own options: what follows them has the usual one.
#[test]
fn recording_files_have_a_heading_of_their_own() {
    const FILES: [&str; 7] = [
        "binary",
        "force",
        "kcore",
        "per_thread",
        "pid",
        "symfs",
        "vmlinux",
    ];
    let mut n_commands = 0;
    for command in commands(80) {
        let of_files = command
            .get_arguments()
            .filter(|arg| arg.get_help_heading() == Some("Recording files"));
        let mut of_files: Vec<&str> = of_files.map(|arg| arg.get_id().as_str()).collect();
        of_files.sort_unstable();
        n_commands += usize::from(!of_files.is_empty());
        let expected: &[&str] = if of_files.is_empty() { &[] } else { &FILES };
        assert_eq!(of_files, expected, "{}", command.get_name());
    }
    assert_eq!(n_commands, 5, "annotate, diff, export, import, report");
}

#[test]
fn export_explains_each_format() {
    let command = Cli::command();
    let export = command.find_subcommand("export").unwrap();
    for name in ["format", "source"] {
        let argument = export.get_arguments().find(|it| it.get_id() == name).unwrap();
        let values = argument.get_possible_values();
        assert!(!values.is_empty());
        for value in values {
            assert!(value.get_help().is_some(), "--{name} {}", value.get_name());
        }
    }
}

/// Each command says what it can print, and refuses what it cannot before it reads a file.
#[test]
fn formats_that_cannot_be_printed_are_refused() {
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hbbp-sys"));
        let output = command.args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (args, format, possible) in [
        (&["diff", "a", "b"][..], "html", "text, json, csv"),
        (&["annotate", "a", "main"], "html", "text, json"),
        (&["annotate", "a", "main"], "csv", "text, json"),
        (&["eval", "--reference", "b", "a"], "csv", "text, json, html"),
        (&["check"], "html", "text, json"),
        (&["report", "a"], "xml", "text, json, csv, html"),
    ] {
        let (code, error) = run(&[args, &["--format", format]].concat());
        assert_eq!(code, Some(2), "{args:?}: {error}");
        let expected = format!("[possible values: {possible}]");
        assert!(
            error.contains(&format!("'{format}' for '--format")) && error.contains(&expected),
            "{args:?}: {error}"
        );
    }
}
