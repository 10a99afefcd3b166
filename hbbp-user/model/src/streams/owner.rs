//! The owners of streams: short numbers for them, and the weight of the streams of each.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use hbbp_ebpf::is_kernel;

/// Whose streams are counted together: an event, a process image, and what else separates counts.
pub trait Owner: Copy + fmt::Debug + Eq + Hash {
    /// The number of the event, from 0 on and without large gaps.
    fn event(&self) -> u32;
    /// Under which the kernel code of its stacks is counted.
    fn of_kernel(&self, kernel: KernelCounts) -> Self;
}

/// Which kernel addresses share a count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KernelCounts {
    /// Once for the whole system: few entries, no reading of the task.
    #[default]
    Together,
    /// For each process image that entered the kernel.
    ByProcess,
}

/// Whether the threads of a process image share counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ThreadCounts {
    /// Once for all of them.
    #[default]
    Together,
    /// For each thread: more entries, and rows by thread.
    Apart,
}

/// Set in the number under which branches in oldest slots are counted.
pub(super) const OLDEST: u64 = 1 << 63;
/// Set in the number of streams that end where the kernel changes tasks, so that each of them is looked at.
pub(super) const WATCHED: u64 = 1 << 62;
/// No stream is counted under this.
pub(super) const NOWHERE: u64 = u64::MAX;

/// Below the index of an owner are evenly spread bits, so that equal streams of several processes have distant slots:
/// multiples of the golden ratio (Knuth, The Art of Computer Programming, vol. 3, 6.4).
const NUMBER_SHIFT: u32 = 32;
const PHI: u64 = 0x9e37_79b9_7f4a_7c15;

/// The numbers of the owners of a stack's code: user code, and kernel code.
pub(super) type Ids = [u64; 2];

/// The number for an address.
#[inline(always)]
pub(super) const fn of_ring(ids: &Ids, address: u64) -> u64 {
    let [user, kernel] = *ids;
    if is_kernel(address) { kernel } else { user }
}

/// All owners since the last drain, by their numbers.
#[derive(Debug)]
pub(super) struct Owners<O> {
    kernel: KernelCounts,
    all: Vec<(O, Weights)>,
    numbers: HashMap<O, u64>,
    /// The last owner, and its numbers.
    last: Option<(O, Ids)>,
}

/// The weight of the streams of one owner.
#[derive(Clone, Copy, Debug, Default)]
struct Weights {
    /// Those that can have run.
    possible: f64,
    /// Those that cannot.
    impossible: f64,
}

impl<O: Owner> Owners<O> {
    pub(super) fn new(kernel: KernelCounts) -> Self {
        Self {
            kernel,
            all: Vec::new(),
            numbers: HashMap::new(),
            last: None,
        }
    }

    /// The numbers for the code of an owner's stacks. Mostly it is that of the last stack.
    #[inline(always)]
    pub(super) fn ids(&mut self, owner: O) -> Ids {
        match self.last {
            Some((last, ids)) if last == owner => ids,
            _ => self.look_up(owner),
        }
    }

    #[cold]
    fn look_up(&mut self, owner: O) -> Ids {
        let mut id = |owner: O| {
            *self.numbers.entry(owner).or_insert_with(|| {
                let number = self.all.len() as u64;
                self.all.push((owner, Weights::default()));
                number << NUMBER_SHIFT | number.wrapping_mul(PHI) >> (64 - NUMBER_SHIFT)
            })
        };
        let ids = [id(owner), id(owner.of_kernel(self.kernel))];
        self.last = Some((owner, ids));
        ids
    }

    /// Whose a number is.
    pub(super) fn get(&self, id: u64) -> Option<&O> {
        self.all.get(index(id)).map(|(owner, _)| owner)
    }

    /// Adds the weight of a stream that can have run.
    pub(super) fn add_possible(&mut self, id: u64, weight: f64) {
        if let Some((_, weights)) = self.all.get_mut(index(id)) {
            weights.possible += weight;
        }
    }

    /// Adds the weight of a stream that cannot have run.
    pub(super) fn add_impossible(&mut self, id: u64, weight: f64) {
        if let Some((_, weights)) = self.all.get_mut(index(id)) {
            weights.impossible += weight;
        }
    }

    /// Whether streams that cannot have run were added to any.
    pub(super) fn has_impossible(&self) -> bool {
        self.all.iter().any(|(_, weights)| 0.0 < weights.impossible)
    }

    /// Factor on the weight of a possible stream that redistributes the weight of impossible ones; `None` without any.
    pub(super) fn factor(&self, id: u64) -> Option<f64> {
        let (_, Weights { possible, impossible }) = self.all.get(index(id))?;
        (0.0 < *impossible && 0.0 < *possible).then(|| 1.0 + impossible / possible)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.numbers.clear();
        self.last = None;
    }
}

/// The index of an owner by its number.
const fn index(id: u64) -> usize {
    ((id & !(OLDEST | WATCHED)) >> NUMBER_SHIFT) as usize
}
