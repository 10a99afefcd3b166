//! Answers that hold for the addresses around them too: most counts run through few stretches of text.
//!
//! An answer says for which addresses and times it is the answer, so that a lookup from here never differs from one made
//! anew. A place in the table is found by the address and may be taken by another at any time: whoever makes many
//! addresses meet in one place gets the lookups that all would cost without it.

use std::ops::Range;

use crate::addr::Va;
use crate::snapshot::ProcessIdx;

use super::raw::TaskKey;

/// Where and when something is true of a task.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Holds {
    /// The task; [`TaskKey::KERNEL`] where it does not matter.
    pub task: TaskKey,
    /// Addresses.
    pub at: Range<Va>,
    /// Times in ns.
    pub time: Range<u64>,
}

impl Holds {
    /// The same for fewer addresses: those of `at` too.
    pub fn within(self, at: Range<Va>) -> Self {
        let at = self.at.start.max(at.start)..self.at.end.min(at.end);
        Self { at, ..self }
    }

    /// Whether it is true of this.
    pub fn of(&self, task: TaskKey, time: u64, at: Va) -> bool {
        self.at.contains(&at) && self.time.contains(&time) && self.task == task
    }
}

/// A stretch of text that is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Kept {
    /// The process image that ran.
    pub process: ProcessIdx,
    /// The first address behind the stretch.
    pub behind: Va,
}

impl Default for Kept {
    /// No stretch at all.
    fn default() -> Self {
        Self {
            process: ProcessIdx::KERNEL,
            behind: Va(0),
        }
    }
}

/// Answers by address.
#[derive(Debug)]
pub struct Answers<T> {
    /// The number of an answer by place. It may be any: an answer says itself what it holds for.
    places: Vec<u32>,
    answers: Vec<(Holds, T)>,
    /// Neighbours of so many bytes, as a power of two, meet in one place.
    near: u32,
}

/// So many places on either side take an answer over.
const REACH: u64 = 16;

impl<T: Copy> Answers<T> {
    /// Places for `n` neighbourhoods, a power of two, of addresses that share all but their lower `near` bits.
    pub fn new(n: usize, near: u32) -> Self {
        Self {
            places: vec![0; n],
            answers: Vec::new(),
            near,
        }
    }

    /// What is known of an address.
    #[inline]
    pub fn get(&self, task: TaskKey, time: u64, at: Va) -> Option<&(Holds, T)> {
        let nth = *self.places.get(self.place(task, at))?;
        let answer = self.answers.get(nth as usize)?;
        answer.0.of(task, time, at).then_some(answer)
    }

    /// Takes over an answer that was given for `at`, for all its addresses that are not far behind or before.
    pub fn add(&mut self, at: Va, holds: &Holds, answer: T) {
        if self.places.len() <= self.answers.len() {
            self.answers.clear();
        }
        let Ok(nth) = u32::try_from(self.answers.len()) else {
            return;
        };
        self.answers.push((holds.clone(), answer));
        let reach = REACH << self.near;
        let first = holds.at.start.0.max(at.0.saturating_sub(reach)) >> self.near;
        let last = holds.at.end.0.saturating_sub(1).min(at.0.saturating_add(reach)) >> self.near;
        for far in first..=last.max(at.0 >> self.near) {
            let place = self.place(holds.task, Va(far << self.near));
            if let Some(place) = self.places.get_mut(place) {
                *place = nth;
            }
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.answers.clear();
    }

    fn place(&self, task: TaskKey, at: Va) -> usize {
        let far = (at.0 >> self.near) as usize;
        (far ^ far >> 10 ^ task.tgid as usize) & self.places.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However answers displace each other, none is given for what it does not hold for.
        #[test]
        fn an_answer_is_given_only_where_it_holds(
            added in prop::collection::vec((0u32..3, 0u64..64, 1u64..9, 0u64..4), 0..30),
            asked in prop::collection::vec((0u32..3, 0u64..80, 0u64..6), 1..30),
        ) {
            let task = |tgid| TaskKey { tgid, exec_id: 0 };
            let mut answers = Answers::new(8, 2);
            let mut given: Vec<Holds> = Vec::new();
            for (tgid, start, len, from) in added {
                let holds = Holds {
                    task: task(tgid),
                    at: Va(start)..Va(start + len),
                    time: from..from + 2,
                };
                given.push(holds.clone());
                answers.add(Va(start), &holds, given.len() - 1);
                for at in start..(start + len).min(start + 16) {
                    let found = answers.get(task(tgid), from, Va(at));
                    prop_assert_eq!(found.map(|(_, nth)| *nth), Some(given.len() - 1));
                }
            }
            for (tgid, at, time) in asked {
                if let Some((_, nth)) = answers.get(task(tgid), time, Va(at)) {
                    prop_assert!(given[*nth].of(task(tgid), time, Va(at)));
                }
            }
            answers.clear();
            prop_assert!(answers.get(task(0), 0, Va(0)).is_none());
        }
    }
}
