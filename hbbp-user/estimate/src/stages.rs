//! Which stages of an estimate run: all of them, unless a rule file leaves some out (`without STAGE`).
//!
//! `cargo xtask vm ablation` evaluates recorded profiles without each of them and prints what each is worth.

macro_rules! stages {
    ($($variant:ident, $name:literal, $sentence:literal;)*) => {
        /// A stage that an estimate can do without.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Stage {
            $(#[doc = $sentence] $variant,)*
        }

        impl Stage {
            /// All of them, in the order of the flow.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name in rule files and tables.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

stages! {
    Stacks, "stacks", "Uses branch stacks; without it eventing IPs serve alone.";
    Landing, "landing", "Traces eventing IPs that serve alone back to what triggered them; without it they count where they landed.";
    Weights, "weights", "Weighs the stacks that another event than taken branches triggered; without it each counts as one.";
    Late, "late", "Weighs streams for the time between the overflow of an imprecise event and the reading of its stack ([`super::flow`]).";
    Balance, "balance", "Reweights streams so that flow is conserved ([`super::flow`]).";
    Chance, "chance", "Balances streams of runs without a bias as well, as flow tells of what is due to chance.";
    ReturnSites, "return_sites", "Takes what returns after a call from the call itself, not from the recorded returns.";
    Samples, "samples", "Takes EBS samples as a further measurement in the balance.";
    Skid, "skid", "Lets samples skid from block to block in the balance; without it their blocks are taken as exact.";
    Times, "times", "Expects samples in the balance where they land by the times of instructions, which are fitted to them ([`super::flow::landed`]).";
    BiasVariance, "bias_variance", "Counts the bias of the oldest slot into the variances of the balance.";
    Totals, "totals", "Balances streams to the mean length that retired instructions and taken branches have, as counted ([`super::totals`]).";
    Fallback, "fallback", "Uses the other method where the chosen one saw nothing although it should have.";
    Rings, "rings", "Scales the streams of each ring to its taken branches, where each has branch stacks by an event of its own.";
    Classes, "classes", "Ties the estimates to the counts of classes of instructions.";
    Bootstrap, "bootstrap", "Takes standard errors from bootstrap replicates; without it all streams of a stack count as one.";
    Phases, "phases", "Knows that samples at a fixed period leave nothing to chance between long phases of a run.";
}

/// The stages that run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stages {
    /// One bit for each stage that is left out.
    left_out: u32,
}

impl Stages {
    /// All but `stage`, of those that ran before.
    #[must_use]
    pub const fn without(self, stage: Stage) -> Self {
        Self {
            left_out: self.left_out | 1 << stage as u32,
        }
    }

    /// All that ran before, and `stage`.
    #[must_use]
    pub(crate) const fn with(self, stage: Stage) -> Self {
        Self {
            left_out: self.left_out & !(1 << stage as u32),
        }
    }

    /// Whether a stage runs.
    pub(crate) const fn run(self, stage: Stage) -> bool {
        self.left_out & 1 << stage as u32 == 0
    }
}

impl Stage {
    /// The stage of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|stage| stage.name() == name)
    }
}
