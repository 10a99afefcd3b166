//! The ways that lead on from each place, and what share of the flow there takes each: recorded, and as it is found.
//!
//! Where there are several, what one way took too often the others took too rarely: nothing is lost in a choice. So of its ways all but one
//! have a deviation, which is unknown, and that one has what they leave. Deviations are in units of their standard deviations.

use super::super::errors::FEWEST;
use super::super::graph::Edge;
use super::super::least_squares::Equation;
use crate::sums::{at, merged};

/// What rounding leaves of a share.
const NONE: f64 = 1e-9;

/// Ways of a choice from which on none follows from the others, as it would then be as many terms wherever it is. Choices of 38 loads
/// have 190 at most.
const MANY: usize = 256;

/// The ways from starts to the branches that end their streams, or from branches to their targets.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// With their recorded shares for amounts.
    pub(super) edges: Vec<Edge>,
    /// As the last round found them.
    pub(super) shares: Vec<f64>,
    /// How often each origin chose, at the last weighing.
    times: Vec<f64>,
    /// How often each was chosen then, and the standard deviation of that.
    pub(super) flows: Vec<(f64, f64)>,
    pub(super) choices: Vec<Choice>,
    /// For each way how it is chosen; `None` if it is certain.
    chosen: Vec<Option<Chosen>>,
}

/// How a way is chosen.
#[derive(Clone, Copy, Debug)]
enum Chosen {
    /// With a deviation of its own, which is this unknown.
    Freely(usize),
    /// Where none of the others in the choice of this number is.
    Last(usize),
}

/// The ways from one place, where there are several.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Choice {
    /// Ways with a deviation of their own.
    pub(super) free: Vec<usize>,
    /// The way that takes what these leave; `None` if that leads to what is not known, or ways are [`MANY`].
    pub(super) last: Option<usize>,
    /// Whether its ways are all that there are.
    pub(super) is_complete: bool,
    /// The unknown that is the first deviation; the others follow.
    pub(super) first: usize,
}

impl Choice {
    /// The ways with a deviation, and the number of each deviation among the unknowns.
    fn deviations(&self) -> impl Iterator<Item = (usize, usize)> {
        self.free.iter().copied().zip(self.first..)
    }
}

impl Ways {
    /// Those of the same origin are one choice; each with a share of 1 is certain. Deviations are unknown from the `first` on.
    pub(super) fn new(edges: Vec<Edge>, n_origins: usize, mut first: usize) -> Self {
        let mut choices: Vec<Choice> = Vec::new();
        choices.resize_with(n_origins, Choice::default);
        for (n, edge) in edges.iter().enumerate() {
            if let Some(choice) = choices.get_mut(edge.from).filter(|_| edge.amount < 1.0 - NONE) {
                choice.free.push(n);
            }
        }
        choices.retain(|choice| !choice.free.is_empty());
        let share = |n: &usize| edges.get(*n).map_or(0.0, |edge| edge.amount);
        let mut chosen = vec![None; edges.len()];
        for (number, choice) in choices.iter_mut().enumerate() {
            let all: f64 = choice.free.iter().map(share).sum();
            choice.free.sort_by(|a, b| share(a).total_cmp(&share(b)));
            let n_ways = choice.free.len();
            choice.is_complete = 1.0 - NONE < all;
            choice.last = choice.free.pop_if(|_| choice.is_complete && n_ways < MANY);
            choice.first = first;
            first += choice.free.len();
            let free = choice
                .deviations()
                .map(|(way, unknown)| (way, Chosen::Freely(unknown)));
            let last = choice.last.map(|way| (way, Chosen::Last(number)));
            for (way, how) in free.chain(last) {
                chosen.get_mut(way).into_iter().for_each(|it| *it = Some(how));
            }
        }
        Self {
            shares: edges.iter().map(|edge| edge.amount).collect(),
            times: Vec::new(),
            flows: vec![(0.0, 0.0); edges.len()],
            edges,
            choices,
            chosen,
        }
    }

    /// Deviations that are unknown.
    pub(super) fn n_deviations(&self) -> usize {
        self.choices.iter().map(|choice| choice.free.len()).sum()
    }

    /// How often each way is chosen, by how often each origin chooses, with its variance by that.
    pub(super) fn weigh(&mut self, times: Vec<f64>, variance: impl Fn(&Edge, f64) -> f64) {
        for ((edge, share), flow) in self.edges.iter().zip(&self.shares).zip(&mut self.flows) {
            let often = share * at(&times, edge.from);
            *flow = (often, variance(edge, often.max(FEWEST)).sqrt());
        }
        self.times = times;
    }

    /// Adds what is known of the deviations: each is what was recorded, less what the shares are by now, in its standard deviation.
    pub(super) fn priors(&self, equations: &mut Vec<Equation>) {
        for choice in &self.choices {
            let chosen = self.times(choice);
            let (mut last, mut recorded, mut found) = (Equation::default(), 1.0, 1.0);
            for (way, unknown) in choice.deviations() {
                let (Some(edge), Some(share)) = (self.edges.get(way), self.shares.get(way)) else {
                    continue;
                };
                let (_, deviation) = self.flow(way);
                equations.push(Equation {
                    terms: vec![(unknown, 1.0)],
                    value: (edge.amount - share) * chosen / deviation,
                    weight: 1.0,
                });
                last.terms.push((unknown, -deviation));
                (recorded, found) = (recorded - edge.amount, found - share);
            }
            let of_rest = (found * chosen).max(FEWEST);
            let deviation = choice.last.map_or(of_rest.sqrt(), |way| self.flow(way).1);
            last.value = (recorded - found) * chosen;
            last.weight = 1.0 / (deviation * deviation);
            equations.push(last);
        }
    }

    /// The shares that follow from what was solved for.
    pub(super) fn found(&mut self, solved: &[f64]) {
        for choice in &self.choices {
            let mut taken: Vec<(usize, f64)> = Vec::with_capacity(choice.free.len() + 1);
            let (mut moved, mut shares) = (0.0, 0.0);
            for (way, unknown) in choice.deviations() {
                let (often, deviation) = self.flow(way);
                let by = deviation * at(solved, unknown);
                moved += by;
                shares += at(&self.shares, way);
                taken.push((way, (often + by).max(0.0)));
            }
            let left = match choice.is_complete && choice.last.is_none() {
                true => 0.0,
                false => ((1.0 - shares) * self.times(choice) - moved).max(0.0),
            };
            let all = taken.iter().map(|(_, often)| often).sum::<f64>() + left;
            taken.extend(choice.last.map(|way| (way, left)));
            for (way, often) in taken {
                if let Some(share) = self.shares.get_mut(way).filter(|_| 0.0 < all) {
                    *share = often / all;
                }
            }
        }
    }

    /// Terms of the unknowns that make a sum of ways, each times a factor: the flow of a way is its share of the inflow of its origin, and
    /// its deviation. Where a sum has all ways of a choice alike, their deviations cancel.
    pub(super) fn terms(&self, of_ways: &[(usize, f64)]) -> Vec<(usize, f64)> {
        let mut terms: Vec<(usize, f64)> = Vec::with_capacity(of_ways.len());
        for (way, factor) in of_ways {
            let Some(edge) = self.edges.get(*way) else {
                continue;
            };
            terms.push((edge.from, factor * at(&self.shares, *way)));
            let moved = |way, by| by * self.flow(way).1;
            match self.chosen.get(*way).copied().flatten() {
                None => {}
                Some(Chosen::Freely(unknown)) => terms.push((unknown, moved(*way, *factor))),
                Some(Chosen::Last(number)) => {
                    let others = self.choices.get(number).into_iter().flat_map(Choice::deviations);
                    terms.extend(others.map(|(other, unknown)| (unknown, moved(other, -factor))));
                }
            }
        }
        let mut terms = merged(terms, |(unknown, _)| *unknown, |kept, next| kept.1 += next.1);
        let most = terms.iter().map(|(_, factor)| factor.abs()).fold(0.0, f64::max);
        terms.retain(|(_, factor)| NONE * most < factor.abs());
        terms
    }

    /// Calls back for each deviation, with the end of a way that it moves flow to, or from, and by how much.
    pub(super) fn moves(&self, mut moves: impl FnMut(usize, usize, f64)) {
        for choice in &self.choices {
            for (way, unknown) in choice.deviations() {
                let (_, deviation) = self.flow(way);
                for (way, moved) in [(Some(way), deviation), (choice.last, -deviation)] {
                    if let Some(edge) = way.and_then(|way| self.edges.get(way)) {
                        moves(unknown, edge.to, moved);
                    }
                }
            }
        }
    }

    /// How often one of the ways of a choice was chosen.
    fn times(&self, choice: &Choice) -> f64 {
        let way = choice.free.first().and_then(|way| self.edges.get(*way));
        way.map_or(0.0, |way| at(&self.times, way.from))
    }

    fn flow(&self, way: usize) -> (f64, f64) {
        self.flows.get(way).copied().unwrap_or((0.0, 1.0))
    }
}
