//! Streams: what runs from one taken branch to the next (paper section III.B), for programs, rings and recordings alike.
//!
//! Entries of a stack are newest first, as in perf; between the target of an older branch and the source of the next
//! younger one, no branch was taken:
//!
//! ```text
//! entries   [0] from0 -> to0     newest
//!           [1] from1 -> to1     stream: to1 ..= from0, to which the branch at from1 led
//!           [2] from2 -> to2     stream: to2 ..= from1; the oldest entry ends no stream
//! ```
//!
//! What belongs to a stack is its first and last entry that serve ([`executed`]) and how many branches would have
//! triggered it ([`n_triggers`]). What belongs to a distinct stream is whether it can have run, judged by the addresses
//! of its ends ([`Stream::refusal`]); to judge its instructions, the text is needed.

use crate::branch::BranchEntry;
use crate::key::is_kernel;

/// What runs from one taken branch to the next, and the branch that led there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stream {
    /// Source of the older branch.
    pub from: u64,
    /// Target of the older branch: address of the first instruction.
    pub start: u64,
    /// Source of the younger branch: address of the last instruction.
    pub end: u64,
}

/// Why a stream cannot have run, by the addresses of its ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// Its ends lie in different rings: an entry between them is missing.
    Crossing,
    /// It ends before it starts: an entry is missing or a copy of another one.
    Backward,
    /// It has [`MAX_STREAM`] bytes or more: an entry between its ends is missing.
    Long,
}

/// Length in bytes from which on a stream is refused. Straight-line code of this length is not met in practice.
pub const MAX_STREAM: u64 = 64 << 10;

impl Stream {
    /// Why it cannot have run; `None` where its ends allow it.
    #[inline(always)]
    pub const fn refusal(&self) -> Option<Refusal> {
        if is_kernel(self.start) != is_kernel(self.end) {
            Some(Refusal::Crossing)
        } else if MAX_STREAM <= self.end.wrapping_sub(self.start) {
            // Nearly all streams are possible, and one comparison finds both reasons.
            Some(if self.end < self.start {
                Refusal::Backward
            } else {
                Refusal::Long
            })
        } else {
            None
        }
    }
}

/// The entries before the first zero entry: a stack that is not full yet ends in such.
#[inline(always)]
pub fn executed(entries: &[BranchEntry]) -> &[BranchEntry] {
    if entries.last().is_some_and(|oldest| !oldest.is_empty()) {
        return entries;
    }
    let n = entries.iter().position(BranchEntry::is_empty);
    entries.get(..n.unwrap_or(0)).unwrap_or_default()
}

/// How many branches would have triggered this stack. Where an event counts near branches alone, no stack is taken at a far
/// one; the next near branch, whose stack begins right after it, has the chance of both. Without this, whatever runs shortly
/// before a system call or a return from one is missed: with two in a hundred branches, one stream in fifty.
#[inline(always)]
pub fn n_triggers(entries: &[BranchEntry]) -> u64 {
    let copies = match entries {
        // A copy for sure: what runs from its target never ends at it.
        [newest, copy, ..] if newest.is_same(copy) && newest.from < newest.to => 1,
        _ => 0,
    };
    let far = |n: usize| entries.get(copies + n).is_some_and(BranchEntry::changes_ring);
    match (far(1), far(2)) {
        (false, _) => 1,
        (true, false) => 2,
        // As where an interrupt comes upon the return to user code.
        (true, true) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    fn entry(from: u64, to: u64) -> BranchEntry {
        BranchEntry { from, to, flags: 0 }
    }

    #[test]
    fn refusals_by_the_addresses_of_the_ends() {
        let refusal = |start, end| Stream { from: 1, start, end }.refusal();
        assert_eq!(refusal(0x1000, 0x1010), None);
        assert_eq!(refusal(0x1000, 0x1000), None, "one branch alone is a stream");
        assert_eq!(refusal(0x1010, 0x1000), Some(Refusal::Backward));
        assert_eq!(refusal(0x1000, KERNEL), Some(Refusal::Crossing));
        assert_eq!(refusal(KERNEL, 0x1000), Some(Refusal::Crossing));
        assert_eq!(refusal(0x1000, 0x1000 + MAX_STREAM), Some(Refusal::Long));
    }

    #[test]
    fn zero_entries_end_a_stack() {
        let stack = [entry(30, 40), entry(20, 25), entry(0, 0), entry(0, 0)];
        assert_eq!(executed(&stack), &stack[..2]);
        assert_eq!(executed(&stack[..2]), &stack[..2]);
        assert!(executed(&stack[2..]).is_empty() && executed(&[]).is_empty());
    }

    #[test]
    fn a_stack_right_after_far_branches_has_their_chances_too() {
        let near = [entry(30, 40), entry(20, 25), entry(10, 15)];
        assert_eq!(n_triggers(&near), 1);
        let one = [near[0], entry(KERNEL, 25), entry(KERNEL - 9, KERNEL - 4)];
        assert_eq!(n_triggers(&one), 2);
        assert_eq!(n_triggers(&[one[0], one[0], one[1], one[2]]), 2, "a copy");
        assert_eq!(n_triggers(&[near[0], one[1], entry(9, KERNEL)]), 3);
        // Perhaps a loop of one block.
        let looped = entry(40, 30);
        assert_eq!(n_triggers(&[looped, looped, one[1]]), 1);
    }
}
