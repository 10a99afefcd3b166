//! The README fits on one page.

use super::super::finding::{Finding, Source};
use super::markdown::{Kind, lines};
use super::pages::README;

const MOST_LINES: usize = 150;
const MOST_BYTES: usize = 10_000;
/// Characters of a line; rows of tables may be longer.
const MOST_OF_LINE: usize = 120;

/// What of the README is too long.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let readme = sources.iter().filter(|source| source.path == README);
    readme.flat_map(of).collect()
}

fn of(readme: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let n_lines = readme.text.lines().count();
    if n_lines > MOST_LINES {
        findings.push(readme.finding(n_lines, format!("{n_lines} lines, more than {MOST_LINES}")));
    }
    let n_bytes = readme.text.len();
    if n_bytes > MOST_BYTES {
        findings.push(readme.finding(n_lines, format!("{n_bytes} bytes, more than {MOST_BYTES}")));
    }
    for line in lines(&readme.text) {
        let n = line.text.chars().count();
        if line.kind != Kind::Table && n > MOST_OF_LINE {
            findings.push(readme.finding(line.number, format!("{n} characters, more than {MOST_OF_LINE}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::check_rule;
    use super::of;

    #[test]
    fn readme_of_one_page() {
        let row = format!("| {} |\n", "x".repeat(200));
        check_rule(of, "README.md", &format!("{row}{}\n", "x".repeat(120)), &[]);
        check_rule(
            of,
            "README.md",
            &"x".repeat(121),
            &["1: 121 characters, more than 120"],
        );
        check_rule(
            of,
            "README.md",
            &"\n".repeat(151),
            &["151: 151 lines, more than 150"],
        );
        let long = "| x |\n".repeat(149) + &format!("| {} |\n", "x".repeat(10_000));
        check_rule(
            of,
            "README.md",
            &long,
            &[&format!("150: {} bytes, more than 10000", long.len())],
        );
    }
}
