//! How much each ring ran, where that was counted: streams are balanced to the share of each ring, and scaled so that they end in as many
//! taken branches as the event of the ring counted.
//!
//! Which ring a stack shows is left to chance, and a bias of the oldest slots is not the same in both: of loads that
//! compute, streams of the kernel were 2 to 6 % too few where branches of user code stuck to the oldest slots. Little
//! else was wrong with their mnemonics (the emulated machine, `ivb`; kernel-tests/results/accuracy.txt). Where each
//! ring has an event of its own, its count has no error of sampling.

use super::flow::graph::FlowGraph;
use super::flow::least_squares::Equation;
use super::near::{ends_near, near_only};
use super::sources::stream::Stream;
use super::sources::streams::Judged;
use super::{EventAssignment, units};
use crate::sums::over;
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::{Discard, Located, PerRing, Tally, TextIdx};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{Event, EventIdx, EventUnit};

/// How far off the quotient of what two events counted may be: between reading one counter and the next some time passes
/// ([`super::totals`]).
const OFF: f64 = 0.001;

/// Taken branches that the known streams of the kernel and of user code end in, as counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ran {
    kernel: f64,
    user: f64,
    /// Whether far branches are not among them.
    near_only: bool,
}

impl Ran {
    /// What the events of the rings counted, less the share of streams whose code is not known; `None` if an event counted both
    /// rings, or nothing.
    pub(super) fn new(
        events: &[Event],
        assignment: &EventAssignment,
        judged: &Judged,
        located: &Located,
    ) -> Option<Self> {
        let lbr = assignment.lbr.as_slice();
        let unknown = unknown(lbr, [&judged.discarded, &located.discarded]);
        let known = known(judged.accepted.of_events(lbr), unknown);
        let of = |ring| {
            let is_of = |idx: &EventIdx| events.get(idx.0 as usize).is_some_and(|it| it.ring == Some(ring));
            let served: Vec<EventIdx> = lbr.iter().copied().filter(is_of).collect();
            (served.len(), units(events, &served, EventUnit::TakenBranches))
        };
        let ((of_kernel, kernel), (of_user, user)) = (of(Ring::Kernel), of(Ring::User));
        let all_have_rings = of_kernel + of_user == lbr.len();
        (all_have_rings && 0.0 < kernel && 0.0 < user).then_some(Self {
            kernel: kernel * known[0],
            user: user * known[1],
            near_only: near_only(events, lbr),
        })
    }

    /// Less a share of the code of each ring, which samples show and streams do not.
    pub(super) fn without(self, share: impl Fn(Ring) -> f64) -> Self {
        Self {
            kernel: self.kernel * (1.0 - share(Ring::Kernel)),
            user: self.user * (1.0 - share(Ring::User)),
            ..self
        }
    }

    /// How streams are shared out to the rings, as an equation of them: the taken branches of streams of one ring are to those of the
    /// other as they were counted. So lengths that were counted of both rings together ([`super::flow::per_branch`]) and the scale of each
    /// agree.
    pub(super) fn equation(
        self,
        streams: &[Stream],
        map: &BlockMap,
        graph: &FlowGraph,
        ring_of: impl Fn(TextIdx) -> Ring,
    ) -> Equation {
        let is_counted = |stream: &Stream| !self.near_only || ends_near(stream, map);
        let counted = streams
            .iter()
            .enumerate()
            .filter(|(_, stream)| is_counted(stream));
        let of_other = |(number, stream): (usize, &Stream)| match ring_of(stream.text) {
            Ring::Kernel => (number, self.user),
            Ring::User => (number, -self.kernel),
        };
        let all: f64 = graph.runs().sum();
        let off = OFF * all * self.kernel * self.user / (self.kernel + self.user);
        Equation {
            terms: counted.map(of_other).collect(),
            value: 0.0,
            weight: over(1.0, off * off),
        }
    }

    /// Scales the streams of each ring.
    pub(super) fn set_right(self, streams: &mut [Stream], map: &BlockMap, ring_of: impl Fn(TextIdx) -> Ring) {
        let mut sums = [0.0; 2];
        for stream in streams.iter() {
            if !self.near_only || ends_near(stream, map) {
                *of(&mut sums, ring_of(stream.text)) += stream.weight;
            }
        }
        let mut factors =
            [(self.kernel, sums[0]), (self.user, sums[1])].map(|(counted, sum)| match 0.0 < sum {
                true => counted / sum,
                false => 1.0,
            });
        for stream in streams {
            stream.weight *= *of(&mut factors, ring_of(stream.text));
        }
    }
}

/// Of a pair of kernel and user, that of this ring.
const fn of([kernel, user]: &mut [f64; 2], ring: Ring) -> &mut f64 {
    match ring {
        Ring::Kernel => kernel,
        Ring::User => user,
    }
}

/// Streams that may have run, but in code that is not known; others bear the weight of those that cannot have run.
pub(super) fn unknown(lbr: &[EventIdx], discarded: [&Tally<Discard>; 2]) -> PerRing {
    let mut sum = PerRing::default();
    for ((event, why), counts) in discarded.iter().flat_map(|tally| &tally.0) {
        if lbr.contains(event) && !why.is_impossible() {
            sum.add(Ring::Kernel, counts.kernel);
            sum.add(Ring::User, counts.user);
        }
    }
    sum
}

/// The share of known streams, in the kernel and in user code.
fn known(accepted: PerRing, unknown: PerRing) -> [f64; 2] {
    [(accepted.kernel, unknown.kernel), (accepted.user, unknown.user)]
        .map(|(accepted, unknown)| accepted as f64 / (accepted.saturating_add(unknown)).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;
    use crate::flow::graph::tests::graph;
    use hbbp_code::blocks::blocks;
    use hbbp_model::snapshot::run::Counter;
    use hbbp_model::snapshot::{ProcessIdx, Snapshot};

    fn ran(rings: [Option<Ring>; 2], unknown: u64) -> Option<Ran> {
        let event = |ring, count| Event {
            unit: EventUnit::TakenBranches,
            ring,
            counters: vec![Counter {
                count,
                ..Counter::default()
            }],
            ..Event::default()
        };
        let events = [event(rings[0], 900), event(rings[1], 100)];
        let assignment = EventAssignment {
            ebs: Vec::new(),
            lbr: vec![EventIdx(0), EventIdx(1)],
            unit: Unit::Executions,
        };
        let (mut judged, mut located) = (Judged::default(), Located::default());
        judged.accepted.add(EventIdx(0), (), Ring::User, 30);
        judged.accepted.add(EventIdx(1), (), Ring::Kernel, 30);
        judged
            .discarded
            .add(EventIdx(0), Discard::Backward, Ring::User, 7);
        located
            .discarded
            .add(EventIdx(0), Discard::NoText, Ring::User, unknown);
        Ran::new(&events, &assignment, &judged, &located)
    }

    fn stream(text: u32, weight: f64) -> Stream {
        Stream {
            text: TextIdx(text),
            process: ProcessIdx(0),
            first: 0,
            end: 1,
            source: 0,
            hits: 1,
            weight,
        }
    }

    #[test]
    fn streams_of_a_ring_end_in_what_it_counted() {
        let ran = ran([Some(Ring::User), Some(Ring::Kernel)], 10).unwrap();
        let map = blocks(&Snapshot::default(), &Located::default());
        let mut streams = [stream(0, 500.0), stream(0, 100.0), stream(1, 40.0)];
        let ring_of = |text| match text {
            TextIdx(0) => Ring::User,
            _ => Ring::Kernel,
        };
        ran.set_right(&mut streams, &map, ring_of);
        // A quarter of the streams of user code is in code that is not known; what cannot have run is not.
        let weights = streams.map(|stream| stream.weight);
        assert_eq!(weights, [562.5, 112.5, 100.0]);
    }

    #[test]
    fn streams_are_shared_out_as_counted() {
        let ran = ran([Some(Ring::User), Some(Ring::Kernel)], 0).unwrap();
        let less = ran.without(|ring| match ring {
            Ring::Kernel => 0.1,
            Ring::User => 0.5,
        });
        assert_eq!((less.kernel, less.user), (90.0, 450.0));
        let map = blocks(&Snapshot::default(), &Located::default());
        let streams = [stream(0, 1.0), stream(0, 1.0), stream(1, 1.0)];
        let graph = graph(&[(0, 0, 500.0), (0, 1, 100.0), (1, 2, 40.0)], &[]);
        let ring_of = |text| match text {
            TextIdx(0) => Ring::User,
            _ => Ring::Kernel,
        };
        let found = ran.equation(&streams, &map, &graph, ring_of);
        // 900 branches of user code and 100 of the kernel were counted: the equation holds where their streams are nine to one.
        assert_eq!(found.terms, [(0, -100.0), (1, -100.0), (2, 900.0)]);
        let residual = |user: f64, kernel: f64| 900.0 * kernel - 100.0 * user - found.value;
        assert_eq!(residual(576.0, 64.0), 0.0);
        // A thousandth more of user code, and as much less of the kernel's, is one standard deviation off.
        let off = residual(576.0, 64.0 * 1.001) * found.weight.sqrt();
        assert!((off - 1.0).abs() < 1e-6, "{off}");
    }

    #[test]
    fn an_event_of_both_rings_says_nothing_of_either() {
        assert_eq!(ran([None, Some(Ring::Kernel)], 0), None);
        assert_eq!(ran([Some(Ring::User), Some(Ring::User)], 0), None);
    }
}
