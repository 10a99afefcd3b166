//! Long text goes through a pager where a terminal shows it.

use std::env;
use std::io::{self, IsTerminal as _, Write};
use std::process::{Command, Stdio};

use super::closed_pipe::reader_after;

/// Whether a pager shows text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Paging {
    /// The one that PAGER names, else `less -FRX`, where standard output is a terminal. Under sudo `less` alone, which then starts no
    /// other programs.
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
    let named = env::var("PAGER").ok();
    let is_sudo = env::var_os("SUDO_UID").is_some();
    let pager = pager(named.as_deref(), is_sudo);
    let pager = pager.filter(|_| paging == Paging::Auto && io::stdout().is_terminal());
    let shown = match pager {
        Some(pager) => through(pager, out, write),
        None => write(out),
    };
    reader_after(shown).map(|_| ())
}

/// The pager that the user wants: none where PAGER is empty or `cat`. Who may run this program as root, and no other,
/// would get a shell through it, so sudo gives them a `less` that starts none (less(1), SECURITY).
fn pager(named: Option<&str>, is_sudo: bool) -> Option<Command> {
    let named = named.filter(|named| !is_sudo || is_none(named));
    let words: Vec<&str> = named.unwrap_or("less").split_whitespace().collect();
    let (program, arguments) = words.split_first().filter(|(program, _)| **program != "cat")?;
    let mut pager = Command::new(program);
    pager.args(arguments).stdin(Stdio::piped());
    if is_sudo {
        pager
            .env("LESSSECURE", "1")
            .env_remove("LESSOPEN")
            .env_remove("LESSCLOSE");
    }
    if is_sudo || env::var_os("LESS").is_none() {
        // End at once where all fits on the screen, show colours, leave the text there.
        pager.env("LESS", "FRX");
    }
    Some(pager)
}

/// Whether a value of PAGER means none.
fn is_none(named: &str) -> bool {
    matches!(named.trim(), "" | "cat")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn program(named: Option<&str>, is_sudo: bool) -> Option<String> {
        pager(named, is_sudo).map(|it| it.get_program().to_string_lossy().into_owned())
    }

    #[test]
    fn sudo_gives_no_shell_through_the_pager() {
        for named in [None, Some("less"), Some("more"), Some("sh -c id")] {
            assert_eq!(program(named, true).as_deref(), Some("less"), "{named:?}");
        }
        let pager = pager(Some("vim -"), true).unwrap();
        let variables: Vec<_> = pager.get_envs().collect();
        assert!(variables.contains(&("LESSSECURE".as_ref(), Some("1".as_ref()))));
        assert!(variables.contains(&("LESSOPEN".as_ref(), None)));
        assert_eq!(pager.get_args().count(), 0);
    }

    #[test]
    fn pager_is_the_one_that_the_user_names() {
        assert_eq!(program(None, false).as_deref(), Some("less"));
        assert_eq!(program(Some("most -s"), false).as_deref(), Some("most"));
        for is_sudo in [false, true] {
            assert_eq!(program(Some("cat"), is_sudo), None);
            assert_eq!(program(Some(""), is_sudo), None);
        }
    }
}
