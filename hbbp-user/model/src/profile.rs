//! Profiles: snapshots in files, one for each run. What `snapshot::file` encodes is read and written here.
//!
//! A profile holds kernel addresses, code of all processes and their names, so only its owner can read it: it has mode
//! 0600, and belongs to the user who called sudo.
//! An [`Output`] is opened before the measurement, so that what can be refused is refused then; `output` says what.

mod directory;
mod output;
mod place;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::Context as _;

use crate::snapshot::Snapshot;
use crate::snapshot::file::{Error, MAGIC, parse_runs};
pub use directory::make_directory;
pub use output::{Output, STANDARD};

/// Most bytes of a file that are read: more than any snapshot that is within its budget.
const MAX_FILE: u64 = 1 << 30;

/// Reads a profile of one run; `-` is standard input.
pub fn read(path: &Path) -> anyhow::Result<Snapshot> {
    let failed = || format!("failed to read profile {}", path.display());
    only(read_runs(path)?).with_context(failed)
}

/// Reads the runs of a profile; `-` is standard input.
pub fn read_runs(path: &Path) -> anyhow::Result<Vec<Snapshot>> {
    if path == Path::new(STANDARD) {
        return read_from(io::stdin().lock()).context("failed to read a profile from standard input");
    }
    let failed = || format!("failed to read profile {}", path.display());
    let source = File::open(path).with_context(failed)?;
    read_from(source).with_context(failed)
}

/// The only run of a profile, for what cannot be done with several.
pub fn only(mut runs: Vec<Snapshot>) -> anyhow::Result<Snapshot> {
    match (runs.pop(), runs.len()) {
        (Some(run), 0) => Ok(run),
        (_, others) => Err(Error::Runs { found: others + 1 }.into()),
    }
}

/// Reads the runs of a profile to the end of `source`, but stops at once where it does not begin like one.
pub fn read_from(mut source: impl Read) -> anyhow::Result<Vec<Snapshot>> {
    let mut bytes = Vec::new();
    source
        .by_ref()
        .take(u64::try_from(MAGIC.len())?)
        .read_to_end(&mut bytes)?;
    if bytes == MAGIC {
        source.take(MAX_FILE).read_to_end(&mut bytes)?;
    }
    let runs = parse_runs(&bytes)?;
    for run in &runs {
        run.check_sums()?;
    }
    Ok(runs)
}
