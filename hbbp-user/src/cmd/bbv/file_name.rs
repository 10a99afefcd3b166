//! Names of files as Valgrind's options have them: `%p` is the process, `%q{NAME}` a variable of the environment, `%%` a percent
//! sign (Valgrind manual, core option `--log-file`).

use std::path::PathBuf;

use thiserror::Error;

/// A name, cut at each `%p`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FileName {
    parts: Vec<String>,
}

/// Why a name cannot be used.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub(crate) enum FileNameError {
    /// A percent sign before something else.
    #[error("`%{0}` is none of %p (process), %q{{NAME}} (variable of the environment) and %%")]
    Specifier(String),
    /// `%q` without a name in braces.
    #[error("%q needs the name of a variable, as in %q{{HOME}}")]
    NoVariable,
    /// A variable that the environment does not have.
    #[error("the environment has no variable `{0}`")]
    Unset(String),
    /// Nothing is left.
    #[error("a file needs a name")]
    Empty,
}

impl FileName {
    /// Reads a name, with the variables as `variable` has them.
    ///
    /// # Errors
    /// It has an unknown specifier, a variable that is not set, or nothing.
    pub(crate) fn parse(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FileNameError> {
        let mut pieces = text.split('%');
        let mut name = Self::plain(pieces.next().unwrap_or_default());
        while let Some(piece) = pieces.next() {
            if let Some(rest) = piece.strip_prefix('p') {
                name.parts.push(rest.to_owned());
            } else if let Some(rest) = piece.strip_prefix('q') {
                let braced = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                let (of, rest) = braced.ok_or(FileNameError::NoVariable)?;
                name.add(&variable(of).ok_or_else(|| FileNameError::Unset(of.to_owned()))?);
                name.add(rest);
            } else if piece.is_empty()
                && let Some(next) = pieces.next()
            {
                name.add("%");
                name.add(next);
            } else {
                let specifier = piece.chars().next().map_or_else(String::new, String::from);
                return Err(FileNameError::Specifier(specifier));
            }
        }
        if name.parts.iter().all(String::is_empty) {
            return Err(FileNameError::Empty);
        }
        Ok(name)
    }

    /// This name, whatever is in it.
    pub(crate) fn plain(name: &str) -> Self {
        Self {
            parts: vec![name.to_owned()],
        }
    }

    fn add(&mut self, text: &str) {
        if let Some(last) = self.parts.last_mut() {
            last.push_str(text);
        }
    }

    /// Whether each process has a file of its own.
    pub(crate) fn is_of_process(&self) -> bool {
        1 < self.parts.len()
    }

    /// The name for a process.
    pub(super) fn of(&self, tgid: u32) -> PathBuf {
        self.parts.join(&tgid.to_string()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<PathBuf, FileNameError> {
        let variable = |name: &str| (name == "RUN").then(|| "a%p".to_owned());
        FileName::parse(text, variable).map(|name| name.of(42))
    }

    #[test]
    fn specifiers_are_those_of_valgrind() {
        for (text, name) in [
            ("bb.out", "bb.out"),
            ("bb.out.%p", "bb.out.42"),
            ("%p-%p", "42-42"),
            ("%q{RUN}/bb", "a%p/bb"),
            ("100%%.%p", "100%.42"),
            ("%%%p%%", "%42%"),
        ] {
            assert_eq!(parsed(text), Ok(name.into()), "{text}");
        }
        for (text, error) in [
            ("", FileNameError::Empty),
            ("%", FileNameError::Specifier(String::new())),
            ("bb%d", FileNameError::Specifier("d".to_owned())),
            ("a%%%", FileNameError::Specifier(String::new())),
            ("%qRUN", FileNameError::NoVariable),
            ("%q{RUN", FileNameError::NoVariable),
            ("%q{OTHER}", FileNameError::Unset("OTHER".to_owned())),
        ] {
            assert_eq!(parsed(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_process_in_a_variable_is_text() {
        let variable = |_: &str| Some("%p".to_owned());
        assert!(!FileName::parse("%q{RUN}", variable).unwrap().is_of_process());
        assert!(FileName::parse("bb.%p", variable).unwrap().is_of_process());
    }
}
