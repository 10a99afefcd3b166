//! Where a profile alone is written: anywhere but to a terminal.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use hbbp_model::profile::Output;

/// Opens an output for a profile alone.
pub(super) fn open_output(path: &Path) -> anyhow::Result<Output> {
    let output = Output::open(path)?;
    anyhow::ensure!(
        !output.is_standard() || !io::stdout().is_terminal(),
        "standard output is a terminal: redirect it, or name a file"
    );
    Ok(output)
}
