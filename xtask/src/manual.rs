//! Man pages and shell completions for packages, by the program that is packaged.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command;

/// Where they go.
pub(crate) const FOLDER: &str = "target/man";

/// The shells whose completions are packaged, and the names of the files that they look for.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "hbbp-sys.bash"),
    ("zsh", "_hbbp-sys"),
    ("fish", "hbbp-sys.fish"),
];

/// Has the program write them.
pub(crate) fn write(program: &Path) -> Result<()> {
    let folder = command::workspace().join(FOLDER);
    command::run(Command::new(program).args(["man", "--output"]).arg(&folder))?;
    for (shell, file) in COMPLETIONS {
        let script = command::stdout(Command::new(program).args(["completions", shell]))?;
        let path = folder.join(file);
        fs::write(&path, script).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}
