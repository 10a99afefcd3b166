//! An entry of a branch stack, and what it says.

use crate::key::is_kernel;

/// An entry of a branch stack: `struct perf_branch_entry` in `include/uapi/linux/perf_event.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BranchEntry {
    /// Address of the branch instruction.
    pub from: u64,
    /// Its target.
    pub to: u64,
    /// Bits 0 to 3: mispredicted, predicted, in a transaction, transaction aborted; 4 to 19: cycles since the branch
    /// before; 20 to 23: type; 24 and 25: speculation.
    pub flags: u64,
}

const _: () = assert!(size_of::<BranchEntry>() == 24 && align_of::<BranchEntry>() == 8);

/// `PERF_BR_SPEC_WRONG_PATH`: the branch was fetched and then thrown away.
const SPEC_WRONG_PATH: u64 = 1;

impl BranchEntry {
    /// Whether it was predicted wrongly; `None` where the processor does not report it.
    #[inline(always)]
    pub const fn mispredicted(&self) -> Option<bool> {
        match self.flags & 3 {
            0 => None,
            flags => Some(flags & 1 != 0),
        }
    }

    /// Cycles since the next older branch; 0 where the processor does not count them.
    #[inline(always)]
    pub const fn cycles(&self) -> u64 {
        self.flags >> 4 & 0xffff
    }

    /// Whether it is a zero entry: the stack was not full, and nothing older follows.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.from == 0 && self.to == 0
    }

    /// Whether it was fetched and then thrown away.
    #[inline(always)]
    pub const fn is_wrong_path(&self) -> bool {
        self.speculation() == SPEC_WRONG_PATH
    }

    /// Whether it is the same branch to the same target.
    #[inline(always)]
    pub const fn is_same(&self, other: &Self) -> bool {
        self.from == other.from && self.to == other.to
    }

    /// Whether it leads into the other ring, as only far branches, interrupts and exceptions do (SDM vol. 1, 6.4 and 6.5).
    #[inline(always)]
    pub const fn changes_ring(&self) -> bool {
        is_kernel(self.from) != is_kernel(self.to)
    }

    /// Speculation outcome: 0 unknown, 1 on a wrong path, 2 not speculative, 3 speculative on the correct path.
    #[inline(always)]
    pub const fn speculation(&self) -> u64 {
        self.flags >> 24 & 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags() {
        let entry = BranchEntry {
            from: 1,
            to: 2,
            flags: 3 << 24 | 0xf_1235,
        };
        assert_eq!(entry.mispredicted(), Some(true));
        assert_eq!(BranchEntry { flags: 2, ..entry }.mispredicted(), Some(false));
        assert_eq!(BranchEntry { flags: 0, ..entry }.mispredicted(), None);
        assert_eq!((entry.cycles(), entry.speculation()), (0xf123, 3));
        let into_kernel = BranchEntry {
            to: 0xffff_ffff_8100_0000,
            ..entry
        };
        assert!(into_kernel.changes_ring() && !entry.changes_ring());
    }
}
