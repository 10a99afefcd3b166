//! Long text goes through a pager where a terminal shows it.

use std::env;
use std::io::{self, IsTerminal as _, Write};
use std::process::{Command, Stdio};

use super::closed_pipe::reader_after;

/// Whether a pager shows text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Paging {
    /// The one that PAGER names, else `less -FRX`, where standard output is a terminal.
    #[default]
    Auto,
    /// Never (`--no-pager`).
    Never,
}

/// Writes to `out`, or through a pager. A reader that has gone is not an error.
pub(super) fn paged(
    paging: Paging,
    out: &mut dyn Write,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let pager = pager().filter(|_| paging == Paging::Auto && io::stdout().is_terminal());
    let shown = match pager {
        Some(pager) => through(pager, out, write),
        None => write(out),
    };
    reader_after(shown).map(|_| ())
}

/// The pager that the user wants: none where PAGER is empty or `cat`.
fn pager() -> Option<Command> {
    let named = env::var("PAGER").ok();
    let words: Vec<&str> = named.as_deref().unwrap_or("less").split_whitespace().collect();
    let (program, arguments) = words.split_first().filter(|(program, _)| **program != "cat")?;
    let mut pager = Command::new(program);
    pager.args(arguments).stdin(Stdio::piped());
    if env::var_os("LESS").is_none() {
        // End at once where all fits on the screen, show colours, leave the text there.
        pager.env("LESS", "FRX");
    }
    Some(pager)
}

fn through(
    mut pager: Command,
    out: &mut dyn Write,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let Ok(mut running) = pager.spawn() else {
        return write(out);
    };
    let written = running.stdin.take().map_or(Ok(()), |mut input| write(&mut input));
    running.wait()?;
    written
}
