//! Names that others chose, made safe to print.
//!
//! Command names and paths are chosen by whoever runs a program: they may hold escape sequences of terminals, line ends
//! that forge a line of the output, and marks that reverse the direction of writing. Text, CSV and lines for scripts
//! get U+FFFD instead; JSON gets escapes, so that a parser reads the name as it is.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use unicode_width::UnicodeWidthChar as _;

/// A name without control characters and characters of zero width.
pub fn harmless(name: &str) -> String {
    let replaced = |c: char| {
        if is_harmless(c) {
            c
        } else {
            char::REPLACEMENT_CHARACTER
        }
    };
    name.chars().map(replaced).collect()
}

/// A name in HTML, SVG or XML, as text or in quotes: harmless, and no markup.
pub fn markup(name: &str) -> String {
    let escaped = harmless(name).replace('&', "&amp;").replace('"', "&quot;");
    escaped.replace('<', "&lt;").replace('>', "&gt;")
}

/// A name in a cell of CSV: harmless, and nothing that a spreadsheet computes, which begins with one of `=+-@`. Such a name gets an
/// apostrophe in front (OWASP, "CSV Injection").
pub fn csv_name(name: &str) -> String {
    let name = harmless(name);
    if name.starts_with(['=', '+', '-', '@']) {
        format!("'{name}")
    } else {
        name
    }
}

fn is_harmless(c: char) -> bool {
    c.width().is_some_and(|width| 0 < width)
}

/// Writes a value as indented JSON and a newline.
///
/// # Errors
/// Of `out`.
pub fn write_json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let escaping = Escaping(PrettyFormatter::new());
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut *out, escaping))?;
    writeln!(out)
}

/// Indents as `PrettyFormatter` does, and escapes what would not be harmless in a string.
struct Escaping(PrettyFormatter<'static>);

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let mut units = [0; 2];
        for c in fragment.chars() {
            if is_harmless(c) {
                write!(out, "{c}")?;
                continue;
            }
            for unit in c.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An escape sequence, a bell, line ends, a C1 control, a mark of direction, and a character beyond 16 bits.
    const HOSTILE: &str = "a\x1b[2Jb\x07\r\n\u{9b}\u{202e}\u{e0001}c\"\\é漢";

    #[test]
    fn names_in_pages_are_no_markup() {
        assert_eq!(
            markup("<b a=\"1\">&lt;\x1b\u{202e}"),
            "&lt;b a=&quot;1&quot;&gt;&amp;lt;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn names_in_csv_are_no_formulas() {
        for formula in ["=cmd|' /C calc'!A1", "+1", "-1+2", "@SUM(A1)"] {
            assert_eq!(csv_name(formula), format!("'{formula}"));
        }
        for name in ["main", "[kernel]", "a=b", ""] {
            assert_eq!(csv_name(name), name);
        }
        assert_eq!(csv_name("\t=1"), "\u{fffd}=1");
    }

    #[test]
    fn harmless_replaces_terminal_escapes() {
        assert_eq!(
            harmless("a\x1b[2Jb\r\n\u{202e}c"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}\u{fffd}c"
        );
        assert!(harmless(HOSTILE).chars().all(is_harmless));
    }

    #[test]
    fn json_is_harmless_and_reads_as_it_was() {
        let value = serde_json::json!({"name": HOSTILE, "list": [1, {"empty": []}]});
        let mut out = Vec::new();
        write_json(&value, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let shown = text.chars().filter(|c| *c != '\n');
        assert!(shown.clone().all(is_harmless), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        let plain = serde_json::json!({"a": [1, 2], "b": {"c": "text"}});
        let mut out = Vec::new();
        write_json(&plain, &mut out).unwrap();
        let pretty = serde_json::to_string_pretty(&plain).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), pretty + "\n");
    }
}
