//! Names of tests are subject and condition; a doc line has the claim.

use super::finding::{Finding, Source};
use super::words;

/// Letters of the longest name: it fits on a line of a test run, and can be searched for.
const MOST_LETTERS: usize = 60;

/// The names of tests that are too long, or use words that were given up.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, name) in names(&source.text) {
        if MOST_LETTERS < name.len() {
            let message =
                format!("the test `{name}` has more than {MOST_LETTERS} letters: its claim is a doc line");
            findings.push(source.finding(line, message));
        }
        let words = if words::is_exempt(source) { "" } else { name };
        findings.extend(words::given_up(words).map(|message| source.finding(line, message)));
    }
    findings
}

/// The functions that follow a test attribute, with their lines.
fn names(text: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    let mut is_test = false;
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim_start();
        is_test |= text.starts_with("#[test]") || text.starts_with("#[tokio::test");
        let function = text.strip_prefix("async ").unwrap_or(text).strip_prefix("fn ");
        if let Some((name, _)) = function.and_then(|it| it.split_once('(')) {
            names.extend(is_test.then_some((line, name)));
            is_test = false;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_rule;
    use super::check;

    #[test]
    fn long_name_of_a_test() {
        let long = "x".repeat(61);
        let file = format!(
            "#[test]\n#[ignore = \"slow\"]\nfn {long}() {{}}\nfn {long}() {{}}\n#[test]\nfn x() {{}}\n"
        );
        let found = format!("3: the test `{long}` has more than 60 letters: its claim is a doc line");
        check_rule(check, "a.rs", &file, &[&found]);
    }

    #[test]
    fn name_with_a_word_that_was_given_up() {
        let found = "2: `told` was given up in prose: write `reported, known or distinguished`";
        let file = "#[test]\nfn losses_are_told() {}\nfn is_told() {}\n";
        check_rule(check, "a.rs", file, &[found]);
        check_rule(check, "hbbp-user/estimate/src/a.rs", file, &[]);
    }
}
