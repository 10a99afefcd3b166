//! The subcommands of cargo's that make files of a release.

use crate::command;

/// A subcommand of cargo's that makes a file of a release, in a fixed version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packager {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
}

/// For the Debian package, which a test reads too.
pub(super) const DEB: Packager = Packager {
    name: "deb",
    version: "3.8.0",
};

/// All of them: also for the rpm package, and the bill of materials.
pub(super) const PACKAGERS: [Packager; 3] = [
    DEB,
    Packager {
        name: "generate-rpm",
        version: "0.21.1",
    },
    Packager {
        name: "cyclonedx",
        version: "0.5.9",
    },
];

/// Those of these that are not there in their version.
pub(super) fn missing(packagers: &[Packager]) -> Vec<Packager> {
    let missing = packagers.iter().filter(|packager| !packager.is_installed());
    missing.copied().collect()
}

impl Packager {
    fn is_installed(self) -> bool {
        let printed = command::cargo().args([self.name, "--version"]).output();
        printed.is_ok_and(|output| names_version(&String::from_utf8_lossy(&output.stdout), self.version))
    }
}

/// Whether a program that prints this is of the version: some print their name before it.
fn names_version(printed: &str, version: &str) -> bool {
    printed.split_whitespace().last() == Some(version)
}

#[cfg(test)]
mod tests {
    use super::names_version;

    #[test]
    fn programs_may_print_their_name_before_their_version() {
        for printed in ["3.8.0\n", "cargo-deb 3.8.0\n"] {
            assert!(names_version(printed, "3.8.0"), "{printed}");
        }
        for printed in ["cargo-deb 3.8.1\n", "3.8.0-rc\n", ""] {
            assert!(!names_version(printed, "3.8.0"), "{printed}");
        }
    }
}
