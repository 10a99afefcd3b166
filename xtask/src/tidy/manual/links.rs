//! Links of README and book lead to a file, and to a heading of it; the table of contents has every page of the book.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::super::finding::{Finding, Source};
use super::markdown::{Kind, anchor, lines, links};
use super::pages::{BOOK, CONTENTS, pages};

/// The links that lead nowhere, and the pages that nothing lists.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let anchors: BTreeMap<&str, BTreeSet<String>> = sources
        .iter()
        .map(|source| (source.path.as_str(), anchors(source)))
        .collect();
    let mut findings = Vec::new();
    for page in pages(sources) {
        for (line, target) in links(&page.text) {
            let Some((path, heading)) = inside(&page.path, &target) else {
                continue;
            };
            // Pictures are no text, and so not among the sources.
            let is_picture = path.ends_with(".png");
            match anchors.get(path.as_str()) {
                None if is_picture => {}
                None => findings.push(page.finding(line, format!("the link leads nowhere: {target}"))),
                Some(anchors) if heading.is_empty() || anchors.contains(heading) => {}
                Some(_) => {
                    findings.push(page.finding(line, format!("the page has no such heading: {target}")));
                }
            }
        }
    }
    findings.extend(unlisted(sources));
    findings
}

/// The file of the workspace that a link names, and the heading in it; `None` for links to other hosts.
pub(super) fn inside<'a>(from: &str, target: &'a str) -> Option<(String, &'a str)> {
    if target.contains("://") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    if file.is_empty() {
        return Some((from.to_owned(), heading));
    }
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for part in folder.join(file).components() {
        if part == Component::ParentDir {
            path.pop();
        } else {
            path.push(part);
        }
    }
    Some((path.to_string_lossy().into_owned(), heading))
}

/// The headings of a page, as links name them.
pub(super) fn anchors(page: &Source) -> BTreeSet<String> {
    if !page.path.ends_with(".md") {
        return BTreeSet::new();
    }
    let headings = lines(&page.text)
        .into_iter()
        .filter(|line| line.kind == Kind::Heading);
    headings.map(|line| anchor(line.text)).collect()
}

/// Pages of the book that the table of contents lacks.
fn unlisted(sources: &[Source]) -> Vec<Finding> {
    let Some(contents) = sources.iter().find(|source| source.path == CONTENTS) else {
        return Vec::new();
    };
    let listed: BTreeSet<String> = links(&contents.text)
        .iter()
        .filter_map(|(_, target)| Some(inside(CONTENTS, target)?.0))
        .collect();
    let missing = pages(sources)
        .filter(|page| page.path.starts_with(BOOK) && page.path != CONTENTS && !listed.contains(&page.path));
    missing
        .map(|page| page.finding(1, format!("{CONTENTS} does not list the page")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn found(readme: &str) -> Vec<String> {
        let sources = [
            source("README.md", readme),
            source(
                "hbbp-user/book/src/a/b.md",
                "# One two\n[up](../c.md) [self](#one-two)\n",
            ),
            source("hbbp-user/book/src/c.md", "# C\n"),
            source(CONTENTS, "- [B](a/b.md)\n- [C](c.md)\n"),
        ];
        check(&sources).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere() {
        let text = "[b](hbbp-user/book/src/a/b.md#one-two) ![p](.github/p.png) [w](https://example.org)\n";
        assert_eq!(found(text), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere() {
        let text = "[b](hbbp-user/book/src/a/gone.md)\n[b](hbbp-user/book/src/a/b.md#three)\n";
        let expected = [
            "README.md:1: the link leads nowhere: hbbp-user/book/src/a/gone.md",
            "README.md:2: the page has no such heading: hbbp-user/book/src/a/b.md#three",
        ];
        assert_eq!(found(text), expected);
    }

    #[test]
    fn page_without_entry_in_the_contents() {
        let sources = [
            source("hbbp-user/book/src/a.md", "# A\n"),
            source(CONTENTS, "# Summary\n"),
        ];
        let found: Vec<String> = check(&sources).iter().map(Finding::to_string).collect();
        let expected = "hbbp-user/book/src/a.md:1: hbbp-user/book/src/SUMMARY.md does not list the page";
        assert_eq!(found, [expected]);
    }
}
