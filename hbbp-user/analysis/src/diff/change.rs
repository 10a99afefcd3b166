//! What became of a key from one profile to the other: its figures, and the change between them.

use super::significance::LEVEL;

/// A figure with its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    /// The figure.
    pub value: f64,
    /// Its standard error. Of a key that a profile does not have, the error of one sample.
    pub std_error: f64,
}

/// What became of one key from the first profile to the second.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// One value for each axis.
    pub key: Vec<String>,
    /// Share of all in both profiles, 0 to 1.
    pub shares: [Figure; 2],
    /// Amount per unit of work in both profiles, if one was requested.
    pub amounts: Option<[Figure; 2]>,
    /// Second less first: of amounts where there are any, else of shares.
    pub change: Figure,
    /// Significance of the change, adjusted for the number of rows: see [`LEVEL`].
    pub adjusted_p: f64,
}

impl Change {
    /// Whether the change is more than chance explains.
    pub fn is_significant(&self) -> bool {
        self.adjusted_p <= LEVEL
    }
}

/// The second figure less the first, which are independent.
pub fn change([a, b]: [Figure; 2]) -> Figure {
    Figure {
        value: b.value - a.value,
        std_error: a.std_error.hypot(b.std_error),
    }
}
