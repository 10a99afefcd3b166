//! The eBPF objects of a build: the source release holds them, and a build elsewhere takes them by a variable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The names of the objects.
const NAMES: [&str; 2] = ["hbbp", "hbbp-verbose"];

/// Runs a build of cargo's, and finds the folder where the build script of hbbp-collect left the objects.
pub(crate) fn folder_of_build(build: &mut Command) -> Result<PathBuf> {
    build.arg("--message-format=json-render-diagnostics");
    let output = build
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("failed to start {build:?}"))?;
    ensure!(
        output.status.success(),
        "failed to run {build:?}: {}",
        output.status
    );
    out_dir(&String::from_utf8_lossy(&output.stdout)).context("cargo ran no build script of hbbp-collect")
}

/// The output folder of that build script, in cargo's messages: one a line.
fn out_dir(messages: &str) -> Option<PathBuf> {
    let of_collect = |message: &Value| {
        let is_script = message["reason"] == "build-script-executed";
        let package = message["package_id"].as_str()?;
        (is_script && package.contains("hbbp-collect"))
            .then(|| message["out_dir"].as_str().map(PathBuf::from))?
    };
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    messages.filter_map(|message| of_collect(&message)).next_back()
}

/// Copies the objects to a folder, which is created.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("failed to create {}", to.display()))?;
    for name in NAMES {
        let (from, to) = (from.join(name), to.join(name));
        fs::copy(&from, &to)
            .with_context(|| format!("failed to copy {} to {}", from.display(), to.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_that_of_the_build_script_of_collect() {
        let messages = r#"{"reason":"build-script-executed","package_id":"registry+x#libc@0.2.1","out_dir":"/a"}
{"reason":"compiler-artifact","package_id":"path+file:///w/hbbp-user/collect#hbbp-collect@0.2.0"}
{"reason":"build-script-executed","package_id":"path+file:///w/hbbp-user/collect#hbbp-collect@0.2.0","out_dir":"/b"}
no message
"#;
        assert_eq!(out_dir(messages), Some(PathBuf::from("/b")));
        assert_eq!(out_dir(""), None);
    }
}
