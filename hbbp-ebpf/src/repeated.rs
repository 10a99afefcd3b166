//! Whole stacks that come again and again, as those of loops without choices do: they are cached as they are and counted by
//! a comparison ([`hbbp_ebpf::stack::CachedStack`]).
//!
//! A stack is cached when it is seen for the second time, and counted whole from the third on. Its slot is found by a
//! fingerprint of every fourth entry; all entries are then compared.

use hbbp_ebpf::MAX_DEPTH;
use hbbp_ebpf::stack::{CACHE_SLOTS, CachedStack, CachedStacks, Context, Jump, Stack, fingerprint, slots_of};

use crate::maps::SEED;

/// What is known of a stack.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Seen {
    /// It is cached, and was counted.
    Counted,
    /// It was seen for the second time, and is to be cached in this slot.
    Twice(usize),
    /// It is new, or has no slot.
    New,
}

const _: () = assert!(MAX_DEPTH == 32, "all entries are named below");

/// How many other stacks a slot sees before it drops one that was seen once. Stacks that alternate, as a constant
/// period makes them of a loop, would evict each other for ever.
const PATIENCE: u64 = 3;

/// Looks a stack of `depth` entries up, and counts it if it is cached.
#[inline(always)]
pub(crate) fn look_up(cache: &mut CachedStacks, stack: &Stack, context: &Context, depth: u64) -> Seen {
    let mut mixed = context.image ^ SEED.load();
    for i in [0, 4, 8, 12, 16, 20, 24, 28] {
        mixed = fingerprint(mixed, stack.entries[i].from);
    }
    let [first, second] = slots_of(mixed);
    let slot = &cache.slots[first & (CACHE_SLOTS - 1)];
    // A stack takes the first slot, unless it is used by another one.
    let place = if slot.fingerprint == mixed || slot.hits == 0 {
        first
    } else {
        second
    };
    let place = place & (CACHE_SLOTS - 1);
    let slot = &mut cache.slots[place];
    if slot.fingerprint == mixed {
        if slot.depth == depth && slot.context.is_same(context) && is_same(slot, stack) {
            slot.hits += 1;
            return Seen::Counted;
        }
        if slot.hits == 0 {
            return Seen::Twice(place);
        }
    } else if slot.hits == 0 {
        if slot.patience == 0 {
            slot.fingerprint = mixed;
            slot.depth = 0;
            slot.patience = PATIENCE;
        } else {
            slot.patience -= 1;
        }
    }
    Seen::New
}

/// Whether all entries are the same. Those after the last one of a stack that is not full are whatever the ring holds
/// from earlier stacks: where they differ, the stack is not taken for the same, which costs time and is not wrong.
///
/// It is a function of its own because the compiler then has registers for both pointers: within the program it loads one
/// of them from its stack again for each address.
#[inline(never)]
fn is_same(slot: &CachedStack, stack: &Stack) -> bool {
    // The compiler unrolls nothing for this target, and a loop takes twice the instructions.
    macro_rules! all {
        ($($i:literal)*) => {
            $(slot.entries[$i].from == stack.entries[$i].from && slot.entries[$i].to == stack.entries[$i].to)&&*
        };
    }
    all!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
}

/// Caches a stack in this slot.
#[inline(always)]
pub(crate) fn store(
    cache: &mut CachedStacks,
    place: usize,
    stack: &Stack,
    (context, depth, time): (&Context, u64, u64),
) {
    let slot = &mut cache.slots[place & (CACHE_SLOTS - 1)];
    for i in 0..MAX_DEPTH {
        let entry = &stack.entries[i];
        slot.entries[i] = Jump {
            from: entry.from,
            to: entry.to,
        };
    }
    slot.context = *context;
    slot.depth = depth;
    slot.first_time = time;
}
