//! A file of the workspace, and something untidy in it.

use std::fmt;

/// A text file of the workspace.
pub(crate) struct Source {
    /// From the top of the workspace.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(super) fn is_any_of(&self, parts: &[&str]) -> bool {
        parts.iter().any(|part| self.path.contains(part))
    }

    pub(super) fn finding(&self, line: usize, message: String) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            severity: Severity::Error,
            message,
        }
    }

    pub(super) fn warning(&self, line: usize, message: String) -> Finding {
        Finding {
            severity: Severity::Warning,
            ..self.finding(line, message)
        }
    }
}

/// Something untidy.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) severity: Severity,
    pub(super) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning: ",
            Severity::Error => "",
        };
        write!(f, "{}:{}: {severity}{}", self.path, self.line, self.message)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Warning,
    Error,
}
