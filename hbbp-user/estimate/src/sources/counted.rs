//! What a method counts of each block and process image, and what it has of each ring.

use crate::sums::{merged, over};
use hbbp_code::blocks::{BlockId, BlockMap};
use hbbp_code::locate::TextIdx;
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{ProcessIdx, Snapshot};

/// Counts of one method in one block by one process image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counted {
    pub(crate) block: BlockId,
    pub(crate) process: ProcessIdx,
    /// Samples, or streams.
    pub(crate) hits: f64,
    /// In the unit of the estimate.
    pub(crate) weight: f64,
}

/// Sums counts of the same block and process; the result is sorted by (block, process).
pub(crate) fn summed(counts: Vec<Counted>) -> Vec<Counted> {
    let add = |kept: &mut Counted, next: &Counted| {
        kept.hits += next.hits;
        kept.weight += next.weight;
    };
    merged(counts, |c| (c.block, c.process), add)
}

/// What a method has in all: whether in each ring, and what one of its hits weighs.
#[derive(Default)]
pub(crate) struct Supply {
    kernel: bool,
    user: bool,
    hits: f64,
    weight: f64,
}

impl Supply {
    pub(crate) fn of(counts: &[Counted], ring: impl Fn(BlockId) -> Ring) -> Self {
        let mut supply = Self::default();
        for counted in counts {
            match ring(counted.block) {
                Ring::Kernel => supply.kernel = true,
                Ring::User => supply.user = true,
            }
            supply.hits += counted.hits;
            supply.weight += counted.weight;
        }
        supply
    }

    pub(crate) const fn serves(&self, ring: Ring) -> bool {
        match ring {
            Ring::Kernel => self.kernel,
            Ring::User => self.user,
        }
    }

    /// The hits that a weight stands for.
    pub(crate) fn hits_of(&self, weight: f64) -> f64 {
        over(weight * self.hits, self.weight)
    }
}

/// The ring of a text range, by its module.
pub fn ring(snapshot: &Snapshot, map: &BlockMap, text: TextIdx) -> Ring {
    let module = map
        .text(text)
        .and_then(|t| snapshot.modules.get(t.module.0 as usize));
    if module.is_some_and(|m| m.kind.is_kernel()) {
        Ring::Kernel
    } else {
        Ring::User
    }
}
