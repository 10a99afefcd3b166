//! Branch stacks: what an entry says, and how neighbouring entries make streams (paper section III.B).
//!
//! The import of recordings walks through a stack by [`Walk`]; what is collected live has a loop of its own, for speed.
//! Entries come newest first, as perf hands them over; between the target of an older branch and the source of the
//! next younger one the processor ran straight on:
//!
//! ```text
//! entries   [0] from0 -> to0     newest
//!           [1] from1 -> to1     stream: to1 ..= from0
//!           [2] from2 -> to2     stream: to2 ..= from1; the oldest entry ends no stream
//! ```
//!
//! Whether a stream can have run is not judged here: that takes the text.

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
    /// Whether it was predicted wrongly; `None` where the processor does not tell.
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

/// What runs from one taken branch to the next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stream {
    /// Target of the older branch: address of the first instruction.
    pub start: u64,
    /// Source of the younger branch: address of the last instruction.
    pub end: u64,
    /// Cycles that the younger branch counted.
    pub cycles: u64,
}

/// What an entry turned out to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// The newest entry that is sound: no stream ends behind it.
    Newest,
    /// Together with the younger neighbour it bounds this stream.
    Stream(Stream),
    /// It was never executed; its neighbours are neighbours of each other.
    WrongPath,
    /// A zero entry: the stack was not full, and nothing older follows.
    End,
}

/// A walk through one stack, from its newest entry to its oldest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk {
    /// The oldest sound entry so far, and the number of sound entries.
    oldest: BranchEntry,
    n_sound: u32,
}

impl Walk {
    /// Takes the next older entry.
    #[inline(always)]
    pub const fn step(&mut self, entry: BranchEntry) -> Step {
        if entry.is_empty() {
            return Step::End;
        }
        if entry.is_wrong_path() {
            return Step::WrongPath;
        }
        let younger = self.oldest;
        self.oldest = entry;
        self.n_sound += 1;
        if self.n_sound == 1 {
            return Step::Newest;
        }
        Step::Stream(Stream {
            start: entry.to,
            end: younger.from,
            cycles: younger.cycles(),
        })
    }

    /// The oldest sound entry so far: after the whole walk the paper's `entry[0]`. `None` before the first one.
    #[inline(always)]
    pub const fn oldest(&self) -> Option<BranchEntry> {
        if self.n_sound == 0 {
            None
        } else {
            Some(self.oldest)
        }
    }

    /// Number of sound entries so far: the N of the weight 1/(N-1).
    #[inline(always)]
    pub const fn n_sound(&self) -> u32 {
        self.n_sound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(from: u64, to: u64) -> BranchEntry {
        BranchEntry {
            from,
            to,
            flags: from << 4,
        }
    }

    fn wrong_path(from: u64, to: u64) -> BranchEntry {
        BranchEntry {
            from,
            to,
            flags: 1 << 24,
        }
    }

    fn stream(start: u64, end: u64) -> Step {
        Step::Stream(Stream {
            start,
            end,
            cycles: end,
        })
    }

    #[test]
    fn neighbours_make_streams_newest_first() {
        let mut walk = Walk::default();
        assert_eq!(walk.oldest(), None);
        assert_eq!(walk.step(entry(30, 40)), Step::Newest);
        assert_eq!(walk.step(entry(20, 25)), stream(25, 30));
        assert_eq!(walk.step(entry(10, 15)), stream(15, 20));
        assert_eq!((walk.n_sound(), walk.oldest()), (3, Some(entry(10, 15))));
    }

    #[test]
    fn entries_of_a_wrong_path_leave_no_gap() {
        let mut walk = Walk::default();
        assert_eq!(walk.step(wrong_path(7, 8)), Step::WrongPath);
        assert_eq!(walk.step(entry(30, 40)), Step::Newest);
        assert_eq!(walk.step(wrong_path(7, 8)), Step::WrongPath);
        assert_eq!(walk.step(entry(20, 25)), stream(25, 30));
        assert_eq!(walk.n_sound(), 2);
    }

    #[test]
    fn zero_entries_end_a_stack() {
        let mut walk = Walk::default();
        assert_eq!(walk.step(entry(30, 40)), Step::Newest);
        assert_eq!(
            walk.step(BranchEntry {
                flags: 1,
                ..entry(0, 0)
            }),
            Step::End
        );
        assert_eq!((walk.n_sound(), walk.oldest()), (1, Some(entry(30, 40))));
    }

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
