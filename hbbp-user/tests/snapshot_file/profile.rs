//! Profiles on the disk: replaced as a whole or not at all, read by their owner alone, and never where others say.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output as Finished};

use hbbp_model::profile::{Output, read};
use hbbp_model::snapshot::Snapshot;
use hbbp_model::snapshot::file::{Compression, encode, parse};

use super::{random_below, small};

/// Somebody who is neither root nor the caller of sudo, and that caller.
const STRANGER: u32 = 65_534;
const CALLER: u32 = 4711;

/// The program of a small recording that anybody can make into a profile; every machine has it.
const PROGRAM: &str = "/bin/true";

/// Writes a recording of a stream of the first instruction of [`PROGRAM`] (its entry point: elf(5), `e_entry`).
fn write_recording(folder: &Path) -> PathBuf {
    let program = fs::read(PROGRAM).unwrap();
    let entry = u64::from_le_bytes(program[24..32].try_into().unwrap());
    let recording = folder.join("recording");
    fs::write(&recording, format!("F {entry:x} {entry:x} 5\n")).unwrap();
    recording
}

fn save(path: &Path, snapshot: &Snapshot) -> anyhow::Result<()> {
    Output::open(path)?.save(
        std::slice::from_ref(snapshot),
        Compression::Fast,
        &mut std::io::sink(),
    )
}

/// The names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Whether the test runs as root, which it needs to; says so where it does not.
fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        crate::skip::skip("needs root");
    }
    is_root
}

/// Runs the program, which makes a profile of a small recording, as if by sudo.
fn import(output: &Path) -> Finished {
    let folder = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_hbbp-sys"))
        .arg("import")
        .arg(write_recording(folder.path()))
        .args(["--binary", PROGRAM, "-o"])
        .arg(output)
        .env("SUDO_UID", CALLER.to_string())
        .env("SUDO_GID", CALLER.to_string())
        .output()
        .unwrap()
}

/// The program fails, says this, and changes nothing in the folder.
#[track_caller]
fn is_refused(folder: &Path, output: &Path, why: &str) {
    let before = names(folder);
    let finished = import(output);
    let said = String::from_utf8_lossy(&finished.stderr);
    assert_eq!(finished.status.code(), Some(1), "{said}");
    assert!(said.contains(why), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(names(folder), before);
}

fn fifo(folder: &Path, owner: u32) -> PathBuf {
    let fifo = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    chown(&fifo, Some(owner), Some(owner)).unwrap();
    fifo
}

#[test]
fn a_file_is_replaced_and_only_its_owner_can_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.hbbp");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    save(&path, &small()).unwrap();
    assert_eq!(read(&path).unwrap(), small());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(names(directory.path()), ["a.hbbp"]);
}

#[test]
fn a_profile_belongs_to_the_user_who_called_sudo() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.hbbp");
    for _ in 0..2 {
        assert!(import(&path).status.success());
        let found = fs::metadata(&path).unwrap();
        assert_eq!(
            (found.uid(), found.gid(), found.mode() & 0o7777),
            (CALLER, CALLER, 0o600)
        );
    }
    read(&path).unwrap();
}

/// A folder with a file `inside/a.hbbp`, and links to both.
fn linked() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("inside");
    fs::create_dir(&inside).unwrap();
    fs::write(inside.join("a.hbbp"), "old").unwrap();
    symlink("inside/a.hbbp", directory.path().join("file")).unwrap();
    symlink(&inside, directory.path().join("folder")).unwrap();
    symlink("inside/nowhere", directory.path().join("dangling")).unwrap();
    symlink("loop", directory.path().join("loop")).unwrap();
    directory
}

#[test]
fn links_of_others_are_not_followed_with_privileges() {
    if !is_root() {
        return;
    }
    let directory = linked();
    let at = |name: &str| directory.path().join(name);
    for link in ["file", "folder", "dangling"] {
        lchown(at(link), Some(STRANGER), Some(STRANGER)).unwrap();
    }
    is_refused(directory.path(), &at("file"), "symbolic link of user 65534");
    is_refused(directory.path(), &at("dangling"), "symbolic link of user 65534");
    is_refused(&at("inside"), &at("folder/a.hbbp"), "symbolic link of user 65534");
    is_refused(&at("inside"), &at("folder/b.hbbp"), "symbolic link of user 65534");
    is_refused(directory.path(), Path::new("/dev/stdout"), "use `-`");
    is_refused(directory.path(), &at("loop"), "Too many levels of symbolic links");
    is_refused(directory.path(), &at("inside/a.hbbp/x"), "Not a directory");
    assert_eq!(fs::read(at("inside/a.hbbp")).unwrap(), b"old");
}

/// `/tmp` and folders below the home directory are links of root or of the user on many machines.
#[test]
fn links_of_root_and_of_the_caller_are_followed_with_privileges() {
    if !is_root() {
        return;
    }
    let directory = linked();
    let at = |name: &str| directory.path().join(name);
    lchown(at("folder"), Some(CALLER), Some(CALLER)).unwrap();
    for output in ["file", "folder/../dangling", "folder/b.hbbp", "folder/a.hbbp"] {
        let finished = import(&at(output));
        assert!(finished.status.success(), "{finished:?}");
    }
    assert_eq!(names(&at("inside")), ["a.hbbp", "b.hbbp", "nowhere"]);
    read(&at("inside/a.hbbp")).unwrap();
    assert!(fs::symlink_metadata(at("file")).unwrap().is_symlink());
}

#[test]
fn files_and_pipes_of_others_are_not_written_to_with_privileges() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let planted = directory.path().join("planted");
    fs::write(&planted, "old").unwrap();
    chown(&planted, Some(STRANGER), Some(STRANGER)).unwrap();
    is_refused(directory.path(), &planted, "it belongs to user 65534");
    assert_eq!(fs::read(&planted).unwrap(), b"old");
    // It has no reader, so opening it would wait for ever.
    let fifo = fifo(directory.path(), STRANGER);
    is_refused(directory.path(), &fifo, "it belongs to user 65534");
}

/// Without privileges, who runs the program decides where links lead.
#[test]
fn a_link_stays_and_its_target_is_replaced_without_privileges() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    chown(directory.path(), Some(STRANGER), Some(STRANGER)).unwrap();
    let link = directory.path().join("link");
    symlink("a.hbbp", &link).unwrap();
    fs::write(directory.path().join("a.hbbp"), "old").unwrap();
    let recording = write_recording(directory.path());
    let program = directory.path().join("hbbp-sys");
    fs::copy(env!("CARGO_BIN_EXE_hbbp-sys"), &program).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .arg("import")
        .arg(&recording)
        .args(["--binary", PROGRAM, "-o"])
        .arg(&link)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let found = fs::metadata(directory.path().join("a.hbbp")).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (STRANGER, 0o600));
    read(&link).unwrap();
}

#[test]
fn a_pipe_of_ours_is_written_directly() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = fifo(directory.path(), fs::metadata("/proc/self").unwrap().uid());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    save(&fifo, &small()).unwrap();
    assert_eq!(parse(&reader.join().unwrap()).unwrap(), small());
    assert_eq!(names(directory.path()), ["fifo"]);
}

#[test]
fn a_dash_is_standard_output_and_standard_input() {
    let directory = tempfile::tempdir().unwrap();
    let written = import(Path::new("-"));
    assert!(written.status.success(), "{written:?}");
    assert!(!parse(&written.stdout).unwrap().intervals.is_empty());
    assert!(!Path::new("-").exists());
    let mut report = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"))
        .args(["report", "-"])
        .current_dir(directory.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    report.stdin.take().unwrap().write_all(&written.stdout).unwrap();
    assert!(report.wait_with_output().unwrap().status.success());
    let both = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"))
        .args(["--duration", "60", "-o", "-"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&both.stderr);
    assert_eq!(both.status.code(), Some(1));
    assert!(said.contains("hbbp-sys record -o -"), "{said}");
}

#[test]
fn what_is_not_a_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let error = format!("{:#}", save(directory.path(), &small()).unwrap_err());
    assert!(error.contains("it is a directory"), "{error}");
    assert!(Output::open(&directory.path().join("missing/a.hbbp")).is_err());
    assert!(save(Path::new("/dev/full"), &small()).is_err());
}

#[test]
fn what_does_not_begin_like_a_profile_is_not_read_to_its_end() {
    let error = format!("{:#}", read(Path::new("/dev/zero")).unwrap_err());
    assert_eq!(error, "failed to read profile /dev/zero: not an hbbp-sys profile");
    assert!(read(Path::new("/")).is_err());
}

/// On a full disk the old file stays as it was, nothing else stays there, and the profile is saved elsewhere.
#[test]
fn a_full_disk_leaves_the_old_file_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "hbbp-test"])
        .arg(directory.path())
        .output()
        .is_ok_and(|o| o.status.success());
    if !mounted {
        crate::skip::skip("mounting a small tmpfs needs root");
        return;
    }
    let path = directory.path().join("a.hbbp");
    save(&path, &small()).unwrap();
    let mut large = small();
    // Bytes that do not compress: more than the file system holds.
    let mut random = random_below();
    large.text[0].bytes = (0..100_000).map(|_| u8::try_from(random(256)).unwrap()).collect();
    assert!(65_536 < encode(&large).unwrap().len());
    let error = format!("{:#}", save(&path, &large).unwrap_err());
    let (left, old) = (names(directory.path()), read(&path));
    assert!(
        Command::new("umount")
            .arg(directory.path())
            .status()
            .unwrap()
            .success()
    );
    assert!(error.contains("No space left"), "{error}");
    assert_eq!(left, ["a.hbbp"]);
    assert_eq!(old.unwrap(), small());
    let (_, elsewhere) = error.split_once("it was saved as ").unwrap();
    let elsewhere = Path::new(elsewhere.split_once(" instead").unwrap().0);
    let mode = fs::metadata(elsewhere).unwrap().permissions().mode() & 0o7777;
    let saved = read(elsewhere);
    fs::remove_file(elsewhere).unwrap();
    assert_eq!((saved.unwrap(), mode), (large, 0o600));
}
