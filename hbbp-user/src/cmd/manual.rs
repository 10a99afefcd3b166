//! Man pages in a directory.

use std::path::Path;

use hbbp_model::profile::{Output, make_directory};

/// A man page.
#[derive(Debug)]
pub struct Page {
    /// Name of its file, such as `hbbp-sys-report.1`.
    pub file: String,
    /// Its source, for roff.
    pub text: Vec<u8>,
}

/// Writes each page to its file in the directory, which is created if it is missing. Everybody may read them.
///
/// # Errors
/// When the directory cannot be created, or a file not written; as root also where a part of the path is a link of another user.
pub(crate) fn save(pages: &[Page], folder: &Path) -> anyhow::Result<()> {
    let folder = make_directory(folder, 0o755)?;
    for page in pages {
        let output = Output::open(&folder.join(&page.file))?.for_everybody();
        output.write_with(|out| out.write_all(&page.text))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    fn page() -> Page {
        Page {
            file: "hbbp-sys.1".to_owned(),
            text: b".TH".to_vec(),
        }
    }

    #[test]
    fn pages_go_to_a_new_directory() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("share/man1");
        save(&[page()], &folder).unwrap();
        let saved = folder.join("hbbp-sys.1");
        assert_eq!(fs::read(&saved).unwrap(), b".TH");
        // As files of the user are, less what umask takes.
        let beside = folder.join("beside");
        fs::write(&beside, b"").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&saved), mode(&beside));
    }

    /// A link of another user would say which file root overwrites.
    #[test]
    fn links_of_others_are_not_followed_as_root() {
        if !rustix::process::geteuid().is_root() {
            // Another user has no other's links to follow with privileges.
            return;
        }
        let made = tempfile::tempdir().unwrap();
        let target = made.path().join("target");
        fs::write(&target, b"mine").unwrap();
        let link = made.path().join("hbbp-sys.1");
        symlink(&target, &link).unwrap();
        lchown(&link, Some(65_534), Some(65_534)).unwrap();
        let refused = format!("{:#}", save(&[page()], made.path()).unwrap_err());
        assert!(refused.contains("symbolic link of user 65534"), "{refused}");
        assert_eq!(fs::read(&target).unwrap(), b"mine");
    }
}
