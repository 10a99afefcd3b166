//! The readers of kernel text, best first: /proc/kcore, a copying BPF program, a vmlinux file.

use std::fmt;

use crate::addr::Va;
use crate::snapshot::KernelTextSource;

use super::kallsyms::ImageMarks;
use super::kcore::{Kcore, open_kcore};
use super::vmlinux::{Vmlinux, open_vmlinux};
use crate::resolve::elf::build_id::read_kernel_build_id;

/// Fills a buffer with kernel memory from an address on; `false` where it cannot.
pub type ReadKernel = dyn FnMut(Va, &mut [u8]) -> bool + Send;

/// Where kernel text is read.
#[derive(Default)]
pub enum KernelText {
    /// Nowhere.
    #[default]
    None,
    /// The live text through /proc/kcore.
    Kcore(Kcore),
    /// The live text through a function of the collector, which copies it by a BPF program.
    Probe(Box<ReadKernel>),
    /// The static image.
    Vmlinux(Vmlinux),
}

/// Opens the best reader there is: /proc/kcore, else the probe of the collector, else a vmlinux of this `release`
/// that runs at `marks`.
/// Where live text cannot be read, a sentence says why and what to do.
pub fn open_kernel_text(
    probe: Option<Box<ReadKernel>>,
    release: &str,
    marks: &ImageMarks,
) -> (KernelText, Option<String>) {
    let why = match open_kcore() {
        Ok(kcore) => return (KernelText::Kcore(kcore), None),
        Err(error) => error,
    };
    if let Some(probe) = probe {
        return (KernelText::Probe(probe), None);
    }
    let no_live = format!("live kernel text cannot be read (/proc/kcore: {why}; no BPF program may copy it)");
    match open_vmlinux(release, &read_kernel_build_id(), marks) {
        Some(vmlinux) => {
            let path = vmlinux.path.display();
            let note = format!("{no_live}: {path} was used, which lacks what the kernel patched into itself");
            (KernelText::Vmlinux(vmlinux), Some(note))
        }
        None => {
            let note = format!(
                "{no_live}, and no vmlinux of {release} was found: kernel samples have no instructions; \
                 run as root without lockdown=confidentiality, or install the debug image of this kernel"
            );
            (KernelText::None, Some(note))
        }
    }
}

impl KernelText {
    /// How the snapshot names it.
    pub fn source(&self) -> KernelTextSource {
        match self {
            Self::None => KernelTextSource::None,
            Self::Kcore(_) => KernelTextSource::Kcore,
            Self::Probe(_) => KernelTextSource::Probe,
            Self::Vmlinux(vmlinux) => KernelTextSource::Vmlinux(vmlinux.path.display().to_string()),
        }
    }

    /// Whether it shows what runs now, so that reading again can find something new.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Kcore(_) | Self::Probe(_))
    }

    /// Fills `bytes` with the text from `at` on; `false` where it cannot be read as a whole.
    pub fn read(&mut self, at: Va, bytes: &mut [u8]) -> bool {
        match self {
            Self::None => false,
            Self::Kcore(kcore) => kcore.read(at, bytes),
            Self::Probe(read) => read(at, bytes),
            Self::Vmlinux(vmlinux) => vmlinux.read(at, bytes),
        }
    }
}

impl fmt::Debug for KernelText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.source())
    }
}
