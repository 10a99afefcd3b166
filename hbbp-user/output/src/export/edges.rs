//! Taken branches between ranges, weighted so that they agree with the ranges on both sides.
//!
//! A branch first gets its share of what starts at its target, by the weight of its occurrences. Ranges that end at its
//! source say the same a second time, and both are estimates: biproportional fitting (Deming and Stephan, On a least
//! squares adjustment of a sampled frequency table, 1940) scales branches to the executions of either side in turn.
//! Inflow and outflow of a basic block would differ by the sampling error of one side otherwise.

use std::collections::BTreeMap;

use super::counted::Counted;
use hbbp_code::blocks::Flow;
use hbbp_code::locate::{AddressMap, Site};
use hbbp_model::addr::{Ring, Va};
use hbbp_model::snapshot::taken_branches::WeighedBranch;

/// Rounds of the fit. A source in no range, such as code whose text is not known, has no executions of its own to be scaled
/// to. It absorbs the remainder of all others, so the fit converges slowly there and is bounded.
const ROUNDS: usize = 20;

/// Either end of a branch.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum End {
    /// In a module.
    At(Site),
    /// In no module that is known, in this ring.
    Outside(Ring),
}

/// What starts at an address.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Start {
    pub(super) executions: f64,
    pub(super) hits: f64,
}

/// A branch as recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recorded {
    pub(super) hits: u64,
    /// Their weights, in units of their events.
    pub(super) weight: f64,
    pub(super) mispredicted: Option<u64>,
}

/// Branches by target, then source.
type Taken = BTreeMap<End, BTreeMap<End, Recorded>>;

/// A branch with its executions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: End,
    pub(super) to: End,
    pub(super) recorded: Recorded,
    pub(super) executions: f64,
    /// Whether it is an interrupt, an exception, a system call, or a return from one.
    pub(super) is_far: bool,
}

/// The branches of a snapshot, sorted by target and source.
pub(super) fn edges(
    counted: &Counted<'_>,
    starts: &BTreeMap<Site, Start>,
    ends: &BTreeMap<Site, f64>,
) -> Vec<Edge> {
    let mean = mean(starts);
    let mut edges = Vec::new();
    for (to, sources) in taken(counted) {
        let start = to.site().and_then(|to| starts.get(&to)).copied();
        let hits: f64 = sources.values().map(|branch| branch.hits as f64).sum();
        let weight: f64 = sources.values().map(|branch| branch.weight).sum();
        // Branches from code that is in no stack, such as from another ring, are missing in what was recorded.
        let led_to = start.map(|start| start.executions * hits / hits.max(start.hits));
        let executions = |recorded: Recorded| match led_to {
            Some(led_to) if 0.0 < weight => led_to * recorded.weight / weight,
            _ => recorded.hits as f64 * mean,
        };
        edges.extend(sources.into_iter().map(|(from, recorded)| Edge {
            from,
            to,
            recorded,
            executions: executions(recorded),
            is_far: is_far(counted, from, to),
        }));
    }
    fit(&mut edges, starts, ends);
    edges
}

/// Scales branches to the ranges that end at their sources and to those that start at their targets, in turn, the targets
/// last: branches to an address keep their sum.
fn fit(edges: &mut [Edge], starts: &BTreeMap<Site, Start>, ends: &BTreeMap<Site, f64>) {
    let from = |edge: &Edge| edge.from.site().filter(|from| ends.contains_key(from));
    let to = |edge: &Edge| edge.to.site().filter(|to| starts.contains_key(to));
    let mut sources = Side::new(edges, from);
    let mut targets = Side::new(edges, to);
    sources.wanted = sources
        .sites
        .keys()
        .map(|site| ends.get(site).copied().unwrap_or(0.0))
        .collect();
    targets.wanted = targets.sums(edges);
    for _ in 0..ROUNDS {
        sources.scale(edges);
        targets.scale(edges);
    }
}

/// The near branches by one of their ends.
struct Side {
    sites: BTreeMap<Site, usize>,
    /// By branch, the index of its site in the order of the sites; `None` if nothing is known of that.
    of_edge: Vec<Option<usize>>,
    /// By site, what its branches are to add up to.
    wanted: Vec<f64>,
}

impl Side {
    fn new(edges: &[Edge], end: impl Fn(&Edge) -> Option<Site>) -> Self {
        let ends = || edges.iter().map(|edge| end(edge).filter(|_| !edge.is_far));
        let mut sites: BTreeMap<Site, usize> = ends().flatten().map(|site| (site, 0)).collect();
        sites.values_mut().zip(0..).for_each(|(idx, n)| *idx = n);
        let of_edge = ends().map(|site| sites.get(&site?).copied()).collect();
        Self {
            sites,
            of_edge,
            wanted: Vec::new(),
        }
    }

    /// Executions by site.
    fn sums(&self, edges: &[Edge]) -> Vec<f64> {
        let mut sums = vec![0.0; self.sites.len()];
        for (edge, idx) in edges.iter().zip(&self.of_edge) {
            if let Some(sum) = idx.and_then(|idx| sums.get_mut(idx)) {
                *sum += edge.executions;
            }
        }
        sums
    }

    /// Scales the branches of each site so that they add up to what is wanted.
    fn scale(&self, edges: &mut [Edge]) {
        let sums = self.sums(edges);
        for (edge, idx) in edges.iter_mut().zip(&self.of_edge) {
            let sum = idx.and_then(|idx| Some((sums.get(idx)?, self.wanted.get(idx)?)));
            // Ranges that were balanced to nothing do not say that their branch was not taken: something starts at its target.
            if let Some((sum, wanted)) = sum.filter(|(sum, wanted)| 0.0 < sum.min(**wanted)) {
                edge.executions *= wanted / sum;
            }
        }
    }
}

/// Whether a branch is an interrupt, an exception, a system call, or a return from one.
fn is_far(counted: &Counted<'_>, from: End, to: End) -> bool {
    let source = from.site().and_then(|from| counted.instruction_at(from));
    let is_near = source.is_none_or(|instruction| {
        let is_system = matches!(instruction.flow, Flow::InterruptReturn | Flow::SystemCall);
        instruction.flow.is_branch() && !is_system
    });
    from.ring(counted) != to.ring(counted) || !is_near
}

/// Executions for each hit of a stream, on average.
fn mean(starts: &BTreeMap<Site, Start>) -> f64 {
    let executions: f64 = starts.values().map(|start| start.executions).sum();
    let hits: f64 = starts.values().map(|start| start.hits).sum();
    if 0.0 < hits { executions / hits } else { 0.0 }
}

/// The recorded branches of the events that serve as LBR. A branch without a target is the newest of its stack: no range
/// follows it, and as many ranges as branches with a target were recorded.
fn taken(counted: &Counted<'_>) -> Taken {
    let mut taken = Taken::new();
    let mut map = AddressMap::new(counted.snapshot);
    for (branches, n) in counted.snapshot.taken_branches().zip(0..) {
        map.set_interval(n);
        let serving = |event| counted.counts.assignment.lbr.contains(&event);
        let served = |WeighedBranch { count, .. }: &&WeighedBranch| serving(count.event) && count.to != Va(0);
        for WeighedBranch { count, weight, .. } in branches.iter().filter(served) {
            let [from, to] = [count.from, count.to].map(|at| match map.module_at(count.process, at) {
                Some((module, addr)) => End::At(Site { module, addr }),
                None => End::Outside(at.ring()),
            });
            let branch = taken.entry(to).or_default().entry(from).or_default();
            branch.hits = branch.hits.saturating_add(count.hits);
            branch.weight += weight;
            if let Some(n) = count.mispredicted {
                branch.mispredicted = Some(branch.mispredicted.unwrap_or(0).saturating_add(n));
            }
        }
    }
    taken
}

impl End {
    pub(super) const fn site(self) -> Option<Site> {
        match self {
            Self::At(site) => Some(site),
            Self::Outside(_) => None,
        }
    }

    fn ring(self, counted: &Counted<'_>) -> Ring {
        match self {
            Self::Outside(ring) => ring,
            Self::At(site) if counted.module(site).is_some_and(|module| module.kind.is_kernel()) => {
                Ring::Kernel
            }
            Self::At(_) => Ring::User,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::ModuleIdx;

    fn site(addr: u64) -> Site {
        Site {
            module: ModuleIdx(0),
            addr: ImageAddr(addr),
        }
    }

    fn edge(from: u64, to: u64, executions: f64) -> Edge {
        Edge {
            from: End::At(site(from)),
            to: End::At(site(to)),
            recorded: Recorded::default(),
            executions,
            is_far: false,
        }
    }

    #[test]
    fn branches_agree_with_the_ranges_on_both_sides() {
        // A loop from 10 to 18, which is left to 20, from where it begins again: once in ten rounds by the ranges, and
        // four times by the branches to 20, where no range contradicts.
        let mut edges = [
            edge(0x20, 0x10, 1.0),
            edge(0x18, 0x10, 9.0),
            edge(0x18, 0x20, 4.0),
        ];
        let start = |executions| Start {
            executions,
            hits: executions,
        };
        let starts = BTreeMap::from([(site(0x10), start(10.0))]);
        let ends = BTreeMap::from([(site(0x18), 10.0), (site(0x20), 1.0)]);
        fit(&mut edges, &starts, &ends);
        let executions = edges.map(|edge| edge.executions);
        for (found, expected) in executions.into_iter().zip([1.0, 9.0, 1.0]) {
            assert!((found - expected).abs() < 0.15, "{executions:?}");
        }
    }

    #[test]
    fn branches_to_an_address_keep_their_sum() {
        // No range shows how often the source at 30 was executed.
        let mut edges = [edge(0x18, 0x10, 6.0), edge(0x30, 0x10, 2.0)];
        let start = Start {
            executions: 8.0,
            hits: 8.0,
        };
        let ends = BTreeMap::from([(site(0x18), 6.5)]);
        fit(&mut edges, &BTreeMap::from([(site(0x10), start)]), &ends);
        let [known, unknown] = edges.map(|edge| edge.executions);
        assert!((known + unknown - 8.0).abs() < 1e-9, "{known} {unknown}");
        assert!((known - 6.5).abs() < 0.1, "{known}");
    }

    #[test]
    fn source_with_weightless_ranges_keeps_its_branches() {
        let mut edges = [edge(0x18, 0x10, 3.0)];
        let start = Start {
            executions: 3.0,
            hits: 3.0,
        };
        let starts = BTreeMap::from([(site(0x10), start)]);
        fit(&mut edges, &starts, &BTreeMap::from([(site(0x18), 0.0)]));
        assert_eq!(edges.map(|edge| edge.executions), [3.0]);
    }
}
