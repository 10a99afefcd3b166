//! What the programs count about themselves: every sample that reached them, and how it ended.

use crate::refusal::Refusal;

/// Counters of one event on one CPU. They close: `runs` is the sum of all others.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EventStats {
    /// Samples that reached the program.
    pub runs: u64,
    /// Samples that were counted in a bank.
    pub counted: u64,
    /// Samples refused because the bank was full.
    pub full: u64,
    /// Samples that found no bank.
    pub no_bank: u64,
    /// Samples of an event with branch stacks that came without one, or with an empty one.
    pub no_stack: u64,
}

const _: () = assert!(size_of::<EventStats>() == 40);

/// What became of the entries of an event's branch stacks on one CPU. Two sums close:
/// `entries` = `wrong_path` + sound ones, and sound ones - `stacks` = `streams` + all refusals of streams.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StackStats {
    /// Stacks with at least one sound entry.
    pub stacks: u64,
    /// Entries that were not zero.
    pub entries: u64,
    /// Entries that the processor marks as never executed (AMD).
    pub wrong_path: u64,
    /// Streams that were counted.
    pub streams: u64,
    /// Streams made of a repeated newest entry (Skylake).
    pub duplicated: u64,
    /// Streams that end before they start.
    pub backward: u64,
    /// Streams between the rings.
    pub crossing: u64,
    /// Streams longer than [`crate::refusal::MAX_STREAM`].
    pub long: u64,
    /// User streams older than a context switch: they belong to another process.
    pub switched: u64,
    /// Of the counted streams, those that the bank refused when they left the combining table.
    pub refused: u64,
    /// Branches in the oldest slot that the bank refused likewise.
    pub refused_oldest: u64,
}

const _: () = assert!(size_of::<StackStats>() == 88);

impl StackStats {
    /// Counts a refused stream.
    #[inline(always)]
    pub const fn refuse(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Crossing => self.crossing += 1,
            Refusal::Backward => self.backward += 1,
            Refusal::Long => self.long += 1,
            Refusal::Switched => self.switched += 1,
        }
    }

    /// The sum of two.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            stacks: self.stacks + other.stacks,
            entries: self.entries + other.entries,
            wrong_path: self.wrong_path + other.wrong_path,
            streams: self.streams + other.streams,
            duplicated: self.duplicated + other.duplicated,
            backward: self.backward + other.backward,
            crossing: self.crossing + other.crossing,
            long: self.long + other.long,
            switched: self.switched + other.switched,
            refused: self.refused + other.refused,
            refused_oldest: self.refused_oldest + other.refused_oldest,
        }
    }

    /// Streams that were discarded, for whatever reason.
    pub const fn discarded(&self) -> u64 {
        self.duplicated + self.backward + self.crossing + self.long + self.switched
    }
}

/// The end of a sample, as the map's answer tells it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It was counted.
    Counted,
    /// The bank was full.
    Full,
    /// There was no bank.
    NoBank,
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
            Outcome::NoBank => self.no_bank += 1,
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
            no_bank: self.no_bank + other.no_bank,
            no_stack: self.no_stack + other.no_stack,
        }
    }

    /// Samples that reached the program and were not counted.
    pub const fn lost(&self) -> u64 {
        self.full + self.no_bank + self.no_stack
    }
}

#[cfg(feature = "user")]
mod pod {
    // SAFETY: repr(C), only u64 fields, any bit pattern is a value.
    unsafe impl aya::Pod for super::EventStats {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::StackStats {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_is_the_sum_of_all_ends() {
        let mut stats = EventStats::default();
        for outcome in [Outcome::Counted, Outcome::NoBank, Outcome::Full, Outcome::NoStack] {
            stats.count(outcome);
        }
        assert_eq!(stats.runs, stats.counted + stats.lost());
        assert_eq!((stats.full, stats.no_bank, stats.no_stack), (1, 1, 1));
        assert_eq!(stats.plus(stats).runs, 8);
    }
}
