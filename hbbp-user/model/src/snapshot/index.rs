//! Indexes of the tables of a snapshot.

/// Index of a [`super::Module`] in [`super::Snapshot::modules`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ModuleIdx(pub u32);

/// Index of a [`super::Process`] in [`super::Snapshot::processes`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ProcessIdx(pub u32);

impl ProcessIdx {
    /// The kernel is first: its mappings are the kernel's text regions, and kernel samples that are not split
    /// by process belong to it.
    pub const KERNEL: Self = Self(0);
    /// Process images that an estimate counts together; no snapshot has it.
    pub const OTHERS: Self = Self(u32::MAX);
}

/// Index of a path in [`super::Snapshot::cgroups`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CgroupIdx(pub u32);

/// Index of an [`super::Event`] in [`super::Run::events`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EventIdx(pub u32);
