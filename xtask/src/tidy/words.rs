//! Words that were given up for the standard terms of the field.
//!
//! Comments, messages and identifiers use the terms that an engineer of the field knows. A word is listed here once the
//! tree is free of it, so that it does not come back.

use super::finding::{Finding, Source};
use super::sentences::comment;

/// Words and phrases that were given up, and the standard terms. They are in lower case; phrases have single blanks; a
/// plural `s` and parts of identifiers match too.
const WORDS: [(&str, &str); 18] = [
    ("silicon", "emulated PMU"),
    ("personality", "hardware profile"),
    ("personalities", "hardware profiles"),
    ("mind:", "Warnings:"),
    ("furnish", "install"),
    ("atlas", "address map"),
    ("hygiene", "filter"),
    ("own cost", "overhead"),
    ("doubt", "ambiguous"),
    ("doubtful", "ambiguous"),
    ("news", "notification, event or record"),
    ("habit", "quirk"),
    ("bank", "double-buffered count map"),
    ("spot", "location or instruction index"),
    ("stretch", "text range"),
    ("stretches", "text ranges"),
    ("so many", "the number itself, as in `N samples`"),
    ("is no", "is not a"),
];

/// Words that were given up in comments and documentation, where the standard term is shorter to understand.
const OF_PROSE: [(&str, &str); 9] = [
    ("told", "reported, known or distinguished"),
    ("sees to it", "a verb of its own, as in `loads`"),
    ("take over", "add, apply or set"),
    ("takes over", "adds, applies or sets"),
    ("landed", "reported"),
    ("tied", "scaled or constrained"),
    ("untied", "unscaled or unconstrained"),
    ("weighed", "weighted"),
    ("bear", "carry"),
];

/// Where prose is rewritten with the code that it explains, and what is written from the program.
const LATER: [&str; 6] = [
    "hbbp-user/estimate/",
    "hbbp-user/output/src/report/",
    "hbbp-user/src/cli",
    "hbbp-user/src/cmd/daemon/",
    "hbbp-user/book/src/reference/",
    ".github/CHANGELOG.md",
];

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
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        // `There is no X` is plain English.
        let text = separated(text).replace(" there is no ", " there ");
        for (word, instead) in WORDS.iter().filter(|(word, _)| occurs(&text, word)) {
            let message = format!("`{word}` was given up: write `{instead}`");
            findings.push(source.finding(line, message));
        }
    }
    findings
}

/// No comment and no page uses a word that was given up there.
pub(super) fn prose(source: &Source) -> Vec<Finding> {
    let is_page = source.path.ends_with(".md");
    let is_exempt = LATER.iter().any(|folder| source.path.starts_with(folder));
    if is_exempt || !is_page && !source.is_rust() || source.is_any_of(&["/golden/", "/fixtures/"]) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        let prose = if is_page {
            Some(text)
        } else {
            comment(text).map(|(_, text)| text)
        };
        // Spans of code have names.
        let text = prose
            .unwrap_or_default()
            .split('`')
            .step_by(2)
            .collect::<Vec<_>>();
        let text = separated(&text.join(" "));
        for (word, instead) in OF_PROSE.iter().filter(|(word, _)| occurs(&text, word)) {
            let message = format!("`{word}` was given up in prose: write `{instead}`");
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
    use super::{prose, standard};

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
    fn words_given_up_in_prose() {
        let found = "`told` was given up in prose: write `reported, known or distinguished`";
        let file = "/// It is told.\nlet told = \"told\"; // told\n// `told`\n";
        check_rule(prose, "a.rs", file, &[&format!("1: {found}")]);
        check_rule(prose, "a.md", "told\n", &[&format!("1: {found}")]);
        check_rule(prose, "hbbp-user/estimate/src/a.rs", "// told\n", &[]);
    }

    #[test]
    fn similar_words_and_golden_files_are_left_alone() {
        check_rule(
            standard,
            "README.md",
            "The newsletter is no longer embanked, never mind.\n",
            &[],
        );
        check_rule(standard, "hbbp-user/tests/golden/a.md", "Mind:\n", &[]);
    }
}
