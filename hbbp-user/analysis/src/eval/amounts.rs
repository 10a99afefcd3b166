//! What an evaluation compares: executed instructions, exact and by each method of estimation, and the functions that they are in.

use hbbp_model::addr::Ring;

/// A method of estimation, as in the columns of the paper's Figure 2.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// Eventing IPs alone.
    Ebs,
    /// Streams of branch stacks alone.
    Lbr,
    /// For each block the method that the rule chooses.
    Hybrid,
}

/// Executed instructions: exact, and by each method.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts {
    /// Exact.
    pub reference: f64,
    /// By [`Method::Ebs`].
    pub ebs: f64,
    /// By [`Method::Lbr`].
    pub lbr: f64,
    /// By [`Method::Hybrid`].
    pub hybrid: f64,
}

/// A function: the finest location that groups distinguish.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FunctionKey {
    /// Their ring.
    pub ring: Ring,
    /// Name of the module; [`UNKNOWN`] if it is not in the profile, or the reference does not say it.
    pub module: String,
    /// Name of the function; the module name in brackets if no symbol covers it.
    pub function: String,
}

/// Module of instructions that are in no mapping of the profile.
pub const UNKNOWN: &str = "[unknown]";

/// Mnemonic of instructions whose code is in no text of the profile.
pub(crate) const NO_TEXT: &str = "[no text]";

/// A count as an amount; beyond 2^53 it is rounded.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of branches and instructions of a run stay far below 2^53"
)]
pub fn amount(count: u64) -> f64 {
    count as f64
}

impl Method {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Hybrid, Self::Lbr, Self::Ebs];

    /// Name of its column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ebs => "EBS",
            Self::Lbr => "LBR",
            Self::Hybrid => "hybrid",
        }
    }
}

impl Amounts {
    /// The estimate of a method.
    pub const fn by(&self, method: Method) -> f64 {
        match method {
            Method::Ebs => self.ebs,
            Method::Lbr => self.lbr,
            Method::Hybrid => self.hybrid,
        }
    }

    /// The shares of these in totals, as fractions; 0 of nothing.
    #[must_use]
    pub fn shares(&self, totals: &Self) -> Self {
        let share = |of: f64, all: f64| if 0.0 < all { of / all } else { 0.0 };
        Self {
            reference: share(self.reference, totals.reference),
            ebs: share(self.ebs, totals.ebs),
            lbr: share(self.lbr, totals.lbr),
            hybrid: share(self.hybrid, totals.hybrid),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.reference += other.reference;
        self.ebs += other.ebs;
        self.lbr += other.lbr;
        self.hybrid += other.hybrid;
    }

    pub(super) fn scale(&mut self, by: &Self) {
        self.reference *= by.reference;
        self.ebs *= by.ebs;
        self.lbr *= by.lbr;
        self.hybrid *= by.hybrid;
    }
}
