//! Words that were given up for the standard terms of the field.
//!
//! Comments, messages and identifiers use the terms that an engineer of the field knows. A word is listed here once the
//! tree is free of it, or with the folders that still use it, so that it does not come back elsewhere.

use super::{Finding, Source};

/// A given-up word or phrase.
struct GivenUp {
    /// In lower case; phrases have single blanks. A plural `s` and parts of identifiers match too.
    word: &'static str,
    /// The standard term.
    instead: &'static str,
    /// Beginnings of the paths that still use the word.
    pending: &'static [&'static str],
}

const COLLECT: &str = "hbbp-user/src/collect/";
const CMD: &str = "hbbp-user/src/cmd/";
const EBPF: &str = "hbbp-ebpf/";
const IMPORT: &str = "hbbp-user/src/import/";
const RESOLVE: &str = "hbbp-user/src/resolve/";
const SNAPSHOT: &str = "hbbp-user/src/snapshot/";
const TESTS: &str = "hbbp-user/tests/";
const XTASK: &str = "xtask/";

const WORDS: [GivenUp; 17] = [
    given_up("silicon", "emulated PMU", &[]),
    given_up("personality", "hardware profile", &[]),
    given_up("personalities", "hardware profiles", &[]),
    given_up("mind:", "Warnings:", &[]),
    given_up("furnish", "install", &[]),
    given_up("atlas", "address map", &[]),
    given_up("hygiene", "filter", &[COLLECT, TESTS, "kernel-tests/tests/vm/"]),
    given_up("own cost", "overhead", &[COLLECT, CMD, "hbbp-user/src/main.rs"]),
    given_up("doubt", "ambiguous", &[RESOLVE]),
    given_up("news", "notification, event or record", &[CMD]),
    given_up("habit", "quirk", &[]),
    given_up("bank", "double-buffered count map", &[]),
    given_up("spot", "location or instruction index", &[]),
    given_up(
        "stretch",
        "text range",
        &[COLLECT, IMPORT, RESOLVE, SNAPSHOT, TESTS],
    ),
    given_up(
        "stretches",
        "text ranges",
        &[COLLECT, IMPORT, RESOLVE, SNAPSHOT, TESTS],
    ),
    given_up(
        "so many",
        "the number itself, as in `N samples`",
        &[COLLECT, EBPF, IMPORT, RESOLVE, SNAPSHOT, TESTS, XTASK],
    ),
    given_up(
        "is no",
        "is not a",
        &[COLLECT, CMD, EBPF, IMPORT, RESOLVE, SNAPSHOT, TESTS, XTASK],
    ),
];

const fn given_up(word: &'static str, instead: &'static str, pending: &'static [&'static str]) -> GivenUp {
    GivenUp {
        word,
        instead,
        pending,
    }
}

/// No comment, message or identifier uses a word that was given up.
pub(super) fn standard(source: &Source) -> Vec<Finding> {
    let is_prose_or_code = [".rs", ".md", ".c", ".h"]
        .iter()
        .any(|end| source.path.ends_with(end));
    // This file lists what it forbids; fixtures and golden files follow the program.
    let is_exempt = source.path == file!() || source.is_any_of(&["/golden/", "/fixtures/"]);
    if !is_prose_or_code || is_exempt {
        return Vec::new();
    }
    let words: Vec<&GivenUp> = WORDS
        .iter()
        .filter(|it| !it.pending.iter().any(|path| source.path.starts_with(path)))
        .collect();
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        // `There is no X` is plain English.
        let text = separated(text).replace(" there is no ", " there ");
        for word in words.iter().filter(|it| occurs(&text, it.word)) {
            let message = format!("`{}` was given up: write `{}`", word.word, word.instead);
            findings.push(source.finding(line, message));
        }
    }
    findings
}

/// The words of a line in lower case between single blanks; identifiers are split at `_` and before capitals.
fn separated(line: &str) -> String {
    let mut text = String::from(" ");
    let mut last = ' ';
    for c in line.chars() {
        let starts_word = c.is_uppercase() && last.is_lowercase();
        let is_part = c.is_alphanumeric() || c == ':' && last.is_alphanumeric();
        if (starts_word || !is_part) && !text.ends_with(' ') {
            text.push(' ');
        }
        if is_part {
            text.extend(c.to_lowercase());
        }
        last = c;
    }
    text.push(' ');
    text
}

/// Whether a word occurs in a separated line, alone or in the plural.
fn occurs(text: &str, word: &str) -> bool {
    let phrase = format!(" {word}");
    let mut found = text.match_indices(&phrase).map(|(at, it)| &text[at + it.len()..]);
    found.any(|rest| {
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        rest.starts_with([' ', ':']) && !rest.starts_with(" longer ")
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_rule;
    use super::standard;

    #[test]
    fn given_up_words_are_found_with_their_replacement() {
        let silicon = "`silicon` was given up: write `emulated PMU`";
        check_rule(
            standard,
            "kernel-tests/src/a.rs",
            "//! Silicons.\nlet x = theSilicon;\nfn in_silicon() {}\n",
            &[
                &format!("1: {silicon}"),
                &format!("2: {silicon}"),
                &format!("3: {silicon}"),
            ],
        );
        check_rule(
            standard,
            "README.md",
            "Mind: this is no test\n",
            &[
                "1: `mind:` was given up: write `Warnings:`",
                "1: `is no` was given up: write `is not a`",
            ],
        );
    }

    #[test]
    fn similar_words_and_pending_folders_are_left_alone() {
        check_rule(
            standard,
            "README.md",
            "The newsletter is no longer embanked, never mind.\n",
            &[],
        );
        check_rule(standard, "hbbp-user/src/resolve/a.rs", "struct Stretch;\n", &[]);
        check_rule(standard, "hbbp-user/tests/golden/a.md", "Mind:\n", &[]);
    }
}
