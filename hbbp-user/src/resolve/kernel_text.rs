//! The readers of kernel text, best first: /proc/kcore, a copying BPF program, a vmlinux file.

use std::fmt;

use crate::addr::Va;
use crate::snapshot::KernelTextSource;

use super::kcore::Kcore;
use super::vmlinux::Vmlinux;

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

    /// Whether it shows what runs now, so that reading again can tell something new.
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
