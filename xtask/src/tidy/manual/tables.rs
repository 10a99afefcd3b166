//! The tables of README and book that are written from `kernel-tests/results/summary.tsv`.
//!
//! A row of that file has the name of its table, what was measured, the result, and the results file that holds the figures.

use super::super::finding::{Finding, Source};
use super::figures;
use super::markdown::GENERATED;
use super::pages::{RESULTS, SUMMARY, pages};

/// The line after a table.
const END: &str = "<!-- end -->";

/// Tables that differ from the file, and rows whose figures are not where the row says.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let Some(summary) = sources.iter().find(|source| source.path == SUMMARY) else {
        return Vec::new();
    };
    let mut findings = unfounded(summary, sources);
    for page in pages(sources) {
        if written(&page.text, &summary.text) != page.text {
            let message = "a generated table is not up to date: run `cargo xtask book`";
            findings.push(page.finding(1, message.to_owned()));
        }
    }
    findings
}

/// The pages whose tables are not up to date, with their new text.
pub(crate) fn outdated(sources: &[Source]) -> Vec<(&str, String)> {
    let Some(summary) = sources.iter().find(|source| source.path == SUMMARY) else {
        return Vec::new();
    };
    let new = |page: &'_ Source| written(&page.text, &summary.text);
    pages(sources)
        .map(|page| (page, new(page)))
        .filter(|(page, text)| page.text != *text)
        .map(|(page, text)| (page.path.as_str(), text))
        .collect()
}

/// Rows with a figure that is not in their file.
fn unfounded(summary: &Source, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(summary.text.lines()).skip(1) {
        let Some(row) = Row::of(text) else {
            findings.push(summary.finding(line, "not four fields between tabs".to_owned()));
            continue;
        };
        let path = format!("{RESULTS}{}", row.file);
        let file = sources.iter().find(|source| source.path == path);
        for figure in figures::of_text(row.result) {
            if !file.is_some_and(|file| figures::holds(file, &figure)) {
                findings.push(summary.finding(line, format!("{figure} is not in {path}")));
            }
        }
    }
    findings
}

/// A row of the summary.
struct Row<'a> {
    table: &'a str,
    what: &'a str,
    result: &'a str,
    file: &'a str,
}

impl<'a> Row<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut fields = line.split('\t');
        let row = Self {
            table: fields.next()?,
            what: fields.next()?,
            result: fields.next()?,
            file: fields.next()?,
        };
        fields.next().is_none().then_some(row)
    }
}

/// The page with its tables as the summary has them.
fn written(page: &str, summary: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut is_inside = false;
    for line in page.lines() {
        if line == END {
            is_inside = false;
        }
        if !is_inside {
            text.push_str(line);
            text.push('\n');
        }
        if let Some(name) = line.strip_prefix(GENERATED) {
            text.push_str(&table(name.trim_end_matches(" -->"), summary));
            is_inside = true;
        }
    }
    text
}

fn table(name: &str, summary: &str) -> String {
    let rows = summary.lines().skip(1).filter_map(Row::of);
    let rows = rows.filter(|row| row.table == name);
    let rows = rows.map(|row| format!("| {} | {} |\n", row.what, row.result));
    format!("| what | result |\n|---|---|\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "table\twhat\tresult\tfile\na\tmean\t0.5 %\tx.txt\nb\tother\t7 %\tx.txt\n";

    fn sources(page: &str) -> [Source; 3] {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        [
            source("README.md", page),
            source("kernel-tests/results/summary.tsv", ROWS),
            source("kernel-tests/results/x.txt", "the mean is 0.5 %\n"),
        ]
    }

    #[test]
    fn tables_follow_the_summary() {
        let old = "# A\n<!-- generated: a -->\n| old |\n<!-- end -->\nafter\n";
        let new = "# A\n<!-- generated: a -->\n| what | result |\n|---|---|\n| mean | 0.5 % |\n<!-- end -->\nafter\n";
        assert_eq!(outdated(&sources(old)), [("README.md", new.to_owned())]);
        assert_eq!(outdated(&sources(new)), []);
    }

    #[test]
    fn outdated_tables_and_unfounded_rows() {
        let page = "<!-- generated: a -->\n<!-- end -->\n";
        let found: Vec<String> = check(&sources(page)).iter().map(Finding::to_string).collect();
        let expected = [
            "kernel-tests/results/summary.tsv:3: 7 is not in kernel-tests/results/x.txt",
            "README.md:1: a generated table is not up to date: run `cargo xtask book`",
        ];
        assert_eq!(found, expected);
    }
}
