//! Regions of kernel text, and the modules that they belong to.

use hbbp_model::addr::Va;
use hbbp_model::snapshot::ModuleKind;

/// Name of the kernel image.
pub(crate) const KERNEL: &str = "[kernel]";

/// Index of a module of this map.
pub(crate) type KernelModuleIdx = usize;

/// A module of ring 0.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct KernelModule {
    /// Its name: `[kernel]`, that of a kernel module, of a BPF program, of an area.
    pub name: String,
    /// Its sort.
    pub kind: ModuleKind,
    /// Which regions belong to it.
    pub regions: Regions,
}

impl KernelModule {
    /// The kernel image.
    pub(super) fn image() -> Self {
        Self {
            name: KERNEL.to_owned(),
            kind: ModuleKind::Kernel,
            regions: Regions::OfName,
        }
    }

    /// A kernel module, which has several parts.
    pub(super) fn of_parts(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: ModuleKind::KernelModule,
            regions: Regions::OfName,
        }
    }
}

/// Which regions belong to a module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Regions {
    /// All regions of its name, such as the parts of a kernel module.
    OfName,
    /// One: memory of BPF programs is used again, under whatever name.
    One,
    /// The pages of an area that have no name of their own.
    Unnamed,
}

/// A region of kernel text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Region {
    /// First address.
    pub start: Va,
    /// First address after it.
    pub end: Va,
    /// What it belongs to.
    pub module: KernelModuleIdx,
    /// When it was loaded, in ns; 0 if that was before the run.
    pub from: u64,
    /// When it went, in ns; `u64::MAX` where it did not.
    pub until: u64,
}
