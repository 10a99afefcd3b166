//! Recordings to learn from: a profile with its exact counts, in a directory of their own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use kernel_tests::workload::ALL;

/// A profile and its reference.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Recording {
    /// Its machine: kernel and hardware profile, or the parent directory.
    pub(crate) machine: String,
    /// What was executed.
    pub(crate) workload: String,
    directory: PathBuf,
}

impl Recording {
    /// The recordings in these directories, sorted: each directory is one, with files `profile` and `reference`, or holds
    /// such directories, as `cargo xtask vm accuracy --keep` leaves them.
    ///
    /// # Errors
    /// When a directory cannot be listed, or is not and holds no recording.
    pub(crate) fn find(directories: &[PathBuf]) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for directory in directories {
            let before = found.len();
            found.extend(Self::at(directory));
            if found.len() == before {
                let failed = || format!("failed to list {}", directory.display());
                for entry in fs::read_dir(directory).with_context(failed)? {
                    found.extend(Self::at(&entry.with_context(failed)?.path()));
                }
            }
            ensure!(
                before < found.len(),
                "{} has no recording: files `profile` and `reference`, or directories with such",
                directory.display()
            );
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    fn at(directory: &Path) -> Option<Self> {
        let has = |name: &str| directory.join(name).is_file();
        let name = directory.file_name()?.to_str()?;
        (has("profile") && has("reference")).then(|| {
            let (machine, workload) = divided(name);
            Self {
                machine: machine.to_owned(),
                workload: workload.to_owned(),
                directory: directory.to_owned(),
            }
        })
    }

    #[cfg(test)]
    pub(crate) fn of_test(machine: &str, workload: &str) -> Self {
        Self {
            machine: machine.to_owned(),
            workload: workload.to_owned(),
            directory: PathBuf::new(),
        }
    }

    pub(crate) fn profile(&self) -> PathBuf {
        self.directory.join("profile")
    }

    pub(crate) fn reference(&self) -> PathBuf {
        self.directory.join("reference")
    }
}

/// The machine and the workload of `KERNEL-HARDWAREPROFILE-WORKLOAD`. A name without a workload of the suite is one itself.
fn divided(name: &str) -> (&str, &str) {
    let known = ALL.iter().find_map(|workload| {
        let machine = name.strip_suffix(workload.name)?.strip_suffix('-')?;
        Some((machine, workload.name))
    });
    known.unwrap_or(("", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_directories_say_machine_and_workload() {
        assert_eq!(divided("6.12-ivb-imprecise-gcc"), ("6.12-ivb-imprecise", "gcc"));
        assert_eq!(divided("6.1-ivb-long-blocks"), ("6.1-ivb", "long-blocks"));
        assert_eq!(divided("my-server"), ("", "my-server"));
    }

    #[test]
    fn a_directory_is_a_recording_or_holds_some() {
        let directory = tempfile::TempDir::new().unwrap();
        let one = directory.path().join("6.1-ivb-gcc");
        for name in ["6.1-ivb-gcc", "empty"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        for name in ["profile", "reference"] {
            fs::write(one.join(name), "").unwrap();
        }
        let found = |path: &Path| Recording::find(&[path.to_owned()]);
        let expected = [Recording {
            machine: "6.1-ivb".to_owned(),
            workload: "gcc".to_owned(),
            directory: one.clone(),
        }];
        assert_eq!(found(&one).unwrap(), expected);
        assert_eq!(found(directory.path()).unwrap(), expected);
        let error = found(&directory.path().join("empty")).unwrap_err();
        assert!(error.to_string().contains("has no recording"), "{error}");
    }
}
