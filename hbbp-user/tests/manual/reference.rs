//! The pages of the book that are written from the program: options, losses, and the glossary of the library. `HBBP_UPDATE=1` rewrites them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};
use hbbp_model::snapshot::Loss;
use hbbp_user::advice::words;
use hbbp_user::cli::Cli;

/// Compares a page with what the program says, or writes it.
#[track_caller]
fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("book/src/reference")
        .join(name);
    if std::env::var_os("HBBP_UPDATE").is_some() {
        fs::write(&path, text).unwrap();
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    assert!(page == text, "{name} is not up to date: run `cargo xtask book`");
}

/// Text for a cell of a table, in one line.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "&lt;").replace('>', "&gt;")
}

fn option(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values = values
        .iter()
        .map(|name| name.as_str())
        .collect::<Vec<_>>()
        .join(" ");
    let has_value = argument.get_action().takes_values();
    let long = argument.get_long().map(|it| format!("--{it}"));
    let short = argument.get_short().map(|it| format!("-{it}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    match (names.is_empty(), has_value) {
        (true, _) => values,
        (false, true) => format!("{} {values}", names.join(", ")),
        (false, false) => names.join(", "),
    }
}

/// A section of a command, and those of the commands below it.
fn section(command: &Command, name: &str, text: &mut String) {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    write!(
        text,
        "\n## {name}\n\n{about}\n\n| option | meaning |\n|---|---|\n"
    )
    .unwrap();
    let shown = command.get_arguments().filter(|it| !it.is_hide_set());
    for argument in shown.filter(|it| it.get_id() != "help") {
        let help = argument.get_long_help().or_else(|| argument.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        writeln!(
            text,
            "| `{}` | {} |",
            option(argument).replace('|', "\\|"),
            cell(&help)
        )
        .unwrap();
    }
    for below in command
        .get_subcommands()
        .filter(|it| !it.is_hide_set() && it.get_name() != "help")
    {
        section(below, &format!("{name} {}", below.get_name()), text);
    }
}

#[test]
fn options_are_those_of_the_command_line() {
    let mut cli = Cli::command();
    cli.build();
    let mut text = "# Options\n\nEach command with its options, as `--help` shows them.\n".to_owned();
    section(&cli, "hbbp-sys", &mut text);
    check("options.md", &text);
}

#[test]
fn glossary_is_that_of_the_library() {
    let library = include_str!("../../src/lib.rs");
    let (_, after) = library.split_once("//! # Glossary\n").unwrap();
    let rows = after.lines().filter_map(|line| line.strip_prefix("//! "));
    let table = rows.skip_while(|row| !row.starts_with('|'));
    let table: Vec<&str> = table.take_while(|row| row.starts_with('|')).collect();
    check("glossary.md", &format!("# Glossary\n\n{}\n", table.join("\n")));
}

#[test]
fn losses_are_those_of_their_table() {
    let mut text = "# Losses\n\nEvery kind of loss or refusal has a counter and a sentence. \
                    JSON and metrics have the names.\n\n\
                    | name | what is counted | what happened, and what you can do |\n|---|---|---|\n"
        .to_owned();
    for loss in Loss::ALL {
        let (name, unit) = (loss.id(), format!("{:?}", loss.unit()).to_lowercase());
        writeln!(text, "| `{name}` | {unit} | {} |", cell(&loss.in_words(words))).unwrap();
    }
    check("losses.md", &text);
}
