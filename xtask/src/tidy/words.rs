//! Words that were given up for the standard terms of the field.
//!
//! Comments, messages and identifiers use the terms that an engineer of the field knows. A word is listed here once the
//! tree is free of it, so that it does not come back.

use super::finding::{Finding, Source};
use super::rust::literals;
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

/// Words that were given up in comments, documentation, messages and names of tests, where the standard term is shorter
/// to understand.
const OF_PROSE: [(&str, &str); 31] = [
    ("told", "reported, known or distinguished"),
    ("tell", "report, show or distinguish"),
    ("sees to it", "a verb of its own, as in `loads`"),
    ("take over", "add, apply or set"),
    ("takes over", "adds, applies or sets"),
    ("landed", "reported"),
    ("tie", "scale or constrain"),
    ("tied", "scaled or constrained"),
    ("untied", "unscaled or unconstrained"),
    ("weigh", "has the weight, or weights"),
    ("weighed", "weighted"),
    ("bear", "carry"),
    ("beside", "next to, with, compared with or in addition to"),
    ("behind", "after"),
    ("apart", "separate"),
    ("stand", "is, or means"),
    ("stood", "was"),
    ("standing", "being"),
    ("place", "location, address, index or slot; `instead of`"),
    ("placed", "put"),
    ("ran", "was executed, or was running"),
    ("nobody", "no user, no other CPU, or the passive"),
    ("as many as", "the number of, or up to"),
    ("way to", "path, edge, kind or means"),
    ("ways", "paths, edges or kinds"),
    ("by way of", "through"),
    ("way out", "remedy"),
    ("under way", "in progress"),
    ("on its way", "in transit"),
    ("held against", "compared with"),
    ("set right", "corrected"),
];

/// Where prose is rewritten with the code that it explains.
const LATER: [&str; 1] = ["hbbp-user/estimate/"];

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
    if is_exempt(source) || !is_page && !source.is_rust() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        let prose = if is_page {
            Some(text)
        } else {
            comment(text).map(|(_, text)| text)
        };
        for message in given_up(prose.unwrap_or_default()) {
            findings.push(source.finding(line, message));
        }
    }
    findings
}

/// No message of the program uses a word that was given up in prose. A literal of one word is a name, and `ran` is plain
/// in a message, whose reader is a user.
pub(super) fn messages(source: &Source) -> Vec<Finding> {
    if is_exempt(source) || !source.is_rust() || !source.path.contains("/src/") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(literals(&source.text).lines()) {
        let sentences = text.split('"').filter(|it| 1 < it.split_whitespace().count());
        let messages = sentences.flat_map(given_up).filter(|it| !it.starts_with("`ran`"));
        findings.extend(messages.map(|message| source.finding(line, message)));
    }
    findings
}

/// The findings for words that were given up in prose. Spans of code and options are names, and are left out.
pub(super) fn given_up(text: &str) -> impl Iterator<Item = String> {
    let prose: Vec<&str> = text.split('`').step_by(2).collect();
    let is_name = |word: &&str| word.contains("--") || word.contains('{');
    let words: Vec<String> = prose
        .iter()
        .flat_map(|it| it.split_whitespace())
        .filter(|word| !is_name(word))
        .map(str::to_owned)
        .collect();
    let text = separated(&words.join(" "));
    let found = OF_PROSE.iter().filter(move |(word, _)| occurs(&text, word));
    found.map(|(word, instead)| format!("`{word}` was given up in prose: write `{instead}`"))
}

/// Whether the words of a file are left for later, or follow the program.
pub(super) fn is_exempt(source: &Source) -> bool {
    let is_later = LATER.iter().any(|folder| source.path.starts_with(folder));
    // This file lists what it forbids.
    is_later || source.path == file!() || source.is_any_of(&["/golden/", "/fixtures/"])
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
    use super::{messages, prose, standard};

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
        check_rule(
            prose,
            "a.md",
            "`--rings-apart`, --rings-apart, as a placeholder\n",
            &[],
        );
    }

    #[test]
    fn words_given_up_in_messages() {
        let found = "`told` was given up in prose: write `reported, known or distinguished`";
        let file = "x(\"it is told\", \"told\", \"{told} is {told:?}\");\n";
        check_rule(messages, "a/src/a.rs", file, &[&format!("1: {found}")]);
        let tests = "#[cfg(test)]\nmod tests {\n    const X: &str = \"it is told\";\n}\n";
        check_rule(messages, "a/src/a.rs", tests, &[]);
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
