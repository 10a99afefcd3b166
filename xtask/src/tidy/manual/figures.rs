//! A measured figure of README and book is in a results file that its section names.
//!
//! Figures are percentages, sizes in MB and the like, and numbers of instructions. Those in spans and blocks of code are
//! settings of the program, or its output.

use std::collections::{BTreeMap, BTreeSet};

use super::super::finding::{Finding, Source};
use super::markdown::{GENERATED, Kind, Line, lines, without_code};
use super::pages::{RESULTS, SUMMARY, pages};

const UNITS: [&str; 6] = ["%", "KiB", "MiB", "GiB", "MB", "GB"];

/// Words between numbers that share a unit: `0.1 and 0.2 %`.
const BETWEEN: [&str; 7] = ["and", "to", "or", "±", "instead", "of", "million"];

/// The folder of pages that are written from the program.
const REFERENCE: &str = "/reference/";

/// A file of tests holds figures too: its assertions.
const TESTS: [&str; 2] = ["kernel-tests/tests/", "hbbp-user/tests/"];

/// The figures that no results file of their section holds.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let is_recorded = |source: &&Source| source.path.starts_with(RESULTS) || source.is_any_of(&TESTS);
    let recorded: BTreeMap<&str, BTreeSet<String>> = sources
        .iter()
        .filter(is_recorded)
        .map(|source| (source.path.as_str(), numbers(&source.text)))
        .collect();
    // The reference is written from the program and has its settings.
    let measured = pages(sources).filter(|page| !page.path.contains(REFERENCE));
    measured.flat_map(|page| of_page(page, &recorded)).collect()
}

fn of_page(page: &Source, recorded: &BTreeMap<&str, BTreeSet<String>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = lines(&page.text);
    for section in lines.chunk_by(|_, next| next.kind != Kind::Heading) {
        let is_named = |path: &str| {
            let names = |line: &Line<'_>| {
                line.text.contains(path) || path == SUMMARY && line.text.starts_with(GENERATED)
            };
            section.iter().any(names)
        };
        let named: Vec<_> = recorded.iter().filter(|(path, _)| is_named(path)).collect();
        for (line, figure) in figures(section) {
            if !named.iter().any(|(_, numbers)| numbers.contains(&figure)) {
                let message = format!("{figure} is in none of the results files that its section names");
                findings.push(page.finding(line, message));
            }
        }
    }
    findings
}

/// The figures of some lines, each with its line.
fn figures(section: &[Line<'_>]) -> Vec<(usize, String)> {
    let is_read = |line: &&Line<'_>| matches!(line.kind, Kind::Prose | Kind::Table | Kind::Heading);
    let words: Vec<(usize, String)> = section
        .iter()
        .filter(is_read)
        .flat_map(|line| {
            let text = without_code(line.text).replace('|', " | ").replace('%', " % ");
            let words = text
                .split_whitespace()
                .map(trimmed)
                .filter(|word| !word.is_empty());
            words.map(|word| (line.number, word)).collect::<Vec<_>>()
        })
        .collect();
    let mut figures = Vec::new();
    for (at, (_, unit)) in words.iter().enumerate() {
        let before = words.iter().take(at).rev();
        let is_instructions = unit == "instructions";
        if !is_instructions && !UNITS.contains(&unit.as_str()) {
            continue;
        }
        // A number counts only right before the unit, or before a number that does.
        let shared =
            before.take_while(|(_, word)| number(word).is_some() || BETWEEN.contains(&word.as_str()));
        let numbers: Vec<_> = shared
            .filter_map(|(line, word)| Some((*line, number(word)?)))
            .collect();
        let is_large = |(_, figure): &&(usize, String)| !is_instructions || figure.len() >= 3;
        figures.extend(numbers.iter().filter(is_large).cloned());
    }
    figures
}

fn trimmed(word: &str) -> String {
    let is_mark = |c: char| matches!(c, '(' | ')' | ',' | ';' | ':' | '*' | '"');
    word.trim_matches(is_mark).trim_end_matches('.').to_owned()
}

/// A number without sign and separators of thousands.
fn number(word: &str) -> Option<String> {
    let digits = word.trim_start_matches(['-', '+', '±']).replace(',', "");
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit()) && digits.parse::<f64>().is_ok();
    is_number.then_some(digits)
}

/// The numbers of a results file.
fn numbers(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ','));
    words
        .map(|word| word.trim_matches(['.', ',']))
        .filter_map(number)
        .collect()
}

/// The figures of a row of a table, for [`super::tables`].
pub(super) fn of_text(text: &str) -> Vec<String> {
    let line = Line {
        number: 1,
        kind: Kind::Prose,
        text,
    };
    figures(&[line]).into_iter().map(|(_, figure)| figure).collect()
}

/// Whether a results file holds a figure.
pub(super) fn holds(file: &Source, figure: &str) -> bool {
    numbers(&file.text).contains(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let sources = [
            source("README.md", page),
            source("kernel-tests/results/a.txt", "mean 0.42 worst 1,209 MB\n"),
            source("kernel-tests/results/b.txt", "7 %\n"),
        ];
        check(&sources).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn figures_of_the_named_file() {
        assert_eq!(
            found("0.42 % or 1,209\nMB (`kernel-tests/results/a.txt`)\n"),
            [""; 0]
        );
        assert_eq!(found("`95 %` of 3 instructions\n```text\n9 %\n```\n"), [""; 0]);
    }

    #[test]
    fn figures_that_no_named_file_holds() {
        let missing = "is in none of the results files that its section names";
        let page = "# A\n0.42 to 0.43 % (`kernel-tests/results/a.txt`)\n# B\n0.42%\n7,000 instructions\n";
        let expected = [
            format!("README.md:2: 0.43 {missing}"),
            format!("README.md:4: 0.42 {missing}"),
            format!("README.md:5: 7000 {missing}"),
        ];
        assert_eq!(found(page), expected);
    }
}
