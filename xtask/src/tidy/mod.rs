//! `cargo xtask tidy`: our own rules, which neither the compiler nor clippy knows.

mod circles;
mod docs;
mod finding;
mod imports;
mod manual;
mod options;
mod rust;
mod sentences;
mod shapes;
mod test_names;
mod text;
mod words;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::command;
use finding::{Finding, Severity, Source};

/// What holds nothing of ours; .git is a file where there are several work trees.
const SKIPPED: [&str; 2] = [".git", "target"];

/// A rule about one file.
type Rule = fn(&Source) -> Vec<Finding>;

const RULES: [Rule; 10] = [
    text::module_doc,
    text::size,
    text::blanks,
    text::name,
    text::foreign,
    text::safety,
    sentences::check,
    words::standard,
    words::prose,
    test_names::check,
];

/// Prints what is untidy in the workspace, and fails if that is more than warnings.
pub(crate) fn tidy() -> Result<()> {
    let root = command::workspace();
    let sources = read_sources(&root)?;
    let findings = findings(&sources, &root);
    for finding in &findings {
        println!("{finding}");
    }
    let n_errors = findings
        .iter()
        .filter(|it| it.severity == Severity::Error)
        .count();
    ensure!(n_errors == 0, "found {n_errors} violations of the tidy rules");
    println!("tidy: {} files", sources.len());
    Ok(())
}

fn findings(sources: &[Source], root: &Path) -> Vec<Finding> {
    let test_only = test_only(sources);
    let mut findings = Vec::new();
    for source in sources {
        findings.extend(RULES.iter().flat_map(|rule| rule(source)));
        findings.extend(docs::check(source, root));
        // Tests use whatever they need.
        if !test_only.contains(&source.path) {
            findings.extend(imports::check(source));
            findings.extend(options::check(source));
            findings.extend(words::messages(source));
        }
    }
    findings.extend(manual::check(sources));
    findings.extend(circles::check(&without_tests(sources)));
    let built = without_tests(sources);
    findings.extend(circles::check(&built));
    findings.extend(shapes::check(&built));
    findings
}

/// The files that exist only in tests.
fn test_only(sources: &[Source]) -> Vec<String> {
    let files = |source: &Source| rust::test_only_files(&source.path, &source.text);
    sources.iter().flat_map(files).collect()
}

/// The sources that are built outside of tests.
fn without_tests(sources: &[Source]) -> Vec<&Source> {
    let test_only = test_only(sources);
    let is_built = |source: &&Source| source.path.contains("/src/") && !test_only.contains(&source.path);
    sources.iter().filter(is_built).collect()
}

/// The pages of README and book whose generated tables are not up to date, with their new text.
pub(crate) fn outdated_tables() -> Result<Vec<(String, String)>> {
    let sources = read_sources(&command::workspace())?;
    let outdated = manual::tables::outdated(&sources).into_iter();
    Ok(outdated.map(|(path, text)| (path.to_owned(), text)).collect())
}

/// Prints the circles of files, and how many there are of them, of long sentences and of other shapes.
pub(crate) fn counts() -> Result<()> {
    let sources = read_sources(&command::workspace())?;
    let built = without_tests(&sources);
    let circles = circles::all(&built);
    for circle in &circles {
        println!("{circle}");
    }
    let shapes = shapes::shapes(&built);
    let (sentences, long) = sentences::counts(&sources);
    println!("{sentences} sentences of comments and documentation, {long} of them too long");
    println!("{} circles of files", circles.len());
    println!("{} public items below hbbp-user", shapes.public);
    println!("{} functions with a tuple as parameter", shapes.with_tuples.len());
    println!(
        "{} structs of more than 12 fields, outside of clap and JSON",
        shapes.wide.len()
    );
    Ok(())
}

/// The text files of the workspace, in the order of their paths.
///
/// They come from the folder and not from git, which a machine that only builds may lack.
fn read_sources(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("failed to list {}", folder.display()))?;
            let path = entry.path();
            let kind = entry
                .file_type()
                .with_context(|| format!("failed to look at {}", path.display()))?;
            if SKIPPED.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let bytes = fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
                let path = path
                    .strip_prefix(root)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned();
                // A binary file has no lines to be tidy.
                sources.extend(String::from_utf8(bytes).ok().map(|text| Source { path, text }));
            }
        }
    }
    sources.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(sources)
}

/// The commands in README and book that begin with these words: the location of each, and its words.
#[cfg(test)]
pub(crate) fn commands_of_the_manual(start: &str) -> Result<Vec<(String, Vec<String>)>> {
    let sources = read_sources(&command::workspace())?;
    let of_page = |page: &Source| {
        let commands = manual::markdown::commands(&page.text).into_iter();
        let commands = commands.filter(|(_, command)| command.starts_with(start));
        let split = |(line, command): (usize, &str)| {
            let words = command.split_whitespace().map(str::to_owned).collect();
            (format!("{}:{line}", page.path), words)
        };
        commands.map(split).collect::<Vec<_>>()
    };
    Ok(manual::pages::pages(&sources).flat_map(of_page).collect())
}

#[cfg(test)]
mod tests {
    use super::finding::{Finding, Severity, Source};
    use super::{manual, read_sources};
    use crate::command;

    /// README and book keep their rules; `cargo xtask tidy` prints the same.
    #[test]
    fn readme_and_book_keep_their_rules() {
        let sources = read_sources(&command::workspace()).unwrap();
        let findings = manual::check(&sources);
        let errors: Vec<String> = findings
            .iter()
            .filter(|it| it.severity == Severity::Error)
            .map(Finding::to_string)
            .collect();
        assert_eq!(errors, [""; 0]);
    }

    /// What one rule says of one file, without its path.
    #[track_caller]
    pub(super) fn check_rule(
        rule: impl Fn(&Source) -> Vec<Finding>,
        path: &str,
        text: &str,
        expected: &[&str],
    ) {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let found: Vec<String> = rule(&source).iter().map(Finding::to_string).collect();
        let expected: Vec<String> = expected.iter().map(|it| format!("{path}:{it}")).collect();
        assert_eq!(found, expected);
    }
}
