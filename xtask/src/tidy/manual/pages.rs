//! Where the README, the pages of the book and the results of experiments are.

use super::super::finding::Source;

/// The front page.
pub(super) const README: &str = "README.md";

/// The folder of the pages of the book.
pub(super) const BOOK: &str = "hbbp-user/book/src/";

/// The table of contents of the book.
pub(super) const CONTENTS: &str = "hbbp-user/book/src/SUMMARY.md";

/// The folder of results.
pub(super) const RESULTS: &str = "kernel-tests/results/";

/// The rows of the tables that are generated.
pub(super) const SUMMARY: &str = "kernel-tests/results/summary.tsv";

/// The README and the pages of the book.
pub(crate) fn pages(sources: &[Source]) -> impl Iterator<Item = &Source> {
    let is_page = |source: &&Source| {
        source.path == README || source.path.starts_with(BOOK) && source.path.ends_with(".md")
    };
    sources.iter().filter(is_page)
}
