//! `cargo xtask clean-room`: proves the README on a fresh Debian 12 with rustup's stable toolchain and nothing else.
//!
//! debootstrap makes the system in a folder, and the commands of the README run in it, on a clean clone of the
//! commit that is checked out here. Packages come from where this machine gets them.

use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use crate::command;
use crate::root::Root;

/// Debian 12.
const SUITE: &str = "bookworm";

/// The commands to prove, from the README, and at last a build of what is built already.
const COMMANDS: [&str; 4] = [
    "apt-get update -qq && apt-get install -qq --yes --no-install-recommends gcc libc6-dev",
    "cargo xtask run -- --duration 10",
    "cargo xtask test",
    "cargo xtask build",
];

/// Makes the system, runs the commands in it, prints their times, and removes it.
pub(crate) fn clean_room() -> Result<()> {
    let root = Root::create(SUITE, &[], "clean-room")?;
    root.copy_network()?;
    root.copy_rust()?;
    let clone = root.path.join("root/hbbp-sys");
    command::run(
        Command::new("git")
            .args(["clone", "--quiet"])
            .arg(command::workspace())
            .arg(&clone),
    )?;

    let mut times = Vec::new();
    for command in COMMANDS {
        println!("== {command}");
        let start = Instant::now();
        root.enter(&format!("cd hbbp-sys && {command}"))?;
        let time = start.elapsed();
        println!("== {:.1} s", time.as_secs_f64());
        times.push((command, time));
    }
    for (command, time) in times {
        println!("{:7.1} s  {command}", time.as_secs_f64());
    }
    root.remove()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::COMMANDS;
    use crate::command;

    #[test]
    fn first_commands_are_those_of_the_readme() {
        let readme = fs::read_to_string(command::workspace().join("README.md")).unwrap();
        let [_, run, test, _] = COMMANDS;
        for command in [run, test] {
            assert!(readme.lines().any(|line| line.starts_with(command)), "{command}");
        }
    }
}
