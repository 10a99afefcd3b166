//! Files that call themselves alike: the same path as their process sees it, the same build id, other instructions.
//! Each process is reported with its own code, whatever the order.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::load::{Load, built};
use super::{kernel, program, report_by, wait_until_it_measures};

/// A loop of multiplications, or with TWIN of byte swaps of the same size. It says when it has run for a second, and
/// continues at the address that it was given.
const LOOP: &str = r#"
#include <stdio.h>
#include <time.h>
#ifdef TWIN
#define STEP "bswap %%eax\n nop\n"
#else
#define STEP "imul %%eax, %%eax\n"
#endif
__attribute__((noinline, aligned(64))) static void loop(void) {
  __asm__ volatile("mov $100000, %%ecx\n1: " STEP STEP STEP STEP "dec %%ecx\n jnz 1b\n" ::: "eax", "ecx");
}
int main(int argc, char **argv) {
  struct timespec t = {0};
  while (t.tv_sec < 1) { loop(); clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); }
  puts("ran"); fflush(stdout);
  while (1 < argc) loop();
  return 0;
}
"#;
const BUILD_ID: &str = "-Wl,--build-id=0x1234567890abcdef1234567890abcdef12345678";

/// The program and its twin, in folders of their own, by the same name.
fn twins(folder: &Path) -> (PathBuf, PathBuf) {
    let of = |name: &str, options: &[&str]| {
        let folder = folder.join(name);
        fs::create_dir(&folder).unwrap();
        built(&folder, "app", LOOP, &[&["-static", BUILD_ID], options].concat())
    };
    (of("real", &[]), of("twin", &["-DTWIN"]))
}

/// A recording that goes on until it is interrupted.
struct Recording {
    recorder: Child,
    profile: PathBuf,
}

impl Recording {
    fn start(folder: &Path) -> Self {
        let profile = folder.join("profile");
        let recorder = program(&["record", "--duration", "600", "--period", "400009", "-o"])
            .arg(&profile)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until_it_measures(recorder.id());
        Self { recorder, profile }
    }

    fn end(mut self) -> Value {
        let pid = Pid::from_child(&self.recorder);
        kill_process(pid, Signal::INT).unwrap();
        assert!(self.recorder.wait().unwrap().success());
        report_by(self.profile.to_str().unwrap(), "process,function,mnemonic")
    }
}

/// Starts a program by a shell script, whose shell it replaces.
fn start(script: &str) -> Load {
    let mut shell = Command::new("unshare");
    shell
        .args(["--mount", "sh", "-ec", script])
        .stdout(Stdio::piped());
    Load(shell.spawn().unwrap())
}

/// Waits until a program has run for a second.
fn wait_until_it_ran(load: &mut Load) {
    let mut line = String::new();
    let said = load.0.stdout.as_mut().unwrap();
    BufReader::new(said).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "ran");
}

/// How much a process executed of the multiplications and of the byte swaps, in the loop: its libraries have some as well.
fn executed(report: &Value, pid: u32) -> [u64; 2] {
    let process = format!("({pid})");
    let rows = report["mix"]["rows"].as_array().unwrap();
    let of = |mnemonic: &str| {
        let is_it = |row: &&Value| {
            row["key"][0].as_str().unwrap().contains(&process)
                && row["key"][1] == "loop"
                && row["key"][2] == mnemonic
        };
        let rows = rows.iter().filter(is_it);
        rows.map(|row| row["user"]["amount"].as_u64().unwrap_or(0)).sum()
    };
    [of("IMUL"), of("BSWAP")]
}

fn assert_multiplies(report: &Value, pid: u32) {
    let [imul, bswap] = executed(report, pid);
    assert!(0 < imul && bswap == 0, "{imul} IMUL, {bswap} BSWAP");
}

fn assert_swaps(report: &Value, pid: u32) {
    let [imul, bswap] = executed(report, pid);
    assert!(imul == 0 && 0 < bswap, "{imul} IMUL, {bswap} BSWAP");
}

/// Records a twin that is started by the one script, and then the program that is started by the other.
fn record_both(folder: &Path, twin: &str, real: &str) {
    let recording = Recording::start(folder);
    let mut twin = start(twin);
    wait_until_it_ran(&mut twin);
    let mut real = start(real);
    wait_until_it_ran(&mut real);
    let report = recording.end();
    assert_swaps(&report, twin.0.id());
    assert_multiplies(&report, real.0.id());
}

#[test]
fn a_twin_that_is_mounted_over_the_path_is_itself_alone() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (real, twin) = twins(folder.path());
    let (real, twin) = (real.display(), twin.display());
    let mounted = format!("mount --bind {twin} {real}; exec {real} on");
    record_both(folder.path(), &mounted, &format!("exec {real} on"));
}

#[test]
fn a_twin_under_another_root_is_itself_alone() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (real, twin) = twins(folder.path());
    let chroot = |program: &Path| format!("exec chroot {} /app on", program.parent().unwrap().display());
    record_both(folder.path(), &chroot(&twin), &chroot(&real));
}

/// In file systems of memory, one each, the files have the same number and the same path.
#[test]
fn a_twin_with_the_same_inode_number_is_itself_alone() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (real, twin) = twins(folder.path());
    let place = folder.path().join("place");
    fs::create_dir(&place).unwrap();
    let place = place.display();
    let copied = |program: &Path| {
        let program = program.display();
        format!("mount -t tmpfs none {place}; cp {program} {place}/app; exec {place}/app on")
    };
    record_both(folder.path(), &copied(&twin), &copied(&real));
}

/// Where mappings and `stat` may state different devices and numbers.
#[test]
fn a_twin_in_layers_of_its_own_is_itself_alone() {
    let Some(_kernel) = kernel() else { return };
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap();
    if !filesystems
        .lines()
        .any(|line| line.trim_end().ends_with("overlay"))
    {
        return super::skip::skip("this kernel has no overlayfs");
    }
    let folder = tempfile::tempdir().unwrap();
    let (real, twin) = twins(folder.path());
    let place = folder.path().join("place");
    fs::create_dir(&place).unwrap();
    let place = place.display();
    // The lower layer is another file system than the upper one.
    let layered = |program: &Path| {
        let lower = program.parent().unwrap().display();
        format!(
            "mount -t tmpfs none {place}; mkdir {place}/upper {place}/work {place}/all; \
             mount -t overlay -o lowerdir={lower},upperdir={place}/upper,workdir={place}/work none {place}/all; \
             exec {place}/all/app on"
        )
    };
    record_both(folder.path(), &layered(&twin), &layered(&real));
}

#[test]
fn file_that_replaces_another_is_itself_alone() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (real, twin) = twins(folder.path());
    let place = folder.path().join("app");
    fs::copy(&twin, &place).unwrap();
    let run = format!("exec {} on", place.display());
    let replaced = format!("mv {} {}; {run}", real.display(), place.display());
    record_both(folder.path(), &run, &replaced);
}

/// The twin is gone when its records are read, or nearly so: then the real program at its path is not taken for it.
#[test]
fn a_twin_that_is_gone_is_not_taken_for_the_program() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (real, twin) = twins(folder.path());
    let (real, twin) = (real.display(), twin.display());
    let recording = Recording::start(folder.path());
    let mut gone = start(&format!("mount --bind {twin} {real}; exec {real}"));
    gone.0.wait().unwrap();
    let mut stays = start(&format!("exec {real} on"));
    wait_until_it_ran(&mut stays);
    let report = recording.end();
    assert_eq!(executed(&report, gone.0.id())[0], 0, "it never multiplied");
    assert_multiplies(&report, stays.0.id());
}

/// A user who calls a file of others by another path does not rename it for them.
#[test]
fn a_path_in_a_namespace_of_its_own_names_nothing_of_others() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (real, _) = twins(folder.path());
    let alias = folder.path().join("alias");
    fs::write(&alias, "").unwrap();
    let (real, alias) = (real.display(), alias.display());
    let recording = Recording::start(folder.path());
    let profile = recording.profile.clone();
    let mut first = start(&format!("mount --bind {real} {alias}; exec {alias} on"));
    wait_until_it_ran(&mut first);
    let mut second = start(&format!("exec {real} on"));
    wait_until_it_ran(&mut second);
    recording.end();
    let report = report_by(profile.to_str().unwrap(), "process,module");
    let rows = report["mix"]["rows"].as_array().unwrap();
    for (load, path) in [(&first, alias.to_string()), (&second, real.to_string())] {
        let process = format!("({})", load.0.id());
        let of_process = rows
            .iter()
            .filter(|row| row["key"][0].as_str().unwrap().contains(&process));
        let modules: Vec<&str> = of_process.filter_map(|row| row["key"][1].as_str()).collect();
        assert!(modules.contains(&path.as_str()), "{modules:?}");
        let others = [alias.to_string(), real.to_string()];
        let foreign = modules
            .iter()
            .filter(|name| **name != path && others.contains(&(**name).to_owned()));
        assert_eq!(foreign.count(), 0, "{modules:?}");
    }
}
