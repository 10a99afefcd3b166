//! Snapshot files on the disk: replaced as a whole or not at all.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use hbbp_user::snapshot::file::{encode, parse, read, write_atomic};

use super::{random_below, small};

/// The names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_is_replaced_and_keeps_its_permissions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.snap");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    write_atomic(&path, &small()).unwrap();
    assert_eq!(read(&path).unwrap(), small());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(names(directory.path()), ["a.snap"]);
}

#[test]
fn a_link_stays_and_its_target_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("a.snap"), directory.path().join("link"));
    fs::write(&path, "old").unwrap();
    symlink("a.snap", &link).unwrap();
    write_atomic(&link, &small()).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read(&path).unwrap(), small());
}

#[test]
fn a_pipe_is_written_directly() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    write_atomic(&fifo, &small()).unwrap();
    assert_eq!(parse(&reader.join().unwrap()).unwrap(), small());
    assert_eq!(names(directory.path()), ["fifo"]);
}

#[test]
fn what_is_no_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let error = write_atomic(directory.path(), &small()).unwrap_err().to_string();
    assert!(error.contains("neither a regular file nor a pipe"), "{error}");
    assert!(write_atomic(&directory.path().join("missing/a.snap"), &small()).is_err());
    assert!(write_atomic(Path::new("/dev/full"), &small()).is_err());
}

#[test]
fn what_does_not_begin_like_a_snapshot_is_not_read_to_its_end() {
    let error = format!("{:#}", read(Path::new("/dev/zero")).unwrap_err());
    assert_eq!(error, "failed to read profile /dev/zero: not an hbbp-sys profile");
    assert!(read(Path::new("/")).is_err());
}

/// On a full disk the old file stays as it was, and nothing else stays.
#[test]
fn a_full_disk_leaves_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "hbbp-test"])
        .arg(directory.path())
        .output()
        .is_ok_and(|o| o.status.success());
    if !mounted {
        println!("skipped: mounting a small tmpfs needs root");
        return;
    }
    let path = directory.path().join("a.snap");
    write_atomic(&path, &small()).unwrap();
    let mut large = small();
    // Bytes that do not compress: more than the file system holds.
    let mut random = random_below();
    large.text[0].bytes = (0..100_000).map(|_| u8::try_from(random(256)).unwrap()).collect();
    assert!(65_536 < encode(&large).unwrap().len());
    let error = format!("{:#}", write_atomic(&path, &large).unwrap_err());
    let (left, old) = (names(directory.path()), read(&path));
    assert!(
        Command::new("umount")
            .arg(directory.path())
            .status()
            .unwrap()
            .success()
    );
    assert!(error.contains("No space left"), "{error}");
    assert_eq!(left, ["a.snap"]);
    assert_eq!(old.unwrap(), small());
}
