//! Lines of text on a page of limited width, with word wrap and hanging indent.

use std::io::{self, Write};

use super::number::{columns, shortened};
use crate::printable::harmless;

/// Where the lines go, and how wide they may be.
pub(super) struct Page<'a> {
    /// Most columns of a line.
    pub(super) width: usize,
    /// Where they go.
    pub(super) out: &'a mut dyn Write,
}

impl Page<'_> {
    /// One line, shortened in its middle if it is too long.
    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", shortened(text.trim_end(), self.width))
    }

    /// A line after an empty one.
    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        self.line("")?;
        self.line(text)
    }

    /// A label with a sentence beside it; continuation lines align with the first one.
    pub(super) fn entry(&mut self, label: &str, sentence: &str) -> io::Result<()> {
        /// Where fewer columns are left for the sentence, the label has its own line.
        const NARROWEST: usize = 24;

        let beside = columns(label);
        let mut indent = beside;
        let mut first = label.to_owned();
        if self.width < beside + NARROWEST {
            self.line(label)?;
            indent = self.width.min(4) / 2;
            first = " ".repeat(indent);
        }
        for line in wrapped(&harmless(sentence), self.width.saturating_sub(indent)) {
            self.line(&format!("{first}{line}"))?;
            first = " ".repeat(indent);
        }
        Ok(())
    }
}

/// A sentence in lines of at most `width` columns; longer words are shortened.
fn wrapped(sentence: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in sentence.split_whitespace() {
        let word = shortened(word, width);
        let used = lines.last().map_or(0, |line| columns(line));
        match lines.last_mut() {
            Some(line) if used == 0 => line.push_str(&word),
            Some(line) if used + 1 + columns(&word) <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(width: usize, label: &str, sentence: &str) -> String {
        let mut out = Vec::new();
        Page { width, out: &mut out }.entry(label, sentence).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn entry_wraps_with_a_hanging_indent() {
        let shown = page(32, "  - ", "one two three four five six seven eight");
        assert_eq!(shown, "  - one two three four five six\n    seven eight\n");
        let shown = page(20, "  label   ", "one two three four five six");
        assert_eq!(shown, "  label\n  one two three four\n  five six\n");
    }

    #[test]
    fn entry_fits_any_width() {
        for width in 0..60 {
            for line in page(
                width,
                "  label  ",
                "words and /a/very/long/path/that/has/no/blank/in/it\n",
            )
            .lines()
            {
                assert!(columns(line) <= width, "{width}: {line}");
            }
        }
    }
}
