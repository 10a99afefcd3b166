//! A predictor of branches, as far as a burst needs one: which of its branches a processor would foresee.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Bits of the history that a prediction looks back at; the longest that is known of a branch predicts it, as in A. Seznec, P.
/// Michaud: A case for (partially) tagged geometric history length branch prediction, 2006.
const HISTORIES: [u64; 2] = [12, 4];
/// Most entries, of the bursts of a process together.
const MOST: usize = 1 << 16;

/// Where an entry is: the branch, the bits of the history, and the history.
type Place = (u64, u64, u64);

/// Predictions by a branch and what was before it. A branch that is new there is foreseen: a processor has seen it before the
/// burst.
#[derive(Debug, Default)]
pub(crate) struct Predictor {
    directions: HashMap<Place, u8, FixedState>,
    targets: HashMap<Place, u64, FixedState>,
    history: u64,
}

impl Predictor {
    /// Whether a conditional branch is foreseen.
    pub(crate) fn direction(&mut self, at: u64, is_taken: bool) -> bool {
        if MOST <= self.directions.len() {
            self.directions.clear();
        }
        let places = self.places(at);
        let known = places.iter().find_map(|place| self.directions.get(place));
        let is_foreseen = known.is_none_or(|counter| (2 <= *counter) == is_taken);
        for place in places {
            let counter = self
                .directions
                .entry(place)
                .or_insert(if is_taken { 2 } else { 1 });
            *counter = if is_taken {
                (*counter + 1).min(3)
            } else {
                counter.saturating_sub(1)
            };
        }
        self.history = self.history << 1 | u64::from(is_taken);
        is_foreseen
    }

    /// Whether the target of an indirect branch is foreseen.
    pub(crate) fn target(&mut self, at: u64, to: u64) -> bool {
        if MOST <= self.targets.len() {
            self.targets.clear();
        }
        let places = self.places(at);
        let known = places.iter().find_map(|place| self.targets.get(place));
        let is_foreseen = known.is_none_or(|known| *known == to);
        for place in places {
            self.targets.insert(place, to);
        }
        self.history = self.history << 2 ^ to >> 2 & 3;
        is_foreseen
    }

    fn places(&self, at: u64) -> [Place; 2] {
        HISTORIES.map(|bits| (at, bits, self.history & ((1 << bits) - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_foreseen_and_chance_is_not() {
        let wrong = |direction: &mut dyn FnMut(u64) -> bool| {
            let mut predictor = Predictor::default();
            let unforeseen = |n: &u64| !predictor.direction(1, direction(*n));
            (0..2000).filter(unforeseen).count()
        };
        assert!(wrong(&mut |n| n % 9 == 0) < 20);
        let mut state = 1_u64;
        let mut chance = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 63 == 1
        };
        assert!(600 < wrong(&mut chance));
    }

    #[test]
    fn targets_that_alternate_are_foreseen() {
        let mut predictor = Predictor::default();
        let unforeseen = |n: &u64| !predictor.target(1, 0x1000 + n % 2 * 4);
        assert!((0..1000).filter(unforeseen).count() < 10);
    }
}
