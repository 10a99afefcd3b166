//! The service of the Debian package, in a Debian with systemd that boots on an emulated machine.
//!
//! The machine has no counters of events, so that the service samples by time. `service.sh` runs in it and says what it found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::command;
use crate::root::Root;

/// Its systemd is the newest that QEMU of Debian 12 was tried with.
const SUITE: &str = "bookworm";

/// The kernel for virtual machines is a fifth of the usual one.
const PACKAGES: [&str; 3] = ["systemd-sysv", "initramfs-tools", "linux-image-cloud-amd64"];

/// What runs in the machine, and the last line that it prints if all went well.
const SCRIPT: &str = include_str!("service.sh");
const PASSED: &str = "service: passed";

/// systemd runs the script instead of the services of a boot, and ends the machine after it. A busy host delays the timer
/// that the kernel checks at its start.
const KERNEL_PARAMETERS: &str = "root=/dev/vda rw console=ttyS0 panic=-1 no_timer_check quiet systemd.run=/trial/service.sh \
                                 systemd.run_success_action=poweroff systemd.run_failure_action=poweroff";

/// The emulator computes flags after CMPXCHG16B wrongly on several CPUs (see kernel-tests/src/hardware.rs).
const CPU: &str = "max,la57=off,-cx16";

/// The longest that a boot may take.
const SECONDS: &str = "1200";

/// Installs the package there, uses its service, and removes it.
pub(super) fn try_service(package: &Path) -> Result<()> {
    let root = Root::create(SUITE, &PACKAGES, "roots/service")?;
    root.copy(package, "trial/hbbp-sys.deb")?;
    let script = root.path.join("trial/service.sh");
    fs::write(&script, SCRIPT).with_context(|| format!("failed to write {}", script.display()))?;
    root.enter("chmod +x /trial/service.sh && apt-get clean")?;
    let image = root.path.with_extension("ext4");
    let mut format = Command::new("mkfs.ext4");
    format.args(["-q", "-F", "-d"]).args([&root.path, &image]);
    command::run(format.arg("3G"))?;
    println!("booting it");
    let said = command::stdout(&mut machine(&root.path, &image)?)?;
    println!("{said}");
    ensure!(
        said.lines().any(|line| line.trim_end() == PASSED),
        "the service failed, see above"
    );
    fs::remove_file(&image).with_context(|| format!("failed to remove {}", image.display()))?;
    root.remove()
}

/// The emulated machine, with its serial console as output.
fn machine(root: &Path, image: &Path) -> Result<Command> {
    let mut qemu = Command::new("timeout");
    qemu.args([SECONDS, "qemu-system-x86_64", "-accel", "tcg,thread=multi"]);
    qemu.args(["-cpu", CPU, "-smp", "2", "-m", "1G", "-nic", "none", "-no-reboot"]);
    qemu.args(["-display", "none", "-monitor", "none", "-serial", "stdio"]);
    qemu.arg("-kernel").arg(boot_file(root, "vmlinuz")?);
    qemu.arg("-initrd").arg(boot_file(root, "initrd.img")?);
    qemu.args(["-append", KERNEL_PARAMETERS, "-drive"]);
    // The machine is thrown away, so that nothing of it must reach the disk.
    qemu.arg(format!(
        "file={},format=raw,if=virtio,cache=unsafe",
        image.display()
    ));
    Ok(qemu)
}

/// The file of the kernel that is installed there.
fn boot_file(root: &Path, kind: &str) -> Result<PathBuf> {
    let folder = root.join("boot");
    let entries = fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let is_of_kind = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(&format!("{kind}-")))
    };
    paths
        .filter(is_of_kind)
        .max()
        .with_context(|| format!("{} has no {kind}", folder.display()))
}
