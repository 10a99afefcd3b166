//! The bill of materials: the crates in the program with their versions, licences and checksums.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::program::TARGET;
use super::{PACKAGE_FOLDER, Release, time_of_commit};
use crate::command;

/// The name of the files that cargo-cyclonedx leaves next to the manifest of each package of the workspace.
const NAME: &str = "bill-of-materials";

/// Writes it, from the unpacked source; its bytes depend on that alone.
pub(super) fn write(release: &Release, source: &Path) -> Result<()> {
    let package = source.join(PACKAGE_FOLDER);
    let mut cyclonedx = command::cargo();
    cyclonedx.args([
        "cyclonedx",
        "--quiet",
        "--format",
        "json",
        "--spec-version",
        "1.5",
    ]);
    cyclonedx.args(["--target", TARGET, "--no-build-deps", "--override-filename", NAME]);
    // With a time it gives the file no number by chance.
    cyclonedx.env("SOURCE_DATE_EPOCH", time_of_commit()?);
    command::run(cyclonedx.arg("--manifest-path").arg(package.join("Cargo.toml")))?;
    let from = package.join(format!("{NAME}.json"));
    let text = fs::read_to_string(&from).with_context(|| format!("failed to read {}", from.display()))?;
    let to = release.file(".cdx.json");
    fs::write(&to, without_folder(&text, source)).with_context(|| format!("failed to write {}", to.display()))
}

/// Our crates are named by their folders: in the workspace, not on this machine.
fn without_folder(text: &str, source: &Path) -> String {
    text.replace(&format!("file://{}/", source.display()), "file:///")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::without_folder;

    #[test]
    fn our_crates_are_named_by_their_folder_in_the_workspace() {
        let text = r#""bom-ref": "path+file:///w/dist/s/hbbp-user/model#hbbp-model@0.2.0", "purl": "pkg:cargo/libc@0.2.186""#;
        assert_eq!(
            without_folder(text, Path::new("/w/dist/s")),
            r#""bom-ref": "path+file:///hbbp-user/model#hbbp-model@0.2.0", "purl": "pkg:cargo/libc@0.2.186""#
        );
    }
}
