//! A row of a table of the screen.

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The values of its dimensions as found.
    pub key: Vec<String>,
    /// Share of all instructions.
    pub share: f64,
    /// Standard error of the share.
    pub error: f64,
    /// The part of the share that is the kernel's.
    pub kernel: f64,
}
