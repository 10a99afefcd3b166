//! Directories that are made with privileges.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::output::User;
use super::place::follow;

/// What is wrong where something else has the name.
const OTHER: &str = "it is not a directory";

/// Makes a directory, and those above it where they are missing, and returns where it is: that path has no symbolic links. What is
/// made has this mode; what is there stays as it is.
///
/// # Errors
/// It cannot be made. As root also where a part of the path is a symbolic link of a user other than root and the one who called sudo.
pub fn make_directory(path: &Path, mode: u32) -> anyhow::Result<PathBuf> {
    let user = User::current();
    let made = if user.is_root() {
        make_trusted(path, mode, user)
    } else {
        let made = DirBuilder::new().recursive(true).mode(mode).create(path);
        match made.and_then(|()| path.canonicalize()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(anyhow!(OTHER)),
            made => made.map_err(anyhow::Error::from),
        }
    };
    made.with_context(|| format!("cannot make the directory {}", path.display()))
}

fn make_trusted(path: &Path, mode: u32, user: User) -> anyhow::Result<PathBuf> {
    let mut above = PathBuf::new();
    let mut place: Option<(OwnedFd, OsString)> = None;
    for part in path.components() {
        above.push(part);
        if let Component::Normal(_) = part {
            let (directory, name) = follow(&above, |owner| user.is_ours(owner))?;
            match rustix::fs::mkdirat(&directory, &name, Mode::from_raw_mode(mode)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            place = Some((directory, name));
        }
    }
    let (above, name) = place.context("it has no name")?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match rustix::fs::openat(&above, &name, flags, Mode::empty()) {
        Err(Errno::NOTDIR) => bail!(OTHER),
        opened => opened?,
    };
    Ok(std::fs::read_link(format!(
        "/proc/self/fd/{}",
        directory.as_raw_fd()
    ))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    #[test]
    fn directories_are_made_where_links_of_ours_lead() {
        let made = tempfile::tempdir().unwrap();
        let root = made.path().canonicalize().unwrap();
        assert_eq!(
            make_directory(&root.join("a/./b"), 0o700).unwrap(),
            root.join("a/b")
        );
        let mode = std::fs::metadata(root.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        let open = make_directory(&root.join("open"), 0o755).unwrap();
        let mode = std::fs::metadata(open).unwrap().permissions().mode();
        assert_eq!(mode & 0o700, 0o700);
        assert_eq!(mode & 0o7022, 0, "less what umask takes");
        symlink("a", root.join("link")).unwrap();
        assert_eq!(
            make_directory(&root.join("link/c"), 0o700).unwrap(),
            root.join("a/c")
        );
        assert_eq!(make_directory(&root.join("link"), 0o700).unwrap(), root.join("a"));
        std::fs::write(root.join("file"), "").unwrap();
        let refused = make_directory(&root.join("file"), 0o700).unwrap_err();
        assert!(
            format!("{refused:#}").ends_with(": it is not a directory"),
            "{refused:#}"
        );
        assert!(make_directory(&root.join("file/d"), 0o700).is_err());
    }

    #[test]
    fn links_of_others_make_nothing_as_root() {
        if !rustix::process::geteuid().is_root() {
            // Another user has no other's links to follow with privileges.
            return;
        }
        let made = tempfile::tempdir().unwrap();
        std::fs::create_dir(made.path().join("target")).unwrap();
        let link = made.path().join("link");
        symlink("target", &link).unwrap();
        lchown(&link, Some(65_534), Some(65_534)).unwrap();
        for path in [link.clone(), link.join("x"), link.join("x/y")] {
            let refused = format!("{:#}", make_directory(&path, 0o700).unwrap_err());
            assert!(refused.contains("symbolic link of user 65534"), "{refused}");
        }
        assert_eq!(std::fs::read_dir(made.path().join("target")).unwrap().count(), 0);
    }
}
