//! The ways into each block, and the numbers of the unknowns that say how often each was gone.

use std::collections::{HashMap, HashSet};

use super::code::{Before, Code, Conditional, External, Way};
use hbbp_code::blocks::Flow;

/// Blocks of a function, and of those that it ends in, that are searched for its returns.
const FARTHEST: usize = 4096;

impl Code {
    /// Finds the ways into each node, and numbers the unknowns.
    pub(super) fn connect(&mut self) {
        let mut ways: Vec<Vec<Way>> = vec![Vec::new(); self.nodes.len()];
        let mut add = |to: usize, unknown, before| {
            if let Some(ways) = ways.get_mut(to) {
                ways.push(Way { unknown, before });
            }
        };
        let mut unknowns = self.nodes.len();
        let mut entries: Vec<usize> = Vec::new();
        let mut callee_at: HashMap<usize, usize> = HashMap::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let (mut taken, mut falls) = (n, n);
            if node.flow == Flow::Conditional && node.target.is_some() && node.next.is_some() {
                (taken, falls) = (unknowns, unknowns + 1);
                unknowns += 2;
                self.conditionals.push(Conditional {
                    node: n,
                    taken,
                    falls,
                });
            }
            if let Some(target) = node.target {
                add(target, taken, Before::Block(n));
            }
            let behind = match (node.flow, node.target) {
                (Flow::Next | Flow::Idle | Flow::Conditional, _) => Some(Before::Block(n)),
                (Flow::Call, Some(entry)) => {
                    Some(Before::Returns(*callee_at.entry(entry).or_insert_with(|| {
                        entries.push(entry);
                        entries.len() - 1
                    })))
                }
                (Flow::Call | Flow::IndirectCall, _) => Some(Before::Return),
                (Flow::SystemCall, _) => Some(Before::System),
                _ => None,
            };
            if let Some((next, before)) = node.next.zip(behind) {
                add(next, falls, before);
            }
        }
        for (n, (node, ways)) in self.nodes.iter().zip(&mut ways).enumerate() {
            let is_alone = ways.is_empty();
            if is_alone || node.is_entry {
                ways.push(Way {
                    unknown: unknowns,
                    before: Before::Indirect,
                });
                self.external.push(External {
                    node: n,
                    unknown: unknowns,
                    is_alone,
                });
                unknowns += 1;
            }
        }
        self.callees = entries.into_iter().map(|entry| self.returns(entry)).collect();
        self.ways = ways;
        (self.places, self.n_places) = self.places(unknowns);
    }

    /// The place of each unknown along the code, and how many there are: a block with one way into it ran as often as that was
    /// gone, so that both are one unknown.
    fn places(&self, n_unknowns: usize) -> (Vec<usize>, usize) {
        let mut same: Vec<usize> = (0..n_unknowns).collect();
        let first = |same: &[usize], mut n: usize| {
            while let Some(before) = same.get(n).copied().filter(|before| *before != n) {
                n = before;
            }
            n
        };
        for (n, ways) in self.ways.iter().enumerate() {
            if let [way] = ways.as_slice() {
                let (a, b) = (first(&same, n), first(&same, way.unknown));
                if let Some(larger) = same.get_mut(a.max(b)) {
                    *larger = a.min(b);
                }
            }
        }
        let nodes = (0..self.nodes.len()).map(|n| (n, n));
        let out = self
            .conditionals
            .iter()
            .flat_map(|of| [(of.node, of.taken), (of.node, of.falls)]);
        let external = self.external.iter().map(|of| (of.node, of.unknown));
        let mut along: Vec<(usize, usize)> = nodes.chain(out).chain(external).collect();
        along.sort_unstable();
        let mut places = vec![usize::MAX; n_unknowns];
        let mut n_places = 0;
        for (_, unknown) in &along {
            if let Some(place) = places
                .get_mut(first(&same, *unknown))
                .filter(|place| **place == usize::MAX)
            {
                *place = n_places;
                n_places += 1;
            }
        }
        let place = |n| places.get(first(&same, n)).copied().unwrap_or_default();
        ((0..n_unknowns).map(place).collect(), n_places)
    }

    /// The nodes that return to the caller of a function, or of one that it jumps to at its end.
    fn returns(&self, entry: usize) -> Vec<usize> {
        let mut seen = HashSet::from([entry]);
        let (mut left, mut returns) = (vec![entry], Vec::new());
        while let Some((n, node)) = left.pop().and_then(|n| Some((n, self.nodes.get(n)?))) {
            let onward = match node.flow {
                Flow::Return => {
                    returns.push(n);
                    [None, None]
                }
                Flow::Jump | Flow::CallNext => [node.target, None],
                Flow::Conditional => [node.target, node.next],
                Flow::IndirectJump | Flow::InterruptReturn | Flow::Trap | Flow::Invalid => [None, None],
                Flow::Next | Flow::Idle | Flow::Call | Flow::IndirectCall | Flow::SystemCall => {
                    [node.next, None]
                }
            };
            for to in onward.into_iter().flatten() {
                if seen.len() < FARTHEST && seen.insert(to) {
                    left.push(to);
                }
            }
        }
        returns.sort_unstable();
        returns
    }
}
