//! The contract between the kernel half and the user half of hbbp-sys.
//!
//! What both sides must agree on stands here and nowhere else: keys and values of the maps, the counters, the names
//! and capacities of maps.
//! Everything is `repr(C)` without padding, and a size assertion stands beside each layout: the object and the loader
//! are built from the same sources in one build, so a layout may change freely as long as both sides compile.
//! Logic of the programs that does not need the kernel is a plain function here, with unit tests on the host.
#![no_std]

/// Whether an address belongs to ring 0: the upper half of the canonical address space (SDM vol. 1, 3.3.7.1).
#[inline(always)]
pub const fn is_kernel(address: u64) -> bool {
    address >> 63 == 1
}
