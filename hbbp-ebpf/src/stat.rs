//! What the programs count about themselves: every sample that reached them, and how it ended.

/// Counters of one event on one CPU. They close: `runs` is the sum of all others.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EventStats {
    /// Samples that reached the program.
    pub runs: u64,
    /// Samples that were counted in a bank.
    pub counted: u64,
    /// Samples refused because the bank was full (E2BIG).
    pub full: u64,
    /// Samples refused because the lock of their bucket was held (EBUSY, EDEADLK, ETIMEDOUT).
    pub busy: u64,
    /// Samples refused with another error.
    pub refused: u64,
    /// Samples that found no bank.
    pub no_bank: u64,
}

const _: () = assert!(size_of::<EventStats>() == 48);

/// The end of a sample, as the map's answer tells it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It was counted.
    Counted,
    /// The bank was full.
    Full,
    /// The lock of its bucket was held.
    Busy,
    /// Another error.
    Refused,
    /// There was no bank.
    NoBank,
}

impl Outcome {
    /// The end of a sample whose insertion failed with a negative errno (`include/uapi/asm-generic/errno.h`).
    #[inline(always)]
    pub const fn of_errno(errno: i32) -> Self {
        match -errno {
            7 => Self::Full,
            16 | 35 | 110 => Self::Busy,
            _ => Self::Refused,
        }
    }
}

impl EventStats {
    /// Counts one sample.
    #[inline(always)]
    pub const fn count(&mut self, outcome: Outcome) {
        self.runs += 1;
        match outcome {
            Outcome::Counted => self.counted += 1,
            Outcome::Full => self.full += 1,
            Outcome::Busy => self.busy += 1,
            Outcome::Refused => self.refused += 1,
            Outcome::NoBank => self.no_bank += 1,
        }
    }

    /// The sum of two: of two CPUs, or of two events.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            counted: self.counted + other.counted,
            full: self.full + other.full,
            busy: self.busy + other.busy,
            refused: self.refused + other.refused,
            no_bank: self.no_bank + other.no_bank,
        }
    }

    /// Samples that reached the program and were not counted.
    pub const fn lost(&self) -> u64 {
        self.full + self.busy + self.refused + self.no_bank
    }
}

#[cfg(feature = "user")]
// SAFETY: repr(C), only u64 fields, any bit pattern is a value.
unsafe impl aya::Pod for EventStats {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_is_the_sum_of_all_ends() {
        let mut stats = EventStats::default();
        for outcome in [Outcome::Counted, Outcome::NoBank, Outcome::of_errno(-7), Outcome::of_errno(-16)] {
            stats.count(outcome);
        }
        stats.count(Outcome::of_errno(-22));
        assert_eq!(stats.runs, stats.counted + stats.lost());
        assert_eq!((stats.full, stats.busy, stats.refused, stats.no_bank), (1, 1, 1, 1));
        assert_eq!(stats.plus(stats).runs, 10);
    }
}
