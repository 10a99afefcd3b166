//! The edges of a flow graph, with how often each was followed.

use hbbp_estimate::{Passed, summed};

/// Edges by the nodes at both ends, each once; sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges(Vec<((usize, usize), Passed)>);

impl Edges {
    /// The edge between two nodes.
    pub(super) fn get(&self, from: usize, to: usize) -> Option<Passed> {
        let found = self.0.binary_search_by_key(&(from, to), |(ends, _)| *ends);
        found.ok().and_then(|n| self.0.get(n)).map(|(_, passed)| *passed)
    }

    /// How often the edge between two nodes was followed; never where there is none.
    pub(super) fn executions(&self, from: usize, to: usize) -> f64 {
        self.get(from, to).map_or(0.0, |passed| passed.executions)
    }

    /// The nodes at both ends of each.
    pub(super) fn ends(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.iter().map(|(ends, _)| *ends)
    }
}

/// Edges that come several times become one, followed as often as all of them.
impl FromIterator<((usize, usize), Passed)> for Edges {
    fn from_iter<T: IntoIterator<Item = ((usize, usize), Passed)>>(edges: T) -> Self {
        Self(summed(edges.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_that_come_twice_are_added() {
        let passed = |executions| Passed {
            executions,
            ..Passed::default()
        };
        let edges: Edges = [
            ((1, 2), passed(3.0)),
            ((0, 1), passed(1.0)),
            ((1, 2), passed(4.0)),
        ]
        .into_iter()
        .collect();
        assert_eq!(edges.ends().collect::<Vec<_>>(), [(0, 1), (1, 2)]);
        assert!((edges.executions(1, 2) - 7.0).abs() < 1e-9 && edges.get(2, 1).is_none());
    }
}
