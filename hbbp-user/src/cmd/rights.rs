//! Files that strangers name are opened with the rights of whoever called the program, not with its own.
//!
//! The kernel checks each folder and link of a path against the file-system user of the thread and its capabilities
//! (credentials(7), setfsuid(2)). A thread with the identity of the caller and no capabilities opens what the caller may open.

use std::thread;

use super::privileges::limit_thread;

/// The user `nobody` of Linux (kernel/sys.c, `overflowuid`): root who did not call by sudo opens what everybody may.
const NOBODY: libc::c_uint = 65_534;

/// Whose rights are used: the user and the group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Caller {
    user: libc::c_uint,
    group: libc::c_uint,
}

impl Caller {
    /// Who called sudo, by what it leaves in the environment; `None` if the caller is root.
    fn by_sudo() -> Option<Self> {
        let id = |name| std::env::var(name).ok()?.parse().ok();
        let (user, group) = (id("SUDO_UID")?, id("SUDO_GID")?);
        (user != 0).then_some(Self { user, group })
    }

    /// Gives the calling thread these rights of files, without further groups; `None` if the kernel refuses.
    fn take(self) -> Option<()> {
        // The function of the C library changes the groups of all threads (nptl(7)).
        // SAFETY: no group is read from the null pointer.
        let left = unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) };
        // SAFETY: takes and returns numbers; it changes the calling thread alone.
        let set_group = |group| unsafe { libc::setfsgid(group) };
        // SAFETY: as above.
        let set_user = |user| unsafe { libc::setfsuid(user) };
        set_group(self.group);
        set_user(self.user);
        // They return the identity before the call, and a second call with the same one shows whether the first took effect.
        let has = |id: libc::c_int, wanted| u32::try_from(id) == Ok(wanted);
        (left == 0 && has(set_group(self.group), self.group) && has(set_user(self.user), self.user))
            .then_some(())
    }
}

/// Runs the work on a thread that opens files with the rights of the caller; `None` if it cannot give up those of the program.
pub(super) fn with_rights_of_caller<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let is_root = rustix::process::geteuid().is_root();
    let nobody = Caller {
        user: NOBODY,
        group: NOBODY,
    };
    let caller = is_root.then(|| Caller::by_sudo().unwrap_or(nobody));
    with_rights_of(caller, work)
}

/// The same with the rights of `caller`, or those of the user of the program.
fn with_rights_of<T: Send>(caller: Option<Caller>, work: impl FnOnce() -> T + Send) -> Option<T> {
    let limited = move || {
        caller.map_or(Some(()), Caller::take)?;
        // The program may have capabilities without being root.
        limit_thread().ok()?;
        Some(work())
    };
    thread::scope(|scope| scope.spawn(limited).join().ok().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use hbbp_testing::skip::skip;

    const CALLER: Caller = Caller {
        user: 12_345,
        group: 12_346,
    };

    /// Each file is what its path, not its own mode alone, makes of it.
    #[test]
    fn files_are_opened_with_the_rights_of_the_caller() {
        if !rustix::process::geteuid().is_root() {
            return skip("only root has the rights of others to give up");
        }
        let folder = tempfile::tempdir().unwrap();
        let set = |name: &str, mode| {
            fs::set_permissions(folder.path().join(name), Permissions::from_mode(mode)).unwrap();
        };
        for (name, mode) in [("", 0o711), ("private", 0o700), ("open", 0o711)] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
            set(name, mode);
        }
        for (name, mode) in [
            ("private/readable", 0o644),
            ("open/readable", 0o644),
            ("open/secret", 0o600),
            ("open/own", 0o600),
            ("open/grouped", 0o640),
        ] {
            fs::write(folder.path().join(name), "text").unwrap();
            set(name, mode);
        }
        chown(folder.path().join("open/own"), Some(CALLER.user), Some(0)).unwrap();
        chown(folder.path().join("open/grouped"), Some(0), Some(CALLER.group)).unwrap();
        symlink("../private/readable", folder.path().join("open/link")).unwrap();
        let opened = |caller| {
            let names = ["readable", "secret", "own", "grouped", "link"].map(|name| format!("open/{name}"));
            let paths = ["private/readable".to_owned()].into_iter().chain(names);
            let open = || {
                paths
                    .filter(|path| fs::read(folder.path().join(path)).is_ok())
                    .collect::<Vec<_>>()
            };
            with_rights_of(Some(caller), open).unwrap()
        };
        let nobody = Caller {
            user: NOBODY,
            group: NOBODY,
        };
        assert_eq!(opened(nobody), ["open/readable"]);
        assert_eq!(opened(CALLER), ["open/readable", "open/own", "open/grouped"]);
        // The thread that asked keeps its own rights.
        assert!(fs::read(folder.path().join("private/readable")).is_ok());
    }
}
