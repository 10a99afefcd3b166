//! The errors as one HTML page, without a script: nothing is loaded from elsewhere, and names of others are text.

use std::io::{self, Write};

use super::charts::{write_errors, write_executions};
use super::evaluated::Errors;
use super::notes::Note;
use crate::report::html::{STYLE, hash};
use crate::report::table::{Line, Table};
use hbbp_model::names::Demangle;
use hbbp_model::printable::markup;

/// Writes the page.
///
/// # Errors
/// Of `out`.
pub(super) fn write(errors: &Errors<'_>, demangle: Demangle, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{}'">
<title>hbbp-sys: errors against exact counts</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Errors against exact counts</h1>"#,
        hash(STYLE)
    )?;
    write_notes(&errors.notes(), out)?;
    if errors.sampling.is_empty() {
        let mnemonics = errors.mnemonics();
        writeln!(out, "<figure>")?;
        write_executions(&mnemonics, out)?;
        writeln!(
            out,
            "<figcaption>Executions of the most executed mnemonics by the hybrid (bars, left), and the errors of these (dots, right): \
             Figure 3 of the HBBP paper.</figcaption>\n</figure>\n<figure>"
        )?;
        write_errors(&mnemonics, out)?;
        writeln!(
            out,
            "<figcaption>Errors of the same mnemonics by each method: Figure 4 of the HBBP paper.</figcaption>\n</figure>"
        )?;
    }
    for section in errors.sections(demangle) {
        writeln!(out, "<h2>{}</h2>", markup(&section.heading))?;
        write_table(&section.table, out)?;
    }
    write_notes(&errors.recordings(), out)?;
    writeln!(
        out,
        "<footer class=\"soft\">Made by hbbp-sys {}</footer>\n</body>\n</html>",
        env!("CARGO_PKG_VERSION")
    )
}

fn write_notes(notes: &[Note], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<dl>")?;
    for Note { label, words } in notes {
        writeln!(out, "<dt>{label}</dt><dd>{}</dd>", markup(words))?;
    }
    writeln!(out, "</dl>")
}

/// What follows the last rule of a table is about all its rows.
fn write_table(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let heads = [(&table.names, " class=\"name\""), (&table.numbers, "")].map(|(titles, class)| {
        let heads = titles
            .iter()
            .map(|title| format!("<th scope=\"col\"{class}>{}</th>", markup(title)));
        heads.collect::<String>()
    });
    writeln!(
        out,
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>",
        heads.concat()
    )?;
    for line in &table.lines {
        match line {
            Line::Rule => writeln!(out, "</tbody>\n<tbody class=\"whole\">")?,
            Line::Row(names, numbers) => {
                let names = names
                    .iter()
                    .map(|name| format!("<td class=\"name\">{}</td>", markup(name)));
                let numbers = numbers
                    .iter()
                    .map(|number| format!("<td>{}</td>", markup(number.trim_end())));
                writeln!(out, "<tr>{}</tr>", names.chain(numbers).collect::<String>())?;
            }
        }
    }
    writeln!(out, "</tbody>\n</table></div>")
}
