//! What the programs on the kernel's module tracepoints hand to user space: the kernel's own description of a module.
//!
//! The programs copy it as it is, and user space, which knows the kernel's types, takes out of it what it needs.

/// Most bytes of the kernel's `struct module`: 1 to 1.4 kB in Linux 5.15 to 7.2.
pub const MODULE_BYTES: usize = 4096;

/// Bytes of the ring of [`ModuleEvent`]: modules come one after another, user space is awake after each.
pub const MODULE_RING: usize = 1 << 18;

/// A module came or went.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleEvent {
    /// Time in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// [`CAME`] or [`WENT`].
    pub what: u64,
    /// The first bytes of its `struct module`.
    pub module: [u8; MODULE_BYTES],
}

/// It has been laid out and linked, and its initialisation is about to run.
pub const CAME: u64 = 1;
/// Its text is about to be freed.
pub const WENT: u64 = 2;

const _: () = assert!(size_of::<ModuleEvent>() == 16 + MODULE_BYTES);
