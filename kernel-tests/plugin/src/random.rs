//! The one source of chance of the emulated PMU: the same seed gives the same run.

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016).
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// A number below `bound`; 0 when `bound` is 0 or 1.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        if bound < 2 {
            return 0;
        }
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let scrambled = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((scrambled * u64::from(bound)) >> 32) as u32
    }

    /// True with a probability of `percent` %.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        0 < percent && self.below(100) < percent
    }
}
