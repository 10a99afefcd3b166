//! How streams and branches follow each other: the chain that stacks are cut from.
//!
//! Places where streams start lead by the streams to branches, and branches by their recorded targets to places.
//! A return leads to the place behind the call that was made, and not to whichever of all callers ([`super::calls`]).

use std::collections::HashMap;

use super::calls::Calls;
use super::solve::LONG;
use super::{Roles, Stream};
use crate::blocks::BlockMap;
use crate::locate::{Located, Location, TextIdx};
use crate::snapshot::ProcessIdx;

/// A share of what is at one place that goes to another.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) share: f64,
}

/// How streams and branches follow each other.
pub(super) struct Chain {
    /// For each stream the place that it starts at.
    pub(super) starts: Vec<usize>,
    /// The streams that start at each place.
    pub(super) arrivals: Vec<f64>,
    /// Those of them that no recorded branch led to, such as what user code calls of the kernel.
    pub(super) unexplained: Vec<f64>,
    /// From where streams start to the branches that end them.
    pub(super) streams: Vec<Share>,
    /// From branches to where streams start.
    pub(super) branches: Vec<Share>,
    pub(super) n_branches: usize,
}

impl Chain {
    /// `None` where no targets of branches were recorded.
    pub(super) fn new(located: &Located, map: &BlockMap, roles: &Roles, streams: &[Stream]) -> Option<Self> {
        let mut places = Numbers::default();
        let mut sources = Numbers::default();
        let starts: Vec<usize> = streams
            .iter()
            .map(|s| places.number((s.text, s.first, s.process)))
            .collect();
        let mut arrivals = vec![0.0; places.0.len()];
        for (stream, start) in streams.iter().zip(&starts) {
            add(&mut arrivals, *start, stream.hits as f64);
        }
        let ended = streams.iter().zip(&starts).map(|(stream, from)| {
            let to = sources.number((stream.text, stream.source, stream.process));
            let all = arrivals.get(*from).copied().unwrap_or(1.0);
            let (from, share) = (*from, stream.hits as f64 / all);
            Share { from, to, share }
        });
        let ended: Vec<Share> = ended.collect();
        let n_branches = sources.0.len();
        let mut branches = Vec::new();
        let mut led = vec![0.0; n_branches];
        let mut unexplained = arrivals.clone();
        for branch in located.branches.iter().filter(|b| roles.lbr.contains(&b.event)) {
            let ends = branch
                .to
                .and_then(|to| Some((spot(map, branch.from)?, spot(map, to)?)));
            let Some((from, to)) = ends else { continue };
            let (Some(from), Some(to)) = (
                sources.find(from, branch.process),
                places.find(to, branch.process),
            ) else {
                continue;
            };
            let hits = branch.hits as f64;
            add(&mut led, from, hits);
            add(&mut unexplained, to, -hits);
            branches.push(Share {
                from,
                to,
                share: hits,
            });
        }
        if branches.is_empty() {
            return None;
        }
        let calls = Calls::new(map, &places, &sources, &ended, &arrivals, &branches);
        branches.retain(|b| !(calls.returns.contains(&b.from) && calls.calls.contains_key(&b.to)));
        for branch in &mut branches {
            branch.share /= led.get(branch.from).copied().unwrap_or(1.0);
        }
        let mut behind: Vec<Share> = calls
            .calls
            .iter()
            .map(|(to, from)| Share {
                from: *from,
                to: *to,
                share: 1.0,
            })
            .collect();
        // The order of a hash map is not one to sum in: equal inputs shall give equal figures.
        behind.sort_unstable_by_key(|share| share.to);
        branches.extend(behind);
        for left in &mut unexplained {
            *left = left.max(0.0);
        }
        Some(Self {
            starts,
            arrivals,
            unexplained,
            streams: ended,
            branches,
            n_branches,
        })
    }

    /// What arrives less what is led there.
    pub(super) fn residual(&self, arrivals: &[f64]) -> Vec<f64> {
        let mut leaves = vec![0.0; self.n_branches];
        for s in &self.streams {
            add(&mut leaves, s.to, at(arrivals, s.from) * s.share);
        }
        let mut residual = arrivals.to_vec();
        for b in &self.branches {
            add(&mut residual, b.to, -at(&leaves, b.from) * b.share);
        }
        residual
    }

    /// The transposed of [`Chain::residual`].
    pub(super) fn transposed(&self, residual: &[f64]) -> Vec<f64> {
        let mut leaves = vec![0.0; self.n_branches];
        for b in &self.branches {
            add(&mut leaves, b.from, at(residual, b.to) * b.share);
        }
        let mut arrivals = residual.to_vec();
        for s in &self.streams {
            add(&mut arrivals, s.from, -at(&leaves, s.to) * s.share);
        }
        arrivals
    }

    /// The terms of [`Chain::residual`] for each place, place and factor; of a long sum the first [`LONG`].
    pub(super) fn terms(&self) -> Vec<Vec<(usize, f64)>> {
        let mut ended = vec![Vec::new(); self.n_branches];
        for s in &self.streams {
            if let Some(ended) = ended.get_mut(s.to) {
                ended.push((s.from, s.share));
            }
        }
        let mut terms: Vec<Vec<(usize, f64)>> = (0..self.arrivals.len()).map(|n| vec![(n, 1.0)]).collect();
        for b in &self.branches {
            let Some(terms) = terms.get_mut(b.to) else {
                continue;
            };
            let ended = ended.get(b.from).into_iter().flatten();
            let left = LONG.saturating_sub(terms.len());
            terms.extend(ended.take(left).map(|(from, share)| (*from, -share * b.share)));
        }
        terms
    }
}

/// The number at a place that there is.
pub(super) fn at(numbers: &[f64], n: usize) -> f64 {
    numbers.get(n).copied().unwrap_or_default()
}

pub(super) fn add(sums: &mut [f64], n: usize, amount: f64) {
    if let Some(sum) = sums.get_mut(n) {
        *sum += amount;
    }
}

pub(super) fn spot(map: &BlockMap, place: Location) -> Option<(TextIdx, u32)> {
    Some((place.text, map.text(place.text)?.find(place.addr).ok()?))
}

/// A number for each instruction of a process image, from 0 on.
#[derive(Default)]
pub(super) struct Numbers(pub(super) HashMap<(TextIdx, u32, ProcessIdx), usize>);

impl Numbers {
    fn number(&mut self, spot: (TextIdx, u32, ProcessIdx)) -> usize {
        let next = self.0.len();
        *self.0.entry(spot).or_insert(next)
    }

    /// Kernel code is counted once for all processes, or with the process like the rest.
    fn find(&self, (text, instruction): (TextIdx, u32), process: ProcessIdx) -> Option<usize> {
        let owners = [process, ProcessIdx::KERNEL];
        owners
            .iter()
            .find_map(|owner| self.0.get(&(text, instruction, *owner)).copied())
    }
}
