//! What holds for every file on its own: its name, its length, its first and last lines, what it may name.

use super::finding::{Finding, Source};
use super::rust::code;

/// No file is longer; one that is longer than the lesser limit gets a warning.
const MAX_LINES: usize = 500;
const LONG_LINES: usize = 350;

/// Names that say nothing about what is inside: drawers.
const DRAWERS: [&str; 9] = [
    "util", "utils", "common", "types", "helper", "helpers", "misc", "shared", "tools",
];

/// Hosts of registries and folders of one machine: what we commit must work everywhere.
const FOREIGN: [&str; 9] = [
    "crates.io",
    "docker.io",
    "deb.debian.org",
    "static.rust-lang.org",
    "pypi.org",
    "pythonhosted.org",
    "registry.npmjs.org",
    "/work/",
    "/root/",
];

/// Files whose text follows other rules than ours.
const AS_IT_IS: [&str; 3] = ["/golden/", "/fixtures/", "Cargo.lock"];

/// Every .rs file begins with a paragraph that says what it is for; that of a crate may be its README.
pub(crate) fn module_doc(source: &Source) -> Vec<Finding> {
    let readme = "#![doc = include_str!(\"../README.md\")]";
    let documented = source.text.starts_with("//! ") || source.text.starts_with(readme);
    if documented || !source.is_rust() {
        return Vec::new();
    }
    vec![source.finding(1, "the file does not begin with a `//!` paragraph".to_owned())]
}

/// No file is too long to be read.
pub(crate) fn size(source: &Source) -> Vec<Finding> {
    let n_lines = source.text.lines().count();
    if !source.is_rust() || n_lines <= LONG_LINES {
        return Vec::new();
    }
    if n_lines <= MAX_LINES {
        return vec![source.warning(n_lines, format!("{n_lines} lines, more than {LONG_LINES}"))];
    }
    vec![source.finding(n_lines, format!("{n_lines} lines, more than {MAX_LINES}"))]
}

/// No line ends in blanks, and the last one ends.
pub(crate) fn blanks(source: &Source) -> Vec<Finding> {
    if source.is_any_of(&AS_IT_IS) {
        return Vec::new();
    }
    // A line may end inside a literal.
    let code = if source.is_rust() {
        code(&source.text)
    } else {
        String::new()
    };
    let is_literal = |line: usize| {
        code.split('\n')
            .nth(line - 1)
            .is_some_and(|code| code.ends_with('"'))
    };
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(source.text.split('\n')) {
        if text.ends_with([' ', '\t', '\r']) && !is_literal(line) {
            findings.push(source.finding(line, "blanks at the end of the line".to_owned()));
        }
    }
    let n_lines = source.text.lines().count();
    if !source.text.is_empty() && !source.text.ends_with('\n') {
        findings.push(source.finding(n_lines, "no newline at the end of the file".to_owned()));
    }
    if source.text.ends_with("\n\n") {
        findings.push(source.finding(n_lines, "empty lines at the end of the file".to_owned()));
    }
    findings
}

/// No file or folder is a drawer.
pub(crate) fn name(source: &Source) -> Vec<Finding> {
    let mut names = source
        .path
        .split('/')
        .map(|name| name.strip_suffix(".rs").unwrap_or(name));
    let drawer = names.find(|name| DRAWERS.contains(name));
    drawer
        .map(|name| source.finding(1, format!("`{name}` does not say what is inside")))
        .into_iter()
        .collect()
}

/// No file names a registry or a folder of somebody's machine.
pub(crate) fn foreign(source: &Source) -> Vec<Finding> {
    // This file lists what it forbids.
    if source.is_any_of(&AS_IT_IS) || source.path == file!() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        let named = FOREIGN
            .iter()
            .filter(|name| text.match_indices(**name).any(|(at, _)| begins(text, at)));
        findings.extend(named.map(|name| source.finding(line, format!("names `{name}`"))));
    }
    findings
}

/// Whether the name at this offset is not the end of a longer one, such as `/proc/1/root/`.
fn begins(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    !before.is_some_and(|it| it.is_alphanumeric() || matches!(it, '_' | '-' | '}' | '>' | '*'))
}

/// Every unsafe block and impl states why it is sound. Clippy says so too, but not of code for eBPF.
pub(crate) fn safety(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let lines: Vec<&str> = source.text.lines().collect();
    let mut findings = Vec::new();
    for (at, text) in code(&source.text).lines().enumerate() {
        let is_unsafe = text.match_indices("unsafe").any(|(column, word)| {
            let after = text[column + word.len()..].trim_start();
            after.starts_with('{') || after.starts_with("impl ")
        });
        if is_unsafe && !is_argued(&lines[..at]) {
            findings.push(source.finding(at + 1, "unsafe without a `// SAFETY:` line above".to_owned()));
        }
    }
    findings
}

/// Whether the statement that goes on after these lines has a SAFETY comment before it.
fn is_argued(lines: &[&str]) -> bool {
    let statement = lines
        .iter()
        .rev()
        .map(|line| line.trim())
        .take_while(|line| !line.ends_with([';', '{', '}']) || line.starts_with("//"));
    statement.into_iter().any(|line| line.starts_with("// SAFETY: "))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_rule;
    use super::{blanks, foreign, module_doc, name, safety, size};

    #[test]
    fn a_file_says_what_it_is_for() {
        check_rule(module_doc, "a.rs", "//! What it is.\n", &[]);
        let readme = "#![doc = include_str!(\"../README.md\")]\n";
        check_rule(module_doc, "a/src/lib.rs", readme, &[]);
        check_rule(
            module_doc,
            "a.rs",
            "use x;\n",
            &["1: the file does not begin with a `//!` paragraph"],
        );
        check_rule(module_doc, "a.toml", "[x]\n", &[]);
    }

    #[test]
    fn a_file_is_short() {
        check_rule(size, "a.rs", &"\n".repeat(350), &[]);
        check_rule(
            size,
            "a.rs",
            &"\n".repeat(351),
            &["351: warning: 351 lines, more than 350"],
        );
        check_rule(
            size,
            "a.rs",
            &"\n".repeat(501),
            &["501: 501 lines, more than 500"],
        );
        check_rule(size, "Cargo.lock", &"\n".repeat(501), &[]);
    }

    #[test]
    fn lines_end_where_their_text_ends() {
        check_rule(blanks, "a.md", "a\nb\n", &[]);
        check_rule(
            blanks,
            "a.md",
            "a \nb\t\nc",
            &[
                "1: blanks at the end of the line",
                "2: blanks at the end of the line",
                "3: no newline at the end of the file",
            ],
        );
        check_rule(
            blanks,
            "a.md",
            "a\n\n",
            &["2: empty lines at the end of the file"],
        );
        check_rule(blanks, "x/tests/golden/a.txt", "a \n", &[]);
    }

    #[test]
    fn a_name_says_what_is_inside() {
        check_rule(
            name,
            "hbbp-user/src/util.rs",
            "",
            &["1: `util` does not say what is inside"],
        );
        check_rule(
            name,
            "hbbp-user/src/common/a.rs",
            "",
            &["1: `common` does not say what is inside"],
        );
        check_rule(name, "hbbp-user/src/addr.rs", "", &[]);
    }

    #[test]
    fn no_registry_and_no_machine_is_named() {
        check_rule(
            foreign,
            "README.md",
            "see crates.io\nin /root/x\n",
            &["1: names `crates.io`", "2: names `/root/`"],
        );
        check_rule(
            foreign,
            "a.rs",
            "/proc/1/root/x {proc}/root/x /framework/x\n",
            &[],
        );
        check_rule(foreign, "Cargo.lock", "crates.io\n", &[]);
    }

    #[test]
    fn unsafe_code_is_argued() {
        check_rule(
            safety,
            "a.rs",
            "// SAFETY: the pointer\n// lives.\nlet x =\n    unsafe { f() };\n",
            &[],
        );
        check_rule(
            safety,
            "a.rs",
            "unsafe fn f();\n// unsafe { }\n#[unsafe(no_mangle)]\n",
            &[],
        );
        let missing = "unsafe without a `// SAFETY:` line above";
        check_rule(
            safety,
            "a.rs",
            "// SAFETY: a\nf();\nunsafe { f() }\n",
            &[&format!("3: {missing}")],
        );
        check_rule(
            safety,
            "a.rs",
            "unsafe impl Pod for A {}\n",
            &[&format!("1: {missing}")],
        );
    }
}
