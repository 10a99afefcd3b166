//! The README and the book: their lengths, links, commands, figures and generated tables.

mod figures;
mod lengths;
mod links;
pub(crate) mod markdown;
pub(crate) mod pages;
mod questions;
pub(crate) mod tables;

use super::finding::{Finding, Source};

/// What is wrong with README and book.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = lengths::check(sources);
    findings.extend(links::check(sources));
    findings.extend(questions::check(sources));
    findings.extend(figures::check(sources));
    findings.extend(tables::check(sources));
    findings
}
