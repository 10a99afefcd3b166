//! Differences of two profiles: shares, or amounts per unit of work, with their significance.
//!
//! Rows are matched by their keys. Modules with one build id are one module, whatever their paths; modules that have only
//! the path in common are the same program in another build, whose functions are matched by name.

mod change;
mod gate;
mod matching;
mod significance;
mod work;

use std::collections::BTreeMap;

pub use change::{Change, Figure, change};
pub use gate::{Condition, ConditionError, Gate, Measure};
pub use matching::Modules;
pub use significance::LEVEL;
pub use work::{Per, PerError, Work};

use crate::mix::{Axis, Cell, Mix, Unit};

/// The difference of two profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// The axes of the keys.
    pub by: Vec<Axis>,
    /// What the amounts of both profiles are.
    pub unit: Unit,
    /// Keys that were compared.
    pub compared: usize,
    /// Those that differ, the greatest change first.
    pub changes: Vec<Change>,
}

/// What one profile has of each key: its mix, what its keys are called in the other profile, and its units of work.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The mix by the axes of the difference.
    pub mix: &'a Mix,
    /// Samples or branch stacks that the mix rests on.
    pub samples: f64,
    /// Names of keys.
    pub modules: &'a Modules,
    /// Units of work, where amounts are asked for.
    pub work: Option<Work>,
}

/// The difference of two profiles, whose mixes answer the same query in the same unit.
pub fn diff(sides: [Side<'_>; 2]) -> Diff {
    let [first, second] = sides;
    let mut cells: BTreeMap<Vec<String>, [Option<Cell>; 2]> = BTreeMap::new();
    for (nth, side) in sides.iter().enumerate() {
        for row in &side.mix.rows {
            let key = side.modules.key(&side.mix.rows_by, &row.key);
            let slot = cells.entry(key).or_default().get_mut(nth);
            if let Some(slot) = slot {
                // Two modules with one build id have one name in a difference.
                *slot = Some(slot.map_or(row.total, |cell| cell.plus(row.total)));
            }
        }
    }
    let compared = cells.len();
    let mut changes: Vec<Change> = cells
        .into_iter()
        .map(|(key, [a, b])| {
            let shares = [first.share(a), second.share(b)];
            let amounts = first.amount(a).zip(second.amount(b)).map(|(a, b)| [a, b]);
            let change = change(amounts.unwrap_or(shares));
            Change {
                key,
                shares,
                amounts,
                change,
                adjusted_p: significance::p_value(change.value, change.std_error),
            }
        })
        .collect();
    let p: Vec<f64> = changes.iter().map(|change| change.adjusted_p).collect();
    for (change, adjusted) in changes.iter_mut().zip(significance::adjusted(&p)) {
        change.adjusted_p = adjusted;
    }
    changes.retain(|change| change.change.value != 0.0);
    changes.sort_by(|a, b| {
        let size = |change: &Change| change.change.value.abs();
        size(b).total_cmp(&size(a)).then_with(|| a.key.cmp(&b.key))
    });
    Diff {
        by: first.mix.rows_by.clone(),
        unit: first.mix.unit,
        compared,
        changes,
    }
}

impl Side<'_> {
    /// Share of all that a cell has. The total is that of all samples, which is as good as given.
    pub fn share(&self, cell: Option<Cell>) -> Figure {
        self.over(cell, self.mix.all.amount)
    }

    /// Amount of a cell per unit of work; `None` if no work is requested.
    pub fn amount(&self, cell: Option<Cell>) -> Option<Figure> {
        let work = self.work?;
        let amount = self.over(cell, work.units.value);
        // The relative errors of a quotient of independent estimates add up in squares.
        let of_work = if 0.0 < work.units.value {
            amount.value * work.units.std_error / work.units.value
        } else {
            0.0
        };
        Some(Figure {
            value: amount.value,
            std_error: amount.std_error.hypot(of_work),
        })
    }

    fn over(&self, cell: Option<Cell>, whole: f64) -> Figure {
        if whole <= 0.0 {
            return Figure::default();
        }
        let amount = cell.map_or(0.0, |cell| cell.amount);
        // What corrections may have left is alike in both runs.
        let error = cell.and_then(|cell| cell.by_chance).filter(|error| 0.0 < *error);
        Figure {
            value: amount / whole,
            std_error: error.unwrap_or_else(|| self.one_sample()) / whole,
        }
    }

    /// The amount that one sample represents: the error of what was not seen.
    fn one_sample(&self) -> f64 {
        if 0.0 < self.samples {
            self.mix.all.amount / self.samples
        } else {
            0.0
        }
    }
}
