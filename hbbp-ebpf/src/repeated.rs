//! Whole stacks that come again and again, as those of loops without choices do: they are kept as they are and counted by
//! a comparison ([`hbbp_ebpf::combine::StackSlot`]).
//!
//! A stack is kept when it is seen for the second time, and counted whole from the third on. Its place is found by a
//! fingerprint of every fourth entry; whether it is the same is decided by a comparison of all.

use hbbp_ebpf::MAX_DEPTH;
use hbbp_ebpf::combine::{CombineTable, Jump, STACK_SLOTS, StackSlot, fingerprint, stack_slots_of};

use crate::work::Work;

/// What is known of a stack before its streams are made.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Seen {
    /// It is kept, and was counted.
    Counted,
    /// It is to be counted stream by stream, and kept if the work space tells a place.
    NotKept,
}

const _: () = assert!(MAX_DEPTH == 32, "all entries are named below");

/// How many other stacks a slot sees before it gives up the one that it has seen once: stacks that come in turn, as a
/// constant period makes them of a loop, would drive each other out for ever.
const PATIENCE: u64 = 3;

/// No place.
const NOWHERE: u64 = STACK_SLOTS as u64;

/// Looks a stack of `depth` entries up, under the context with the number `id`, and counts it if it is kept.
#[inline(always)]
pub(crate) fn look_up(table: &mut CombineTable, work: &mut Work, depth: u64, id: u64) -> Seen {
    let mut mixed = id;
    for i in [0, 4, 8, 12, 16, 20, 24, 28] {
        // SAFETY: a reference is valid for reading. Volatile, or the compiler would keep all eight for the comparison, on the
        // program's stack.
        let from = unsafe { (&raw const work.stack[i].from).read_volatile() };
        mixed = fingerprint(mixed, from);
    }
    let [first, second] = stack_slots_of(mixed);
    let slot = &table.stacks[first & (STACK_SLOTS - 1)];
    // A stack takes the first place, unless another one needs that.
    let place = if slot.fingerprint == mixed || slot.hits == 0 {
        first
    } else {
        second
    };
    let place = place & (STACK_SLOTS - 1);
    let slot = &mut table.stacks[place];
    work.place.set(NOWHERE);
    if slot.fingerprint == mixed {
        if slot.id == id && slot.depth == depth && is_same(slot, work) {
            slot.hits += 1;
            return Seen::Counted;
        }
        if slot.hits == 0 {
            work.place.set(place as u64);
        }
    } else if slot.hits == 0 {
        if slot.patience == 0 {
            slot.fingerprint = mixed;
            slot.id = 0;
            slot.patience = PATIENCE;
        } else {
            slot.patience -= 1;
        }
    }
    Seen::NotKept
}

/// Whether all entries are the same. Those behind the last one of a stack that is not full are whatever the buffer holds
/// from earlier stacks: where they differ, the stack is not taken for the same, which costs time and is not wrong.
#[inline(always)]
fn is_same(slot: &StackSlot, work: &Work) -> bool {
    // The compiler unrolls nothing for this target, and a loop takes twice the instructions.
    macro_rules! all {
        ($($i:literal)*) => {
            $(slot.entries[$i].from == work.stack[$i].from && slot.entries[$i].to == work.stack[$i].to)&&*
        };
    }
    all!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
}

/// Keeps a stack that was looked up and counted stream by stream, where there is a place for it.
#[inline(always)]
pub(crate) fn keep(table: &mut CombineTable, work: &mut Work, depth: u64, id: u64) {
    let place = work.place.get();
    if NOWHERE <= place {
        return;
    }
    let slot = &mut table.stacks[place as usize];
    for i in 0..MAX_DEPTH {
        let entry = &work.stack[i];
        slot.entries[i] = Jump {
            from: entry.from,
            to: entry.to,
        };
    }
    slot.context = work.context;
    slot.id = id;
    slot.depth = depth;
    slot.first_time = work.time();
}
