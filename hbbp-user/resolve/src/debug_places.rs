//! Where distributions and debug packages put images of the kernel, and files with debug information.

use std::path::{Path, PathBuf};

use hbbp_model::snapshot::hex;

/// Where distributions put the uncompressed image, its debug file and the boot image.
pub(crate) fn usual_places(release: &str, build_id: &[u8]) -> Vec<PathBuf> {
    /// Unpacking costs time, so boot images come last.
    const N_UNPACKED: usize = 5;

    let mut places: Vec<PathBuf> = [
        format!("/boot/vmlinux-{release}"),
        format!("/lib/modules/{release}/vmlinux"),
        format!("/lib/modules/{release}/build/vmlinux"),
        format!("/usr/lib/debug/boot/vmlinux-{release}"),
        format!("/usr/lib/debug/lib/modules/{release}/vmlinux"),
        format!("/boot/vmlinuz-{release}"),
        format!("/lib/modules/{release}/vmlinuz"),
    ]
    .map(PathBuf::from)
    .to_vec();
    places.splice(N_UNPACKED..N_UNPACKED, debug_file_place(build_id));
    places
}

/// Where the debug file of a build id lies (gdb's convention).
pub(crate) fn debug_file_place(build_id: &[u8]) -> Option<PathBuf> {
    let digits = hex(build_id);
    let (first, remainder) = digits
        .split_at_checked(2)
        .filter(|(_, remainder)| !remainder.is_empty())?;
    Some(
        Path::new("/usr/lib/debug/.build-id")
            .join(first)
            .join(format!("{remainder}.debug")),
    )
}

/// Where the file may lie that the `.gnu_debuglink` of a file at `path` names (gdb's convention).
pub(crate) fn linked_places(path: &Path, name: &str) -> Vec<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let global = Path::new("/usr/lib/debug").join(folder.strip_prefix("/").unwrap_or(folder));
    vec![
        folder.join(name),
        folder.join(".debug").join(name),
        global.join(name),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_by_build_id() {
        let debug = Path::new("/usr/lib/debug/.build-id/ab/0102.debug");
        assert_eq!(debug_file_place(&[0xab, 1, 2]).as_deref(), Some(debug));
        assert_eq!(debug_file_place(&[]), None);
        assert_eq!(usual_places("6.1", &[]).len(), 7);
        let places = usual_places("6.1", &[0xab, 1, 2]);
        assert_eq!((places.len(), places[5].as_path()), (8, debug));
    }
}
