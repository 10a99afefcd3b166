//! The archive that a kernel unpacks at boot: cpio in the "newc" form.
//!
//! Format: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel. It is written
//! uncompressed: the emulated processor would take longer to unpack it than the host to write it.

use crate::files::GuestFiles;

const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_755;

/// The archive of these files and directories, all of them executable.
pub(crate) fn archive(files: &GuestFiles) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, (path, content)) in (1..).zip(files.entries()) {
        match path.strip_suffix('/') {
            Some(directory) => entry(&mut bytes, number, directory, DIRECTORY, &[]),
            None => entry(&mut bytes, number, path, REGULAR, content),
        }
    }
    entry(&mut bytes, 0, "TRAILER!!!", 0, &[]);
    bytes
}

fn entry(archive: &mut Vec<u8>, inode: u32, path: &str, mode: u32, content: &[u8]) {
    let links = if mode == DIRECTORY { 2 } else { 1 };
    let (size, name_size) = (content.len() as u32, path.len() as u32 + 1);
    // Fields of the header (newc): ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize,
    // check.
    let fields = [inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    archive.extend_from_slice(path.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(content);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn archive_is_readable_by_cpio() {
        let mut files = GuestFiles::default();
        files.file("/a/b/hello", b"text");
        files.directory("proc");
        let path = std::env::temp_dir().join(format!("initramfs-{}", std::process::id()));
        fs::write(&path, archive(&files)).unwrap();
        let list = Command::new("cpio")
            .arg("-t")
            .stdin(fs::File::open(&path).unwrap())
            .output();
        fs::remove_file(&path).unwrap();
        let Ok(list) = list else {
            return crate::missing::missing("cpio is not installed; `cargo xtask setup` installs it");
        };
        assert_eq!(String::from_utf8_lossy(&list.stdout), "a\na/b\na/b/hello\nproc\n");
    }
}
