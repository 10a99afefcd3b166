//! Holds the words of each advice against the definition of the command line.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory as _};

use super::Cli;
use crate::advice::words;
use hbbp_model::advice::Advice;

/// The long options of a command and of those below it, by all names that its help shows.
fn options(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments();
    let own = own.filter_map(|argument| argument.get_long_and_visible_aliases());
    let below = command.get_subcommands().flat_map(options);
    own.flatten().map(str::to_owned).chain(below).collect()
}

/// The options that a text names, without their hyphens.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter_map(|word| word.strip_prefix("--"))
}

/// The options and commands that a text names and the command line lacks.
fn unknown(text: &str) -> Vec<&str> {
    let mut cli = Cli::command();
    cli.build();
    let all = options(&cli);
    let mut unknown: Vec<&str> = named(text).filter(|option| !all.contains(*option)).collect();
    for after in text.split("`hbbp-sys ").skip(1) {
        let quoted = after.split('`').next().unwrap_or_default();
        let name = quoted.split_whitespace().next().unwrap_or_default();
        match cli.find_subcommand(name) {
            None => unknown.push(name),
            Some(command) => {
                let own = options(command);
                unknown.extend(named(quoted).filter(|option| !own.contains(*option)));
            }
        }
    }
    unknown
}

#[test]
fn advice_names_options_and_commands_that_exist() {
    for advice in Advice::ALL {
        let text = words(*advice);
        assert_eq!(unknown(text), [""; 0], "{advice:?}: {text}");
        let commands = text.matches("hbbp-sys").count();
        assert_eq!(text.matches("`hbbp-sys ").count(), commands, "not quoted: {text}");
    }
}

#[test]
fn options_and_commands_that_do_not_exist_are_found() {
    const GONE: &str = "gone";
    assert_eq!(unknown(&format!("raise --map-entries (--{GONE})")), [GONE]);
    assert_eq!(unknown("`hbbp-sys report --by module` lists it"), [""; 0]);
    let commands = format!("`hbbp-sys check --by module`, `hbbp-sys {GONE}`");
    assert_eq!(unknown(&commands), ["by", GONE]);
}
