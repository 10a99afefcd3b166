//! Reading the runs that the user names: those of a profile, those of a folder of segments, or that of a recording.

use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::Timestamp;

use super::import::{ImportOptions, import_input};
use super::input::{Named, open};
use hbbp_model::profile;
use hbbp_model::segments::{TimeRange, is_folder_of_segments, read_range};
use hbbp_model::snapshot::Snapshot;

/// Reads a profile of one run, or imports a recording.
pub(super) fn read_profile(options: &ImportOptions) -> anyhow::Result<Snapshot> {
    let failed = || format!("failed to read profile {}", options.file.display());
    profile::only(read_runs(options)?).with_context(failed)
}

/// Reads the runs of a profile or of a folder of segments, or imports a recording.
pub(super) fn read_runs(options: &ImportOptions) -> anyhow::Result<Vec<Snapshot>> {
    let shown = options.file.display();
    let named = open(&options.file, &options.kernel).with_context(|| format!("failed to open {shown}"))?;
    if !matches!(named, Named::Segments) {
        check_whole(&options.file, options.range)?;
    }
    match named {
        Named::Segments => read_segments(&options.file, options.range),
        Named::Profile(file) => {
            profile::read_from(file).with_context(|| format!("failed to read profile {shown}"))
        }
        Named::Recording(input) => Ok(vec![import_input(input, options)?]),
    }
}

/// Reads the runs of a profile or of a folder of segments.
pub(super) fn read_saved(path: &Path, range: TimeRange) -> anyhow::Result<Vec<Snapshot>> {
    if is_folder_of_segments(path) {
        return read_segments(path, range);
    }
    check_whole(path, range)?;
    profile::read_runs(path)
}

fn read_segments(folder: &Path, range: TimeRange) -> anyhow::Result<Vec<Snapshot>> {
    let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    read_range(folder, range, now)
        .with_context(|| format!("failed to read the segments of {}", folder.display()))
}

/// Refuses a part of the time of what has no parts.
fn check_whole(path: &Path, range: TimeRange) -> anyhow::Result<()> {
    if !range.is_open() {
        bail!(
            "--since and --until need the directory of a `hbbp-sys daemon`, and {} is none",
            path.display()
        );
    }
    Ok(())
}
