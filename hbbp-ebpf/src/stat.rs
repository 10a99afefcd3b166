//! What the programs count about themselves: every sample that reached them, and how it ended.

/// Counters of one event on one CPU. They close: `runs` is the sum of `counted`, `full`, `raced`, `no_map` and
/// `no_stack`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EventStats {
    /// Samples that reached the program.
    pub runs: u64,
    /// Samples that were counted in a count map, or whose stack was cached or put into the ring.
    pub counted: u64,
    /// Samples refused because the count map was full, or the ring of stacks.
    pub full: u64,
    /// Samples refused because other CPUs claimed the slots in the count map that were tried.
    pub raced: u64,
    /// Samples that found no count map, or no ring.
    pub no_map: u64,
    /// Samples of an event with branch stacks that came without one, or with an empty one.
    pub no_stack: u64,
    /// Entries of branch stacks that the processor marks as never executed (AMD).
    pub wrong_path: u64,
}

const _: () = assert!(size_of::<EventStats>() == 56);

/// The end of a sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It was counted.
    Counted,
    /// The count map was full, or the ring of stacks.
    Full,
    /// Other CPUs claimed the slots that were tried.
    Raced,
    /// There was no count map, or no ring.
    NoMap,
    /// There was no branch stack.
    NoStack,
}

impl EventStats {
    /// Counts one sample.
    #[inline(always)]
    pub const fn count(&mut self, outcome: Outcome) {
        self.runs += 1;
        match outcome {
            Outcome::Counted => self.counted += 1,
            Outcome::Full => self.full += 1,
            Outcome::Raced => self.raced += 1,
            Outcome::NoMap => self.no_map += 1,
            Outcome::NoStack => self.no_stack += 1,
        }
    }

    /// The sum of two: of two CPUs, or of two events.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            counted: self.counted + other.counted,
            full: self.full + other.full,
            raced: self.raced + other.raced,
            no_map: self.no_map + other.no_map,
            no_stack: self.no_stack + other.no_stack,
            wrong_path: self.wrong_path + other.wrong_path,
        }
    }

    /// What was added since it was `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            runs: self.runs.saturating_sub(before.runs),
            counted: self.counted.saturating_sub(before.counted),
            full: self.full.saturating_sub(before.full),
            raced: self.raced.saturating_sub(before.raced),
            no_map: self.no_map.saturating_sub(before.no_map),
            no_stack: self.no_stack.saturating_sub(before.no_stack),
            wrong_path: self.wrong_path.saturating_sub(before.wrong_path),
        }
    }

    /// Samples that reached the program and were not counted.
    pub const fn lost(&self) -> u64 {
        self.full + self.raced + self.no_map + self.no_stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_are_those_of_each_count() {
        let stats = |n: u64| EventStats {
            runs: n,
            counted: 2 * n,
            full: 3 * n,
            raced: 4 * n,
            no_map: 5 * n,
            no_stack: 6 * n,
            wrong_path: 7 * n,
        };
        assert_eq!(stats(5).plus(stats(2)), stats(7));
        assert_eq!(stats(5).since(stats(2)), stats(3));
    }

    #[test]
    fn runs_is_the_sum_of_all_ends() {
        let mut stats = EventStats::default();
        for outcome in [
            Outcome::Counted,
            Outcome::NoMap,
            Outcome::Full,
            Outcome::Raced,
            Outcome::NoStack,
        ] {
            stats.count(outcome);
        }
        assert_eq!(stats.runs, stats.counted + stats.lost());
        assert_eq!((stats.full, stats.raced), (1, 1));
        assert_eq!((stats.no_map, stats.no_stack), (1, 1));
        assert_eq!(stats.plus(stats).runs, 10);
    }
}
