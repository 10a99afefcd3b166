//! The version that is released: the changelog must say since when, and nothing may be unreleased.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::command;

const CHANGELOG: &str = ".github/CHANGELOG.md";

/// The version of the workspace, if the changelog has a release of it with its date.
pub(super) fn released_version() -> Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    let path = command::workspace().join(CHANGELOG);
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    ensure!(
        newest_release(&text) == Some(version),
        "{CHANGELOG} does not begin with a release of {version}: turn `## Unreleased` into `## {version} - YYYY-MM-DD`"
    );
    Ok(version.to_owned())
}

/// The version of the first section, if that is a release with a date.
fn newest_release(changelog: &str) -> Option<&str> {
    let heading = changelog.lines().find_map(|line| line.strip_prefix("## "))?;
    let (version, date) = heading.split_once(" - ")?;
    let is_date = date.len() == 10 && date.split('-').all(|part| part.parse::<u32>().is_ok());
    is_date.then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_a_date_and_nothing_unreleased_before_it() {
        assert_eq!(
            newest_release("# Changelog\n\n## 0.2.0 - 2026-11-27\n\n## 0.1.0\n"),
            Some("0.2.0")
        );
        for unreleased in [
            "",
            "## 0.2.0",
            "## 0.2.0 - soon",
            "## Unreleased\n\n## 0.2.0 - 2026-11-27\n",
        ] {
            assert_eq!(newest_release(unreleased), None, "{unreleased}");
        }
    }
}
