//! Where the figures of an experiment go: to a table on the terminal, or to JSON lines instead, and to a file of such
//! lines.
//!
//! The first JSON line says what the figures are of: the commit, the host, the command line and the date. So a result
//! is data that its command writes, and none of it is noted by hand.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kernel_tests::host;
use serde_json::{Value, json};

/// How an experiment gives its figures.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print the table as JSON lines; the first has commit, host, command line and date.
    #[arg(long)]
    json: bool,
    /// Write these JSON lines to a file as well.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// The figures of a running experiment.
#[derive(Debug)]
pub(crate) struct Results {
    is_json: bool,
    /// Where the JSON lines go as well, with its path.
    file: Option<(File, PathBuf)>,
}

impl Results {
    /// Creates the file and writes the first JSON line, so that an experiment of hours fails at once if it cannot.
    pub(crate) fn begin(options: &Options) -> Result<Self> {
        let make = |path: &PathBuf| {
            let file = File::create(path).with_context(|| format!("failed to make {}", path.display()))?;
            anyhow::Ok((file, path.clone()))
        };
        let mut results = Self {
            is_json: options.json,
            file: options.write.as_ref().map(make).transpose()?,
        };
        if results.is_json || results.file.is_some() {
            results.figures(&origin()?)?;
        }
        Ok(results)
    }

    /// Whether JSON lines replace the table.
    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Prints a line of the table.
    pub(crate) fn text(&self, line: impl Display) {
        if !self.is_json {
            println!("{line}");
        }
    }

    /// Gives figures as a JSON line.
    pub(crate) fn figures(&mut self, figures: &Value) -> Result<()> {
        if self.is_json {
            println!("{figures}");
        }
        if let Some((file, path)) = &mut self.file {
            // In one piece, so that an experiment that is stopped leaves whole lines.
            let line = format!("{figures}\n");
            file.write_all(line.as_bytes())
                .with_context(|| format!("failed to write {}", path.display()))?;
        }
        Ok(())
    }
}

/// What the figures are of.
fn origin() -> Result<Value> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("failed to read /proc/cpuinfo")?;
    let release = "/proc/sys/kernel/osrelease";
    let kernel = fs::read_to_string(release).with_context(|| format!("failed to read {release}"))?;
    let words = std::env::args_os().skip(1);
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    Ok(json!({
        "commit": commit(),
        "date": Timestamp::now().strftime("%FT%TZ").to_string(),
        "host": host_of(&cpuinfo, kernel.trim()),
        "command": command(&words),
    }))
}

/// The commit that is checked out, `-dirty` where files of it are changed; `None` if git knows no commit.
fn commit() -> Option<String> {
    let git =
        |args: &[&str]| host::output(Command::new("git").arg("-C").arg(host::workspace()).args(args)).ok();
    let commit = git(&["rev-parse", "HEAD"])?;
    // Cargo compiles a new file only where a file that git knows names it.
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(named(commit.trim(), &changes))
}

fn named(commit: &str, changes: &str) -> String {
    let dirty = if changes.trim().is_empty() { "" } else { "-dirty" };
    format!("{commit}{dirty}")
}

/// Model and number of the CPUs, and the kernel.
fn host_of(cpuinfo: &str, kernel: &str) -> Value {
    let fields = || cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let values = |name: &'static str| {
        let of_name = fields().filter(move |(field, _)| field.trim() == name);
        of_name.map(|(_, value)| value.trim())
    };
    json!({
        "cpu": values("model name").next(),
        "cores": values("processor").count(),
        "kernel": kernel,
    })
}

/// The command line as a shell takes it.
fn command(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@%+".contains(c);
    let quoted = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    let start = ["cargo", "xtask"].map(str::to_owned).into_iter();
    start.chain(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_the_origin_and_then_the_figures() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let options = Options {
            json: false,
            write: Some(path.clone()),
        };
        let mut results = Results::begin(&options).unwrap();
        results.text("a line of the table");
        results
            .figures(&json!({"workload": "heapsort", "error": 0.5}))
            .unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let [origin, figures] = lines.as_slice() else {
            panic!("{text}");
        };
        let mut fields: Vec<&str> = origin.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["command", "commit", "date", "host"]);
        assert!(origin["command"].as_str().unwrap().starts_with("cargo xtask"));
        assert!(origin["date"].as_str().unwrap().parse::<Timestamp>().is_ok());
        assert_eq!(*figures, json!({"workload": "heapsort", "error": 0.5}));
    }

    #[test]
    fn file_that_cannot_be_made_is_reported_at_once() {
        let options = Options {
            json: false,
            write: Some("/nowhere/results.json".into()),
        };
        let err = Results::begin(&options).unwrap_err().to_string();
        assert_eq!(err, "failed to make /nowhere/results.json");
    }

    #[test]
    fn changed_files_make_a_commit_dirty() {
        assert_eq!(named("8d1dbaf", ""), "8d1dbaf");
        assert_eq!(named("8d1dbaf", " M README.md\n"), "8d1dbaf-dirty");
    }

    #[test]
    fn a_host_has_a_model_cores_and_a_kernel() {
        let cpuinfo =
            "processor\t: 0\nmodel name\t: A CPU: fast\n\nprocessor\t: 1\nmodel name\t: A CPU: fast\n";
        assert_eq!(
            host_of(cpuinfo, "6.12.1"),
            json!({"cpu": "A CPU: fast", "cores": 2, "kernel": "6.12.1"})
        );
    }

    #[test]
    fn command_lines_can_be_typed_again() {
        let words = [
            "vm",
            "accuracy",
            "--options",
            "--rings-apart -x",
            "--keep",
            "it's",
            "",
        ];
        assert_eq!(
            command(&words.map(str::to_owned)),
            r"cargo xtask vm accuracy --options '--rings-apart -x' --keep 'it'\''s' ''"
        );
    }
}
