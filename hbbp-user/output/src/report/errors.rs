//! The errors of a profile against exact counts, as text, as a page that draws them, or as JSON.
//!
//! Errors are fractions of the reference, in text as percent; a group without a reference has none.

mod charts;
pub(super) mod evaluated;
mod html;
mod json;
mod notes;
mod sampling;
mod tables;

use std::io::{self, Write};

use super::ErrorsFormat;
use super::look::Look;
use super::page::Page;
use evaluated::{Errors, SamplingMethod};
use hbbp_analysis::eval::{Evaluation, Level};
use hbbp_model::printable::write_json;

impl<'a> Errors<'a> {
    /// The errors of an evaluation, with at most `top` groups and mnemonics in text.
    pub fn new(evaluation: &'a Evaluation, level: Level, top: Option<usize>) -> Self {
        let whole = evaluation.groups(Level::Whole).into_iter().next();
        Self {
            evaluation,
            level,
            whole: whole.unwrap_or_default(),
            groups: evaluation.groups(level),
            top,
            sampling: &[],
        }
    }

    /// The same by sampling method, for these.
    #[must_use]
    pub fn by_sampling(self, sampling: &'a [SamplingMethod<'a>]) -> Self {
        Self { sampling, ..self }
    }

    /// Writes them; text looks as `look` says, and so do the names of a page.
    pub fn write(&self, format: ErrorsFormat, look: Look, out: &mut dyn Write) -> io::Result<()> {
        match format {
            ErrorsFormat::Text => self.text(&mut Page { look, out }),
            ErrorsFormat::Json => write_json(&json::Document::new(self), out),
            ErrorsFormat::Html => html::write(self, look.demangle, out),
        }
    }

    fn text(&self, page: &mut Page<'_>) -> io::Result<()> {
        for note in self.notes() {
            page.entry(&format!("{:<11}", note.label), &note.words)?;
        }
        for section in self.sections(page.look.demangle) {
            page.heading(&section.heading)?;
            page.table(&section.table, |_| None)?;
        }
        let recordings = self.recordings();
        if !recordings.is_empty() {
            page.line("")?;
        }
        for note in recordings {
            page.entry(&format!("{:<15}", note.label), &note.words)?;
        }
        Ok(())
    }
}
