//! How much of a run each phase has, as equations of the inflow: what stacks at a fixed period know best.
//!
//! ```text
//! sum over starts of a phase of inflow = as many streams as were recorded +- off
//! ```
//!
//! Code that the processor stays in for a thousand periods has a thousand stacks, one more or one less ([`super::phases`]), while
//! flow knows of it by the few branches that lead there and away. So the balance may share out anew what a phase has, and
//! moves little from one to another.

use super::balance::Errors;
use super::graph::{FlowGraph, add, at};
use super::least_squares::Equation;
use super::phases::Phases;

/// Variance of a number of stacks that only hangs on where the first of them falls: a part f of a stack is one with probability f, of
/// variance f (1-f), which is 1/6 in the mean.
const OF_ONE: f64 = 1.0 / 6.0;

/// The equation of each phase, with the variance that it has by this inflow; none of a run with one phase.
///
/// By chance a phase has the part of the variance that [`Phases::chances`] tells. A bias shifts a stack by less than its depth, so
/// it too moves streams from one phase to another only where one is left for the other: it is taken to be off by the same part.
pub(super) fn equations(
    phases: &Phases,
    graph: &FlowGraph,
    inflow: &[f64],
    errors: Errors<'_>,
) -> Vec<Equation> {
    let n = phases.chances().len();
    if n < 2 {
        return Vec::new();
    }
    let mut equations = vec![Equation::default(); n];
    let (mut by_chance, mut off, mut one) = (vec![0.0; n], vec![0.0; n], vec![0.0_f64; n]);
    for (start, (recorded, inflow)) in graph.inflow.iter().zip(inflow).enumerate() {
        let phase = phases.of(start);
        let of_stacks = errors.of_stacks(start);
        add(&mut by_chance, phase, of_stacks * inflow);
        add(&mut off, phase, at(errors.excess, start) * inflow);
        if let (Some(equation), Some(one)) = (equations.get_mut(phase), one.get_mut(phase)) {
            equation.terms.push((start, 1.0));
            equation.value += recorded;
            *one = one.max(of_stacks);
        }
    }
    for (phase, (equation, chance)) in equations.iter_mut().zip(phases.chances()).enumerate() {
        let (one, off) = (at(&one, phase), chance * at(&off, phase));
        let variance = chance * at(&by_chance, phase) + OF_ONE * one * one + off * off;
        equation.weight = 1.0 / variance;
    }
    equations.retain(|equation| equation.weight.is_finite());
    equations
}

#[cfg(test)]
mod tests {
    use super::super::graph::tests::graph;
    use super::*;

    /// Two loops of two starts each; of the first, which is stayed in for some ten periods, stacks hold 4000 streams.
    fn two_phases(excess: &[f64]) -> Vec<Equation> {
        let streams = [(0, 0, 2000.0), (1, 1, 2000.0), (2, 2, 6000.0), (3, 3, 6000.0)];
        let branches = [
            (0, 1, 2000.0),
            (1, 0, 1996.0),
            (1, 2, 4.0),
            (2, 3, 6000.0),
            (3, 2, 5996.0),
            (3, 0, 4.0),
        ];
        let graph = graph(&streams, &branches);
        let phases = Phases::find(&graph, 80.0);
        assert_eq!([0, 1, 2, 3].map(|start| phases.of(start)), [0, 0, 1, 1]);
        let errors = Errors {
            streams_per_stack: 15.0,
            excess,
            dispersion: &[],
        };
        equations(&phases, &graph, &graph.inflow, errors)
    }

    #[test]
    fn long_phases_have_their_share_all_but_exactly() {
        let found = two_phases(&[]);
        let terms: Vec<_> = found.iter().map(|equation| equation.terms.as_slice()).collect();
        assert_eq!(terms, [[(0, 1.0), (1, 1.0)], [(2, 1.0), (3, 1.0)]]);
        let values: Vec<f64> = found.iter().map(|equation| equation.value).collect();
        assert_eq!(values, [4000.0, 12_000.0]);
        // 4000 streams in stays of 800, a tenth of which is a period: a sixtieth of what 4000 streams in stacks of 15 have by chance.
        let variance = 1.0 / found[0].weight;
        let expected = 15.0 * 4000.0 / 60.0 + 225.0 / 6.0;
        assert!(
            (variance / expected - 1.0).abs() < 0.01,
            "{variance} is not {expected}"
        );
        // A bias of three tenths is off by as much of a sixtieth of them.
        let biased = 1.0 / two_phases(&[0.3; 4])[0].weight;
        assert!((biased - variance - 400.0).abs() < 4.0, "{biased}");
    }

    #[test]
    fn one_phase_has_no_equation() {
        let graph = graph(&[(0, 0, 10.0)], &[(0, 0, 10.0)]);
        let errors = Errors {
            streams_per_stack: 15.0,
            excess: &[],
            dispersion: &[],
        };
        for phases in [Phases::default(), Phases::find(&graph, 80.0)] {
            assert_eq!(equations(&phases, &graph, &graph.inflow, errors), []);
        }
    }
}
