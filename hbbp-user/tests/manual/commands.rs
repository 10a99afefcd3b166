//! Commands in README and book parse against the definition of the command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, Parser as _};
use hbbp_user::cli::Cli;

const NAME: &str = "hbbp-sys";

/// README and the pages of the book.
fn pages() -> Vec<PathBuf> {
    let user = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![user.join("../README.md")];
    let mut folders = vec![user.join("book/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The words of a shell line up to a pipe or a comment; single quotes and parentheses hold a word together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_quoted = false;
    // `$(date -u)` is one word.
    let mut depth = 0_usize;
    for c in line.chars() {
        depth += usize::from(c == '(');
        depth = depth.saturating_sub(usize::from(c == ')'));
        match c {
            '\'' => is_quoted = !is_quoted,
            '#' if !is_quoted && word.is_empty() => break,
            '|' if !is_quoted => break,
            c if c.is_whitespace() && !is_quoted && depth == 0 => {
                words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            }
            c => word.push(c),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// The commands of a page: lines of blocks, and spans of code that name the program and something to do.
fn commands(page: &str) -> Vec<Vec<String>> {
    let mut is_block = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            found.push(words(line.strip_prefix("$ ").unwrap_or(line)));
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(words));
        }
    }
    found.retain_mut(|words| {
        if words.first().is_some_and(|it| it == "sudo") {
            words.remove(0);
        }
        words.first().is_some_and(|it| it == NAME) && words.len() > 1
    });
    found
}

/// Why a command does not parse. Requests for help do what they ask for, and a subcommand alone is its name.
fn refusal(words: &[String]) -> Option<String> {
    let is_version = |word: &String| word.starts_with(|c: char| c.is_ascii_digit());
    if let [_, only] = words {
        // The first line of a report has the version.
        let is_known = is_version(only) || Cli::command().find_subcommand(only).is_some();
        if is_known {
            return None;
        }
    }
    let error = Cli::try_parse_from(words).err()?;
    error
        .use_stderr()
        .then(|| format!("{}: {error}", words.join(" ")))
}

#[test]
fn commands_of_readme_and_book_parse() {
    let mut n_commands = 0;
    let mut refused = Vec::new();
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        let commands = commands(&page);
        n_commands += commands.len();
        let of_page = commands.iter().filter_map(|words| refusal(words));
        refused.extend(of_page.map(|why| format!("{}: {why}", path.display())));
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(n_commands > 50, "only {n_commands} commands were found");
}

#[test]
fn commands_of_blocks_and_spans() {
    let page = "Use `sudo hbbp-sys --gone 'a b'` or `hbbp-sys`.\n```text\n$ hbbp-sys report x # y\nhbbp-sys 0.1.0\n```\n";
    let found = commands(page);
    let expected: [&[&str]; 3] = [&[NAME, "--gone", "a b"], &[NAME, "report", "x"], &[NAME, "0.1.0"]];
    assert_eq!(found, expected);
    let refused: Vec<bool> = found.iter().map(|words| refusal(words).is_some()).collect();
    assert_eq!(refused, [true, false, false]);
}
