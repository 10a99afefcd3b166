//! Man pages in a directory.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// A man page.
#[derive(Debug)]
pub struct Page {
    /// Name of its file, such as `hbbp-sys-report.1`.
    pub file: String,
    /// Its source, for roff.
    pub text: Vec<u8>,
}

/// Writes each page to its file in the directory, which is created if it is missing.
///
/// # Errors
/// When the directory cannot be created, or a file not written.
pub fn save(pages: &[Page], folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    for page in pages {
        let path = folder.join(&page.file);
        fs::write(&path, &page.text).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_to_a_new_directory() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("share/man1");
        let page = Page {
            file: "hbbp-sys.1".to_owned(),
            text: b".TH".to_vec(),
        };
        save(&[page], &folder).unwrap();
        assert_eq!(fs::read(folder.join("hbbp-sys.1")).unwrap(), b".TH");
    }
}
