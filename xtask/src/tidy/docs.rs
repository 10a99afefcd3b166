//! Every path of the repository that a Markdown file names exists.

use std::path::Path;

use super::finding::{Finding, Source};

/// Where a name may lead from: the top, and the folders whose files docs name in short.
const FOLDERS: [&str; 4] = ["", "hbbp-user/src", "hbbp-ebpf/src", "xtask/src"];

/// What makes a word a path of ours: one of these prefixes or suffixes.
const TOPS: [&str; 6] = [
    "hbbp-user/",
    "hbbp-ebpf/",
    "xtask/",
    "kernel-tests/",
    ".cargo/",
    ".ci/",
];
const ENDS: [&str; 2] = [".rs", ".toml"];

/// The names in this file that lead nowhere.
pub(crate) fn check(source: &Source, root: &Path) -> Vec<Finding> {
    if !source.path.ends_with(".md") {
        return Vec::new();
    }
    let here = Path::new(&source.path).parent().unwrap_or(Path::new(""));
    let exists = |name: &str| {
        let mut folders = FOLDERS.iter().map(Path::new).chain([here]);
        folders.any(|folder| root.join(folder).join(name).exists())
    };
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        for name in text
            .split(|it: char| !is_of_path(it))
            .map(|word| word.trim_end_matches('.'))
        {
            let is_ours = TOPS.iter().any(|top| name.starts_with(top))
                || ENDS.iter().any(|end| name.ends_with(end) && name != *end);
            if is_ours && !exists(name) {
                findings.push(source.finding(line, format!("`{name}` does not exist")));
            }
        }
    }
    findings
}

fn is_of_path(it: char) -> bool {
    it.is_alphanumeric() || matches!(it, '/' | '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_rule;
    use crate::command;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        check_rule(
            |source| super::check(source, &command::workspace()),
            "README.md",
            text,
            expected,
        );
    }

    #[test]
    fn docs_name_what_is_there() {
        check(
            "See `xtask/src/main.rs`, [tidy](tidy/docs.rs) and hbbp-user/src. Rust's .rs files.",
            &[],
        );
        check(
            "It is in `hbbp-user/src/gone.rs`.\nOr in kernel-tests/gone/x.",
            &[
                "1: `hbbp-user/src/gone.rs` does not exist",
                "2: `kernel-tests/gone/x` does not exist",
            ],
        );
        check("/usr/lib/x, target/release/hbbp-sys, and/or", &[]);
    }
}
