//! What kind of system this is: who we are on it, and how its packages are installed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use anyhow::Result;

/// The families of Linux distributions whose commands we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Debian,
    /// Debian's packages, but without the compiler that can build for eBPF.
    Ubuntu,
    Fedora,
    Arch,
    Suse,
    Other,
}

impl System {
    /// The system that we run on.
    pub(crate) fn read() -> Self {
        Self::parse(&fs::read_to_string("/etc/os-release").unwrap_or_default())
    }

    /// The system of this os-release file: by its own name, else by the first relative that we know.
    fn parse(os_release: &str) -> Self {
        let field = |name: &str| {
            let value = os_release
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_default().trim_matches(['"', '\''])
        };
        let mut names = field("ID").split(' ').chain(field("ID_LIKE").split(' '));
        names.find_map(Self::named).unwrap_or(Self::Other)
    }

    fn named(name: &str) -> Option<Self> {
        match name {
            "debian" => Some(Self::Debian),
            "ubuntu" => Some(Self::Ubuntu),
            "fedora" | "rhel" | "centos" => Some(Self::Fedora),
            "arch" => Some(Self::Arch),
            "suse" | "opensuse" => Some(Self::Suse),
            _ => None,
        }
    }

    /// Whether apt installs here: then what is missing is known, and can be installed.
    pub(crate) fn has_apt(self) -> bool {
        matches!(self, Self::Debian | Self::Ubuntu)
    }
}

/// Whether we may install packages and load eBPF programs.
pub(crate) fn is_root() -> bool {
    // The folder of a process belongs to its effective user.
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Those of these Debian packages that are not installed.
pub(crate) fn missing_packages(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| !is_installed(name));
    names
}

/// What apt says that these packages take: to download, and on the disk.
pub(crate) fn size_of_packages(names: &str) -> Result<String> {
    let mut apt = Command::new("sh");
    let plan = format!("apt-get update -qq && apt-get install --assume-no --no-install-recommends {names}");
    // apt refuses its own plan here, so its exit code says nothing.
    let output = apt.args(["-c", &plan]).env("LC_ALL", "C").output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let sizes = said
        .lines()
        .filter(|line| line.starts_with("Need to get") || line.starts_with("After this"));
    Ok(sizes
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n"))
}

fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    let output = query
        .args(["--show", "--showformat=${db:Status-Status}\n", package])
        .output();
    // One line for each architecture that the package is known for.
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .any(|status| status == "installed")
    })
}

#[cfg(test)]
mod tests {
    use super::System;

    #[track_caller]
    fn check(os_release: &str, expected: System) {
        assert_eq!(System::parse(os_release), expected, "{os_release}");
    }

    #[test]
    fn a_system_is_known_by_its_name_or_its_relatives() {
        check(
            "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\n",
            System::Debian,
        );
        check("ID=ubuntu\nID_LIKE=debian\n", System::Ubuntu);
        check("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", System::Ubuntu);
        check("ID='rocky'\nID_LIKE='rhel centos fedora'\n", System::Fedora);
        check(
            "ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n",
            System::Suse,
        );
        check("ID=alpine\n", System::Other);
        check("", System::Other);
    }
}
