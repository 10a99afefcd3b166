//! Exact counts of classes of instructions, by ring, from counters that run along with the sampling events.
//!
//! There are fewer counters than classes, so that they take turns, and each count is of a part of the run. How much it would have
//! been in all of it follows from the instructions that the ring retired in that time ([`hbbp_estimate`]).

use crate::addr::Ring;

macro_rules! classes {
    ($($variant:ident, $id:literal, $sentence:literal;)*) => {
        /// A class of instructions that a processor can count when they retire.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum InstructionClass {
            $(#[doc = $sentence] $variant,)*
        }

        impl InstructionClass {
            /// All of them, in the order of reports.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its stable name in files, reports and JSON.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id),* }
            }
        }
    };
}

classes! {
    Instructions, "instructions", "Every instruction: what the others are parts of.";
    Loads, "loads", "Instructions that load from memory, those that also store included; software prefetches count.";
    Stores, "stores", "Instructions that store to memory, those that also load included.";
    Locked, "locked", "Loads with locked access: LOCK prefix, or XCHG with memory.";
    Conditional, "conditional", "Conditional branches.";
    Taken, "taken", "Conditional branches that were taken.";
    NotTaken, "not_taken", "Conditional branches that were not taken.";
    Calls, "calls", "Near calls, direct and indirect.";
    Returns, "returns", "Near returns.";
    Nops, "nops", "NOPs of any length, and ENDBR.";
    ScalarSingle, "scalar_single", "Scalar floating-point arithmetic of single precision; fused multiply-add counts twice.";
    ScalarDouble, "scalar_double", "Scalar floating-point arithmetic of double precision, likewise.";
    PackedSingle128, "packed_single_128", "Packed floating-point arithmetic of single precision in 128 bits, likewise.";
    PackedDouble128, "packed_double_128", "Of double precision in 128 bits.";
    PackedSingle256, "packed_single_256", "Of single precision in 256 bits.";
    PackedDouble256, "packed_double_256", "Of double precision in 256 bits.";
    PackedSingle512, "packed_single_512", "Of single precision in 512 bits.";
    PackedDouble512, "packed_double_512", "Of double precision in 512 bits.";
}

/// What one event counted of a class in one ring, over all CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassCount {
    /// The class.
    pub class: InstructionClass,
    /// The ring.
    pub ring: Ring,
    /// Name of the event, such as `cpu/MEM_INST_RETIRED.ALL_LOADS/`.
    pub event: String,
    /// Instructions counted.
    pub count: u64,
    /// Time in ns in which samples were taken, summed over the CPUs.
    pub enabled: u64,
    /// Time in ns of it in which this event counted.
    pub running: u64,
    /// Instructions that the ring retired while it counted; 0 if they were not counted.
    pub instructions: u64,
    /// How it differed from turn to turn.
    pub turns: Turns,
}

/// How much the counts of successive turns of an event differ: the sums of the squares of differences between neighbours. They
/// give the error of an extrapolation from the turns (Wolter, Introduction to Variance Estimation, 2007, section 8.2).
///
/// The measure is instructions of the ring, or ns where these were not counted with the class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turns {
    /// Turns in which it counted.
    pub n: u64,
    /// Sum of the squares of differences of the count.
    pub count: f64,
    /// Sum of the products of differences of count and measure.
    pub product: f64,
    /// Sum of the squares of differences of the measure.
    pub measure: f64,
}

impl InstructionClass {
    /// The class of this name; `None` for one of a newer version.
    pub(crate) fn of(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|class| class.id() == id)
    }
}

impl ClassCount {
    /// The share of the run in which it counted.
    pub fn share(&self) -> f64 {
        if 0 < self.enabled {
            (self.running as f64 / self.enabled as f64).min(1.0)
        } else {
            0.0
        }
    }

    /// What its turns are measured by: instructions of the ring, or ns.
    pub const fn measure(&self) -> u64 {
        if 0 < self.instructions {
            self.instructions
        } else {
            self.running
        }
    }

    /// Adds what the same event counted in a later part of the run.
    pub(crate) fn append(&mut self, later: &Self) {
        self.count = self.count.saturating_add(later.count);
        self.enabled = self.enabled.saturating_add(later.enabled);
        self.running = self.running.saturating_add(later.running);
        self.instructions = self.instructions.saturating_add(later.instructions);
        self.turns.append(later.turns);
    }
}

impl Turns {
    /// Adds a turn that differs by this count and measure from the one before it.
    pub fn add(&mut self, count: f64, measure: f64) {
        self.count += count * count;
        self.product += count * measure;
        self.measure += measure * measure;
    }

    /// Adds those of a later part of the run; how it begins differs from how the earlier one ended is not known.
    pub(crate) fn append(&mut self, later: Self) {
        self.n = self.n.saturating_add(later.n);
        self.count += later.count;
        self.product += later.product;
        self.measure += later.measure;
    }

    /// The variance of a turn's count about `rate` times its measure; `None` if there are too few turns.
    pub fn variance(&self, rate: f64) -> Option<f64> {
        /// Differences of neighbours that are believed: eight give the root of a variance to about a quarter.
        const ENOUGH: u64 = 8;
        let pairs = self.n.saturating_sub(1);
        // Neighbours that are independent differ by twice the variance of one.
        let squares = self.count - 2.0 * rate * self.product + rate * rate * self.measure;
        (ENOUGH <= pairs).then(|| squares.max(0.0) / (2.0 * pairs as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_names_of_their_own() {
        for class in InstructionClass::ALL {
            assert_eq!(InstructionClass::of(class.id()), Some(*class));
        }
        assert_eq!(InstructionClass::of("of a newer version"), None);
    }

    #[test]
    fn turns_that_follow_their_measure_have_no_variance() {
        let mut turns = Turns::default();
        let measures = [10.0, 30.0, 20.0, 60.0, 10.0, 40.0, 30.0, 20.0, 70.0, 10.0];
        turns.n = measures.len() as u64;
        for pair in measures.windows(2) {
            turns.add((pair[1] - pair[0]) * 0.5, pair[1] - pair[0]);
        }
        assert!(turns.variance(0.5).unwrap() < 1e-9);
        assert!(turns.variance(0.4).unwrap() > 1.0);
        turns.n = 3;
        assert_eq!(turns.variance(0.5), None);
    }

    #[test]
    fn a_share_is_of_the_time_that_was_sampled() {
        let mut count = ClassCount {
            class: InstructionClass::Loads,
            ring: Ring::User,
            event: String::new(),
            count: 7,
            enabled: 100,
            running: 25,
            instructions: 0,
            turns: Turns::default(),
        };
        assert_eq!((count.share(), count.measure()), (0.25, 25));
        count.append(&ClassCount {
            instructions: 50,
            running: 75,
            ..count.clone()
        });
        assert_eq!((count.count, count.share(), count.measure()), (14, 0.5, 50));
        count.enabled = 0;
        assert_eq!(count.share(), 0.0);
    }
}
