//! `cargo xtask vm`, `bench`, `demo` and `learn`: sets up what is missing, then builds the program that measures and becomes it.
//!
//! These programs are packages of their own (`kernel-tests/experiments`, `kernel-tests/learn`), built when they are asked for:
//! xtask is compiled before anything else, and waits neither for the emulated machine nor for classification trees.

use std::env;
use std::ffi::{OsStr, OsString};

use anyhow::{Context as _, Result};

use crate::setup::{self, Install, Needs};
use crate::{build, command};

/// The tasks whose arguments another program reads.
const PASSED_ON: [&str; 4] = ["vm", "bench", "demo", "learn"];

/// The packages of these programs.
const EXPERIMENTS: &str = "kernel-tests-experiments";
const LEARN: &str = "kernel-tests-learn";

/// The option of xtask that may be among the arguments of the tasks that set something up.
const NO_INSTALL: &str = "--no-install";

/// Splits a command line into the words of xtask and those that are passed on as they are, `--` included.
pub(crate) fn split(line: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Vec<OsString>) {
    let mut own: Vec<OsString> = line.into_iter().collect();
    // Options of xtask have no values: the first other word is the task.
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let task = own.iter().skip(1).position(|word| !is_option(word));
    let end = task.map_or(own.len(), |at| at + 2);
    let is_passed_on = own[..end].last().is_some_and(|task| is_any_of(task, &PASSED_ON));
    let passed_on = own.split_off(if is_passed_on { end } else { own.len() });
    (own, passed_on)
}

/// Runs a command or an experiment on the emulated machine.
pub(crate) fn vm(args: &[OsString], install: Install) -> Result<()> {
    let mut names = args.iter().filter(|word| !is_any_of(word, &[NO_INSTALL]));
    // The optimizers read profiles, as other readers do.
    let needs = if names.next().is_some_and(|name| name == "optimizers") {
        Needs::AllTests
    } else {
        Needs::Machine
    };
    if !asks_for_help(args) {
        setup::setup(needs, installation(args, install))?;
    }
    become_program(EXPERIMENTS, Some("vm"), args)
}

/// Measures the release program on this machine.
pub(crate) fn bench(args: &[OsString], install: Install) -> Result<()> {
    if !asks_for_help(args) {
        let install = installation(args, install);
        setup::setup(Needs::Test, install)?;
        build::build(install)?;
    }
    become_program(EXPERIMENTS, Some("bench"), args)
}

/// Prints the estimated and the exact mix of a load on the emulated machine.
pub(crate) fn demo(args: &[OsString], install: Install) -> Result<()> {
    if !asks_for_help(args) {
        setup::setup(Needs::Machine, installation(args, install))?;
    }
    become_program(EXPERIMENTS, Some("demo"), args)
}

/// Learns the rule between EBS and LBR.
pub(crate) fn learn(args: &[OsString]) -> Result<()> {
    become_program(LEARN, None, args)
}

/// Whether only the help is printed, for which nothing is installed.
fn asks_for_help(args: &[OsString]) -> bool {
    options(args).any(|word| is_any_of(word, &["-h", "--help"]))
}

/// What to do about what is missing, where the task may say so as well.
fn installation(args: &[OsString], install: Install) -> Install {
    if options(args).any(|word| word == NO_INSTALL) {
        Install::Print
    } else {
        install
    }
}

/// The words before the command of a guest.
fn options(args: &[OsString]) -> impl Iterator<Item = &OsString> {
    args.iter().take_while(|word| *word != "--")
}

fn is_any_of(word: &OsStr, words: &[&str]) -> bool {
    words.iter().any(|it| word == *it)
}

/// Builds the program of a package and becomes it, in the folder from which xtask was called: paths are those of the caller.
fn become_program(package: &str, task: Option<&str>, args: &[OsString]) -> Result<()> {
    let mut cargo = command::cargo();
    cargo.current_dir(env::current_dir().context("failed to find the current directory")?);
    cargo.args(["run", "--quiet", "--release", "--package", package]);
    cargo
        .arg("--manifest-path")
        .arg(command::workspace().join("Cargo.toml"));
    Err(command::exec(cargo.arg("--").args(task).args(args)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[track_caller]
    fn check_split(line: &str, own: &str, passed_on: &str) {
        assert_eq!(split(words(line)), (words(own), words(passed_on)), "{line}");
    }

    #[test]
    fn arguments_of_experiments_are_passed_on_as_they_are() {
        check_split(
            "xtask --no-install vm --kernel 6.1 -- sh -c x",
            "xtask --no-install vm",
            "--kernel 6.1 -- sh -c x",
        );
        check_split("xtask vm -- true", "xtask vm", "-- true");
        check_split("xtask learn --help", "xtask learn", "--help");
        check_split("xtask demo", "xtask demo", "");
    }

    #[test]
    fn other_arguments_are_those_of_xtask() {
        check_split("xtask run -- vm", "xtask run -- vm", "");
        check_split("xtask --help", "xtask --help", "");
        check_split("xtask", "xtask", "");
    }

    #[test]
    fn options_of_a_command_in_the_guest_are_not_ours() {
        let asked = words("accuracy --no-install --help");
        assert!(asks_for_help(&asked));
        assert_eq!(installation(&asked, Install::Do), Install::Print);
        let of_guest = words("--kernel 6.1 -- hbbp-sys --no-install --help");
        assert!(!asks_for_help(&of_guest));
        assert_eq!(installation(&of_guest, Install::Do), Install::Do);
    }
}
