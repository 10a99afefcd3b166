//! How text looks: its width, its names, and colours and bars where a terminal can show them.

use std::borrow::Cow;

use anstyle::{AnsiColor, Style};

use super::number::columns;
use hbbp_model::names::Demangle;

/// How text looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Look {
    /// Most columns of a line.
    pub width: usize,
    /// Whether functions are shown demangled.
    pub demangle: Demangle,
    /// Whether there are colours and bars.
    pub colours: Colours,
    /// Which letters a terminal can show.
    pub letters: Letters,
}

/// Whether text has colours and bars.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Colours {
    /// Neither: files, pipes, and whoever asks for none (NO_COLOR).
    #[default]
    Plain,
    /// Both: a terminal that shows them.
    Shown,
}

/// Which letters text has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Letters {
    /// Any.
    #[default]
    Unicode,
    /// Those of every locale (POSIX, 6.1 Portable Character Set).
    Ascii,
}

impl Look {
    /// Without a terminal: wide enough for all columns.
    const WIDTH: usize = 100;
}

impl Default for Look {
    fn default() -> Self {
        Self {
            width: Self::WIDTH,
            demangle: Demangle::default(),
            colours: Colours::default(),
            letters: Letters::default(),
        }
    }
}

impl Letters {
    /// The text in these letters, as many columns wide as before.
    pub(super) fn shown(self, text: &str) -> Cow<'_, str> {
        /// For each letter of our own that is not ASCII, the one that looks like it.
        const ALIKE: [(&str, char); 12] = [
            ("±", '~'),
            ("…·", '.'),
            ("┌", ','),
            ("└", '`'),
            ("│▏▎▍▌┼", '|'),
            ("─╶", '-'),
            ("►›", '>'),
            ("◄", '<'),
            ("⋮", ':'),
            ("▁▂", '_'),
            ("▃▄▅", '='),
            ("█▋▊▉▆▇", '#'),
        ];

        if self == Self::Unicode || text.is_ascii() {
            return Cow::Borrowed(text);
        }
        let mut shown = String::with_capacity(text.len());
        for letter in text.chars() {
            if letter.is_ascii() {
                shown.push(letter);
                continue;
            }
            let alike = ALIKE.iter().find(|(letters, _)| letters.contains(letter));
            let alike = alike.map_or('?', |(_, alike)| *alike);
            let width = columns(letter.encode_utf8(&mut [0; 4]));
            shown.extend(std::iter::repeat_n(alike, width));
        }
        Cow::Owned(shown)
    }
}

/// What a piece of text is, which decides its colour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// Titles of parts and columns, sums.
    Title,
    /// What the reader must know.
    Warning,
    /// What is only there for orientation: bars, arrows, addresses.
    Faint,
    /// Much of something.
    Hot,
    /// Some of it.
    Warm,
    /// Source lines.
    Source,
}

impl Role {
    const fn style(self) -> Style {
        let plain = Style::new();
        match self {
            Self::Title => plain.bold(),
            Self::Warning => plain
                .bold()
                .fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow))),
            Self::Faint => plain.dimmed(),
            Self::Hot => plain.fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red))),
            Self::Warm => plain.fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow))),
            Self::Source => plain.fg_color(Some(anstyle::Color::Ansi(AnsiColor::Cyan))),
        }
    }
}

impl Colours {
    /// The text in the colour of its role.
    pub(super) fn paint(self, role: Role, text: &str) -> String {
        match self {
            Self::Shown if !text.is_empty() => {
                let style = role.style();
                format!("{style}{text}{style:#}")
            }
            _ => text.to_owned(),
        }
    }
}

/// A bar of at most `width` columns for a share from 0 to 1, in eighths of a column.
pub(super) fn bar(share: f64, width: usize) -> String {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

    let eighths = (share.clamp(0.0, 1.0) * (8 * width) as f64).round();
    let full = (1..=width).take_while(|n| (8 * n) as f64 <= eighths).count();
    let part = PARTS
        .iter()
        .enumerate()
        .find(|(n, _)| eighths <= (8 * full + n) as f64);
    let part = part.map_or(' ', |(_, part)| *part);
    let bar = "█".repeat(full) + &part.to_string();
    bar.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_every_locale_keep_their_columns() {
        for text in ["±15 …", "┌┌►  │ └─", "漢字 é", "plain", "█▍▁▇"] {
            let shown = Letters::Ascii.shown(text);
            assert!(shown.is_ascii(), "{shown}");
            assert_eq!(columns(&shown), columns(text), "{shown}");
            assert_eq!(Letters::Unicode.shown(text), text);
        }
        assert_eq!(Letters::Ascii.shown("±15 │►"), "~15 |>");
    }

    #[test]
    fn bars_have_eighths_of_columns() {
        let bars = [
            (0.0, ""),
            (0.005, ""),
            (0.05, "▍"),
            (0.5, "████"),
            (0.55, "████▍"),
            (1.0, "████████"),
            (7.0, "████████"),
        ];
        for (share, shown) in bars {
            assert_eq!(bar(share, 8), shown, "{share}");
        }
    }

    #[test]
    fn plain_text_has_no_escape_sequences() {
        assert_eq!(Colours::Plain.paint(Role::Hot, "x"), "x");
        assert_eq!(Colours::Shown.paint(Role::Title, "x"), "\x1b[1mx\x1b[0m");
    }
}
