//! The lines of the first screen.

use super::super::look::Role;
use super::super::number::columns;

/// One line and what it is.
pub(super) type Line = (Option<Role>, String);

/// Two texts side by side, the second one at this column.
pub(super) fn beside(left: &str, at: usize, right: &str) -> String {
    let blanks = " ".repeat(at.saturating_sub(columns(left)));
    format!("{left}{blanks}{right}")
}
