//! Phases of a run: code that the processor stays in for longer than a sampling period.
//!
//! Samples at a fixed period are a systematic sample, not one drawn by chance: a phase that lasts for a thousand periods
//! has a thousand samples, one more or one less, however often the run is repeated. What differs by chance is only what
//! the samples show within a phase. In terms of survey sampling, phases are strata with proportional allocation, whose
//! variance is the one within them (Cochran, Sampling Techniques, 1977, sections 5.6 and 8.3).
//!
//! How long the processor stays is read from the recorded streams and branches. They are a graph of places with how often
//! each way was taken; a set of places that is entered and left rarely against how often it runs is stayed in for long.
//! Sets are made by merging: as long as one is left within less than a period, it joins the one that it is left for most.
//! On the way there lie sets that are left sooner, but not within a stack: phases within phases.
//!
//! What lies between the phases is not quite without chance. Where the lengths of stay are exponential with mean T, a
//! sample every P has of the variance between phases the part coth(x) - 1/x with x = P / 2T: the sum over the samples of
//! the correlation exp(-t/T), less its integral. That is 1/6 where T = P, a half where T is a quarter of P, nearly all
//! where T is a stack, and nothing where T is long.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use super::Stream;
use crate::locate::TextIdx;

/// An instruction: its text and its index there.
pub(super) type Spot = (TextIdx, u32);

/// Which phase each place belongs to, and how much of the variance between phases is left to chance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Phases {
    /// The innermost one of each place.
    of: HashMap<Spot, usize>,
    chance: Vec<f64>,
    outer: Vec<Option<usize>>,
}

impl Phases {
    /// Finds the phases of a run with so many stacks and samples of eventing IPs: both kinds must come more than once in
    /// each. A stay shorter than the `depth` of a stack makes no phase. `branches` are source, target and occurrences.
    pub(super) fn find(
        streams: &[Stream],
        branches: &[(Spot, Spot, u64)],
        depth: f64,
        n_stacks: f64,
        n_samples: f64,
    ) -> Self {
        // Every taken branch ends a stream. Where another event took the stacks, these are its units, of which there are
        // more: phases then are too few rather than too many.
        let all: f64 = streams.iter().map(|stream| stream.weight).sum();
        let fewest = if 0.0 < n_samples {
            n_stacks.min(n_samples)
        } else {
            n_stacks
        };
        Self::within(streams, branches, depth, all / fewest.max(1.0))
    }

    /// As [`Self::find`], with a period in taken branches.
    fn within(streams: &[Stream], branches: &[(Spot, Spot, u64)], shortest: f64, period: f64) -> Self {
        let mut graph = Graph::default();
        for stream in streams {
            let (first, source) = ((stream.text, stream.first), (stream.text, stream.source));
            let (first, source) = (graph.node(first), graph.node(source));
            graph.add_mass(first, stream.hits as f64);
            graph.add_way(first, source, stream.hits as f64);
        }
        for (from, to, hits) in branches {
            let (from, to) = (graph.node(*from), graph.node(*to));
            graph.add_way(from, to, *hits as f64);
        }
        let mut stay = shortest.min(period);
        graph.merge(stay);
        let (mut phases, mut sets) = graph.phases(period);
        while stay < period {
            stay = (2.0 * stay).min(period);
            graph.merge(stay);
            sets = phases.enclose(&sets, &graph, period);
        }
        phases
    }

    /// Adds a phase around those whose sets were merged. `sets` are the outermost phases before, and the result those
    /// after: set and phase.
    fn enclose(&mut self, sets: &[(usize, usize)], graph: &Graph, period: f64) -> Vec<(usize, usize)> {
        let mut merged: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (set, phase) in sets {
            merged.entry(graph.root(*set)).or_default().push(*phase);
        }
        let mut around = |(set, inner): (usize, Vec<usize>)| {
            if let [same] = inner.as_slice() {
                return (set, *same);
            }
            let phase = self.add(part_by_chance(period, graph.stay(set)));
            for inner in inner {
                if let Some(outer) = self.outer.get_mut(inner) {
                    *outer = Some(phase);
                }
            }
            (set, phase)
        };
        merged.into_iter().map(&mut around).collect()
    }

    fn add(&mut self, chance: f64) -> usize {
        self.chance.push(chance);
        self.outer.push(None);
        self.chance.len() - 1
    }

    /// Number of the innermost phase of a place; `None` where no stream begins or ends.
    pub(super) fn of(&self, spot: Spot) -> Option<usize> {
        self.of.get(&spot).copied()
    }

    /// The part of the variance between phases that each of them has by chance, from 0 to 1.
    pub(super) fn chances(&self) -> &[f64] {
        &self.chance
    }

    /// The phase that each phase is within, which has a higher number; `None` where it is within the run alone.
    pub(super) fn outer(&self) -> &[Option<usize>] {
        &self.outer
    }
}

/// Places, merged to sets.
#[derive(Default)]
struct Graph {
    numbers: HashMap<Spot, usize>,
    /// The set that a set was merged into, or itself.
    into: Vec<usize>,
    /// Streams that begin in a set.
    mass: Vec<f64>,
    /// Ways between a set and others, in both directions together.
    ways: Vec<HashMap<usize, f64>>,
    /// Their sum.
    crossings: Vec<f64>,
}

impl Graph {
    fn node(&mut self, spot: Spot) -> usize {
        let next = self.into.len();
        let node = *self.numbers.entry(spot).or_insert(next);
        if node == next {
            self.into.push(next);
            self.mass.push(0.0);
            self.ways.push(HashMap::new());
            self.crossings.push(0.0);
        }
        node
    }

    fn add_mass(&mut self, node: usize, streams: f64) {
        if let Some(mass) = self.mass.get_mut(node) {
            *mass += streams;
        }
    }

    fn add_way(&mut self, a: usize, b: usize, times: f64) {
        if a == b {
            return;
        }
        for (here, there) in [(a, b), (b, a)] {
            if let Some(ways) = self.ways.get_mut(here) {
                *ways.entry(there).or_default() += times;
            }
            self.cross(here, times);
        }
    }

    fn cross(&mut self, set: usize, times: f64) {
        if let Some(crossings) = self.crossings.get_mut(set) {
            *crossings += times;
        }
    }

    fn root(&self, mut node: usize) -> usize {
        while let Some(&into) = self.into.get(node)
            && into != node
        {
            node = into;
        }
        node
    }

    /// Taken branches from entering a set to leaving it. What enters also leaves, so that half of the ways are exits.
    /// One more is taken to be unseen: that nothing was seen to leave shows no more than that few stacks were there.
    fn stay(&self, set: usize) -> f64 {
        let exits = self.crossings.get(set).copied().unwrap_or(0.0) / 2.0;
        let mass = self.mass.get(set).copied().unwrap_or(0.0);
        mass / (exits + 1.0)
    }

    /// Merges, beginning with the shortest stay, until every set is stayed in for a period.
    fn merge(&mut self, period: f64) {
        let key = |stay: f64, set| Reverse((stay.to_bits(), set));
        let mut shortest: BinaryHeap<_> = (0..self.into.len()).map(|set| key(self.stay(set), set)).collect();
        while let Some(Reverse((bits, set))) = shortest.pop() {
            // An older entry of a set that has changed since.
            if self.root(set) != set || self.stay(set).to_bits() != bits {
                continue;
            }
            if period <= f64::from_bits(bits) {
                break;
            }
            let ways = self.ways.get(set).into_iter().flatten();
            let most = ways.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
            let Some((&other, _)) = most else { continue };
            let merged = self.join(set, other);
            shortest.push(key(self.stay(merged), merged));
            // Its neighbours are left as often as before, only for another set.
        }
    }

    /// Makes two sets one, which keeps the number of the one with more ways.
    fn join(&mut self, a: usize, b: usize) -> usize {
        let n_ways = |set: usize| self.ways.get(set).map_or(0, HashMap::len);
        let (kept, gone) = if n_ways(a) < n_ways(b) { (b, a) } else { (a, b) };
        if let Some(into) = self.into.get_mut(gone) {
            *into = kept;
        }
        let mass = self.mass.get_mut(gone).map(std::mem::take).unwrap_or(0.0);
        self.add_mass(kept, mass);
        let ways = self.ways.get_mut(gone).map(std::mem::take).unwrap_or_default();
        for (other, times) in ways {
            if let Some(ways) = self.ways.get_mut(other) {
                ways.remove(&gone);
            }
            self.cross(other, -times);
            if other != kept {
                self.add_way(kept, other, times);
            }
        }
        kept
    }

    /// The sets as they are now, with the phase of each.
    fn phases(&self, period: f64) -> (Phases, Vec<(usize, usize)>) {
        let mut numbers: HashMap<usize, usize> = HashMap::new();
        let mut phases = Phases::default();
        let mut sets = Vec::new();
        // In the order of the places, so that the same profile always has the same numbers.
        let mut spots: Vec<(&Spot, &usize)> = self.numbers.iter().collect();
        spots.sort_unstable();
        for (spot, node) in spots {
            let set = self.root(*node);
            let phase = *numbers.entry(set).or_insert_with(|| {
                let phase = phases.add(part_by_chance(period, self.stay(set)));
                sets.push((set, phase));
                phase
            });
            phases.of.insert(*spot, phase);
        }
        (phases, sets)
    }
}

/// coth(x) - 1/x for x = period / (2 * stay); near 0 its series begins with x/3.
fn part_by_chance(period: f64, stay: f64) -> f64 {
    let x = period / (2.0 * stay);
    if x < 1e-3 {
        x / 3.0
    } else {
        1.0 / x.tanh() - 1.0 / x
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::ProcessIdx;

    fn stream(first: u32, source: u32, hits: u64) -> Stream {
        Stream {
            text: TextIdx(0),
            process: ProcessIdx(0),
            first,
            end: source + 1,
            source,
            hits,
            weight: 1.0,
        }
    }

    /// A stack of a model of a processor with few entries.
    const SHORTEST: f64 = 4.0;

    /// Two loops of two blocks each, and how often one is left for the other.
    fn loops(exits: u64) -> Phases {
        let streams = [
            stream(0, 4, 5000),
            stream(5, 9, 5000),
            stream(10, 14, 5000),
            stream(15, 19, 5000),
        ];
        let at = |n| (TextIdx(0), n);
        let branches = [
            (at(4), at(5), 5000),
            (at(9), at(0), 5000 - exits),
            (at(9), at(10), exits),
            (at(14), at(15), 5000),
            (at(19), at(10), 5000 - exits),
            (at(19), at(0), exits),
        ];
        Phases::within(&streams, &branches, SHORTEST, 100.0)
    }

    #[test]
    fn what_is_left_rarely_is_a_phase() {
        let spots = [0, 4, 5, 9, 10, 14, 15, 19].map(|n| (TextIdx(0), n));
        let of = |phases: &Phases| spots.map(|spot| phases.of(spot));
        let (a, b) = (Some(0), Some(1));
        // A stay of 10 000 / (10 + 1) branches: nine periods.
        let slow = loops(10);
        assert_eq!(of(&slow), [a, a, a, a, b, b, b, b]);
        let chance = slow.chances()[0];
        assert!((chance - 0.055 / 3.0).abs() < 1e-4, "{chance}");
        assert_eq!(slow.outer(), [None; 2]);
        // A stay of 10 000 / (200 + 1) branches, half a period: the loops are phases, and both are in one.
        let faster = loops(200);
        assert_eq!(of(&faster), [a, a, a, a, b, b, b, b]);
        assert_eq!(faster.outer(), [Some(2), Some(2), None]);
        assert!((faster.chances()[0] - 0.31).abs() < 0.01, "{faster:?}");
        // A stay of two branches.
        assert_eq!(of(&loops(5000)), [a; 8]);
        assert_eq!(loops(5000).chances().len(), 1);
    }

    #[test]
    fn what_is_left_at_once_is_all_chance() {
        assert!((part_by_chance(1.0, 1.0) - 0.164).abs() < 1e-3);
        assert!(0.99 < part_by_chance(1000.0, 1.0));
        assert_eq!(part_by_chance(1.0, f64::INFINITY), 0.0);
    }
}
