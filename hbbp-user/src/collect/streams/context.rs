//! What streams are counted under: the process image, the event and the interval, and short numbers for these.

use std::collections::HashMap;

use hbbp_ebpf::key::{kernel_mask, source_of};
use hbbp_ebpf::stack::Context;
use hbbp_ebpf::{CountKey, EventTag, is_kernel};

use super::table::Slot;
use crate::collect::object::KernelCounts;

/// Set in the number under which branches in oldest slots are counted.
pub(super) const OLDEST: u64 = 1 << 63;
/// Set in the number of streams that end where the kernel changes tasks, so that each of them is looked at.
pub(super) const WATCHED: u64 = 1 << 62;
/// No stream is counted under this.
pub(super) const NOWHERE: u64 = u64::MAX;

/// Below the index of a context stand bits that are spread evenly, so that equal streams of several processes do not stand
/// side by side: multiples of the golden ratio (Knuth, The Art of Computer Programming, vol. 3, 6.4).
const NUMBER_SHIFT: u32 = 32;
const PHI: u64 = 0x9e37_79b9_7f4a_7c15;

/// The numbers of the context of a stack: for user code, and for kernel code.
pub(super) type Ids = [u64; 2];

/// The number of a context for an address.
#[inline(always)]
pub(super) const fn of_ring(ids: &Ids, address: u64) -> u64 {
    let [user, kernel] = *ids;
    if is_kernel(address) { kernel } else { user }
}

/// All contexts since the last drain, by their numbers.
#[derive(Debug)]
pub(super) struct Contexts {
    kernel: KernelCounts,
    all: Vec<(Under, Weights)>,
    numbers: HashMap<Under, u64>,
    /// The last context, and its numbers.
    last: Option<(Context, Ids)>,
}

/// What a stream is counted under.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Under {
    owner: [u32; 2],
    event: u32,
    interval: u32,
}

/// What the streams of one context weigh.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weights {
    /// Those that can have run.
    pub(super) possible: u128,
    /// Those that cannot.
    pub(super) impossible: u128,
}

impl Weights {
    /// Adds what was counted in a slot.
    pub(super) const fn add(&mut self, slot: &Slot) {
        let weight = slot.weight as u128;
        match slot.refusal() {
            Some(_) => self.impossible += weight,
            None => self.possible += weight,
        }
    }

    /// The weight of a stream that can have run, with its share of that of those which cannot.
    pub(super) fn made_up(&self, weight: u64) -> u64 {
        if self.impossible == 0 || self.possible == 0 {
            return weight;
        }
        let all = self.possible + self.impossible;
        match all.checked_mul(weight as u128) {
            Some(product) => u64::try_from(product / self.possible).unwrap_or(u64::MAX),
            None => weight,
        }
    }
}

impl Contexts {
    pub(super) fn new(kernel: KernelCounts) -> Self {
        Self {
            kernel,
            all: Vec::new(),
            numbers: HashMap::new(),
            last: None,
        }
    }

    /// The numbers of a context. Mostly it is that of the last stack.
    #[inline(always)]
    pub(super) fn ids(&mut self, context: &Context) -> Ids {
        match self.last {
            // The period is no part of it.
            Some((last, ids)) if last.image == context.image && last.kind == context.kind => ids,
            _ => self.look_up(context),
        }
    }

    #[cold]
    fn look_up(&mut self, context: &Context) -> Ids {
        let user = Under {
            owner: context.owner(),
            event: context.event(),
            interval: context.interval(),
        };
        let kernel = match self.kernel {
            KernelCounts::Together => Under {
                owner: [0, 0],
                ..user
            },
            KernelCounts::ByProcess => user,
        };
        let mut id = |under: Under| {
            *self.numbers.entry(under).or_insert_with(|| {
                let number = self.all.len() as u64;
                self.all.push((under, Weights::default()));
                number << NUMBER_SHIFT | number.wrapping_mul(PHI) >> (64 - NUMBER_SHIFT)
            })
        };
        let ids = [id(user), id(kernel)];
        self.last = Some((*context, ids));
        ids
    }

    /// What is counted under a number, and what its streams weigh.
    pub(super) fn get(&self, id: u64) -> Option<(&Under, &Weights)> {
        self.all.get(index(id)).map(|(under, weights)| (under, weights))
    }

    /// The same, to be added to; of a number that is not known it is lost.
    pub(super) fn weights(&mut self, id: u64) -> Option<&mut Weights> {
        self.all.get_mut(index(id)).map(|(_, weights)| weights)
    }

    /// Whether streams that cannot have run were added to any.
    pub(super) fn has_impossible(&self) -> bool {
        self.all.iter().any(|(_, weights)| 0 < weights.impossible)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.numbers.clear();
        self.last = None;
    }
}

/// The index of a context by its number.
const fn index(id: u64) -> usize {
    ((id & !(OLDEST | WATCHED)) >> NUMBER_SHIFT) as usize
}

impl Under {
    pub(super) const fn event(&self) -> u32 {
        self.event
    }

    /// The key of the stream from `start`, of `length` bytes, to which the branch at `from` led. It is of the interval if
    /// one of the two is kernel code, so that both sides of a branch in the kernel are counted in one interval.
    pub(super) const fn stream(&self, from: u64, start: u64, length: u32) -> CountKey {
        let [tgid, exec_id] = self.owner;
        CountKey {
            address: start,
            source: source_of(start, from),
            tgid,
            exec_id,
            event: self.tag(EventTag::stream(self.event), start | from),
            length,
        }
    }

    /// The key of the branch in the oldest slot.
    pub(super) const fn oldest(&self, address: u64) -> CountKey {
        let [tgid, exec_id] = self.owner;
        CountKey {
            address,
            source: 0,
            tgid,
            exec_id,
            event: self.tag(EventTag::oldest(self.event), address),
            length: 0,
        }
    }

    const fn tag(&self, tag: EventTag, address: u64) -> EventTag {
        tag.in_interval(self.interval & kernel_mask(address) as u32)
    }
}
