//! The mixes that the first screen is made of.

use hbbp_analysis::mix::{Axis, Dimension, Mix, Query, Taxonomy, Unit};

/// The mixes that the first screen is made of, each of all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Overview {
    /// By ring, module, function and command.
    pub(super) code: Mix,
    /// By mnemonic, level, packing, width and lock.
    pub(super) forms: Mix,
    /// By the groups of instructions that take long.
    pub(super) slow: Mix,
    /// Time of the kernel by function, where other figures are those of user code alone.
    pub(super) kernel_time: Option<Mix>,
}

impl Overview {
    /// The mixes, each as the answer to its query. Where these are of user code alone, the kernel has time: by function.
    pub fn new(answer: impl Fn(&Query) -> Mix, kernel_time: Option<Mix>) -> Self {
        let without_columns = |rows: Vec<Axis>| {
            answer(&Query {
                columns: Vec::new(),
                ..Query::by(rows)
            })
        };
        let by =
            |dimensions: &[Dimension]| without_columns(dimensions.iter().map(|it| (*it).into()).collect());
        let slow = Axis::named("long-latency", &Taxonomy::built_in());
        Self {
            code: by(&[
                Dimension::Ring,
                Dimension::Module,
                Dimension::Function,
                Dimension::Command,
            ]),
            forms: by(&[
                Dimension::Mnemonic,
                Dimension::Level,
                Dimension::Packing,
                Dimension::Width,
                Dimension::Lock,
            ]),
            slow: without_columns(slow.into_iter().collect()),
            kernel_time,
        }
    }

    /// What the amounts are.
    pub(super) const fn unit(&self) -> Unit {
        self.code.unit
    }
}

/// A part of all, 0 to 1; 0 of nothing.
pub(super) fn part(amount: f64, all: f64) -> f64 {
    if 0.0 < all { amount / all } else { 0.0 }
}

/// One value of the key of a row.
pub(super) fn value(key: &[String], nth: usize) -> &str {
    key.get(nth).map_or("", String::as_str)
}
