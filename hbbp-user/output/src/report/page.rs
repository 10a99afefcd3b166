//! Lines of text on a page of limited width, with word wrap, hanging indent and colours.

use std::io::{self, Write};

use super::look::{Colours, Look, Role, bar};
use super::number::{columns, shortened};
use super::table::{Line, Table};
use hbbp_model::printable::harmless;

/// Columns of a bar, and blanks before it.
const BAR: usize = 12;
const GAP: usize = 2;

/// Where the lines go, and how they look.
pub(super) struct Page<'a> {
    /// How they look.
    pub(super) look: Look,
    /// Where they go.
    pub(super) out: &'a mut dyn Write,
}

impl Page<'_> {
    /// One line, shortened in its middle if it is too long.
    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        let text = shortened(text.trim_end(), self.look.width);
        self.print(&text)
    }

    /// A line that fits, in the letters of the look.
    pub(super) fn print(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{}", self.look.letters.shown(line))
    }

    /// One line in the colour of its role.
    pub(super) fn painted(&mut self, role: Role, text: &str) -> io::Result<()> {
        let text = shortened(text.trim_end(), self.look.width);
        self.print(&self.look.colours.paint(role, &text))
    }

    /// A line after an empty one.
    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        self.line("")?;
        self.painted(Role::Title, text)
    }

    /// A table: its titles are highlighted, and so is what follows its last rule. Where there are bars and columns left
    /// for them, each row has a bar of its `share`, 0 to 1.
    pub(super) fn table(&mut self, table: &Table, share: impl Fn(usize) -> Option<f64>) -> io::Result<()> {
        let left = self.look.width.saturating_sub(BAR + GAP);
        let bars = self.look.colours == Colours::Shown && table.fits(left);
        let lines = table.render(if bars { left } else { self.look.width });
        let widest = lines.iter().map(|line| columns(line)).max().unwrap_or(0);
        let after_rule = table.lines.iter().rposition(|line| matches!(line, Line::Rule));
        for (n, line) in lines.iter().enumerate() {
            // The titles come before the rows.
            let row = n.checked_sub(1);
            let bar = row.filter(|_| bars).and_then(&share).map(|share| bar(share, BAR));
            match bar.filter(|bar| !bar.is_empty()) {
                _ if row.is_none() || row > after_rule && after_rule.is_some() => {
                    self.painted(Role::Title, line)?;
                }
                None => self.line(line)?,
                Some(bar) => {
                    let gap = " ".repeat(widest - columns(line) + GAP);
                    let bar = self.look.colours.paint(Role::Faint, &bar);
                    self.print(&format!("{line}{gap}{bar}"))?;
                }
            }
        }
        Ok(())
    }

    /// A label with a sentence to its right
    pub(super) fn entry(&mut self, label: &str, sentence: &str) -> io::Result<()> {
        for line in entry_lines(label, sentence, self.look.width) {
            self.line(&line)?;
        }
        Ok(())
    }
}

/// The lines of [`Page::entry`] on a page of this width.
pub(super) fn entry_lines(label: &str, sentence: &str, width: usize) -> Vec<String> {
    /// Where fewer columns are left for the sentence, the label has its own line.
    const NARROWEST: usize = 24;

    let beside = columns(label);
    let mut lines = Vec::new();
    let mut indent = beside;
    let mut first = label.to_owned();
    if width < beside + NARROWEST {
        lines.push(label.to_owned());
        indent = width.min(4) / 2;
        first = " ".repeat(indent);
    }
    for line in wrapped(&harmless(sentence), width.saturating_sub(indent)) {
        lines.push(format!("{first}{line}"));
        first = " ".repeat(indent);
    }
    lines
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
        let look = Look {
            width,
            ..Look::default()
        };
        Page { look, out: &mut out }.entry(label, sentence).unwrap();
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
