//! Residuals: the difference between estimated executions and the counter values of the sampling events.
//!
//! The sampling events count every unit, not only sampled ones, so their values have no sampling error and need no
//! further counter. A counter value covers both rings, so there is one residual for each unit and none by ring; counts
//! of classes of instructions have rings ([`super::classes`]). Where streams are scaled to both counts
//! ([`hbbp_estimate::Untied`]), the residuals are those after scaling, and the residual before scaling is reported with
//! them: of taken branches, it shows lost stacks. A residual beyond its error means that executions are missing or
//! counted twice: a run with branch stacks then misses a quality limit ([`super::quality`]).

use hbbp_analysis::mix::{Analysis, Unit};
use hbbp_estimate::{ends_near, near_only, units};
use hbbp_model::snapshot::{EventIdx, EventUnit, Snapshot};

/// A unit that was counted, and what the samples say of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Residual {
    /// Retired instructions or taken branches.
    pub(super) unit: EventUnit,
    /// Units counted, over all events of the unit that serve.
    pub(super) counted: f64,
    /// Units estimated.
    pub(super) estimated: f64,
    /// Standard error of `estimated`.
    pub(super) std_error: f64,
    /// The relative residual of the streams before they were scaled to the counts; `None` if they were not.
    pub(super) untied: Option<f64>,
}

impl Residual {
    /// Estimated over counted, less 1.
    pub(super) fn relative(&self) -> f64 {
        self.estimated / self.counted - 1.0
    }

    /// What was or may be missing, or counted twice: of taken branches, those that the stacks do not represent. Of
    /// instructions, the final residual, as streams that are too long or too short are balanced.
    pub(super) fn missing(&self) -> f64 {
        let untied = self.untied.filter(|_| self.unit == EventUnit::TakenBranches);
        untied.unwrap_or_else(|| self.relative())
    }

    /// What two standard errors do not explain of it, as a fraction.
    pub(super) fn beyond_error(&self) -> f64 {
        (self.missing().abs() - 2.0 * self.std_error / self.counted).max(0.0)
    }
}

/// The residuals of the units that were counted: instructions against the mix, taken branches against the accepted
/// streams that end at one. None where figures are no executions, or nothing was counted.
pub(super) fn residuals(snapshot: &Snapshot, analysis: &Analysis) -> Vec<Residual> {
    let counts = &analysis.counts;
    if counts.assignment.unit != Unit::Executions {
        return Vec::new();
    }
    let of = |served: &[EventIdx], unit, (estimated, std_error), untied| Residual {
        unit,
        counted: units(&snapshot.run.events, served, unit),
        estimated,
        std_error,
        untied,
    };
    let mix = analysis.mix.all;
    let near_only = near_only(&snapshot.run.events, &counts.assignment.lbr);
    let near = counts
        .streams
        .iter()
        .filter(|s| !near_only || ends_near(s, &analysis.map));
    let streams: f64 = near.map(|stream| stream.weight).sum();
    // Stacks come at a fixed period, to within one of them; by chance each may lose some of its streams.
    let n_stacks = counts.sampling.n_stacks.max(1.0);
    let taken = units(
        &snapshot.run.events,
        &counts.assignment.lbr,
        EventUnit::TakenBranches,
    );
    let untied = counts.biases.untied.map(|untied| untied.taken);
    let lost = (-untied.unwrap_or(streams / taken - 1.0)).clamp(0.0, 1.0);
    let error = 1.0 / n_stacks + (lost * (1.0 - lost) / n_stacks).sqrt();
    let all = [
        of(
            &counts.assignment.ebs,
            EventUnit::Instructions,
            (mix.amount, mix.std_error.unwrap_or(0.0)),
            counts.biases.untied.map(|untied| untied.per_branch),
        ),
        of(
            &counts.assignment.lbr,
            EventUnit::TakenBranches,
            (streams, taken * error),
            untied,
        ),
    ];
    all.into_iter()
        .filter(|residual| 0.0 < residual.counted)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_standard_errors_are_no_residual() {
        let residual = Residual {
            unit: EventUnit::Instructions,
            counted: 200.0,
            estimated: 190.0,
            std_error: 3.0,
            untied: Some(-0.2),
        };
        assert!((residual.relative() + 0.05).abs() < 1e-12);
        assert!(
            (residual.beyond_error() - 0.02).abs() < 1e-12,
            "0.05 less two times 0.015"
        );
        // The weight of stacks shows lost ones, independent of how streams are scaled.
        let taken = Residual {
            unit: EventUnit::TakenBranches,
            ..residual
        };
        assert_eq!((taken.relative(), taken.missing()), (residual.relative(), -0.2));
    }
}
