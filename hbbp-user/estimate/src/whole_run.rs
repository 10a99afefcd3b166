//! What events counted of the whole run.

use super::assignment::EventAssignment;
use super::flow::graph::FlowGraph;
use super::flow::per_branch::PerBranch;
use super::rings::Ran;
use super::sources::ebs::Sampled;
use super::sources::stream::Stream;
use super::sources::streams::Judged;
use super::sources::{Counted, SeenBlocks};
use super::stages::{Stage, Stages};
use super::totals::Totals;
use super::unseen;
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::{Located, TextIdx};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::Event;

/// What events counted of all of the run, and of each ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeRun {
    pub(super) totals: Option<Totals>,
    pub(super) rings: Option<Ran>,
}

impl WholeRun {
    /// What these events counted, as far as it was counted exactly.
    pub(super) fn new(
        events: &[Event],
        assignment: &EventAssignment,
        sampled: &Sampled,
        judged: &Judged,
        located: &Located,
    ) -> Self {
        Self {
            totals: Totals::new(events, assignment, sampled, judged, located),
            rings: Ran::new(events, assignment, judged, located),
        }
    }

    /// Without what stages need that are left out.
    pub(super) fn of_stages(self, stages: Stages) -> Self {
        Self {
            totals: self.totals.filter(|_| stages.run(Stage::Totals)),
            rings: self.rings.filter(|_| stages.run(Stage::Rings)),
        }
    }

    /// How long streams are in the mean, as an equation of how often each ran.
    pub(super) fn per_branch(
        self,
        streams: &[Stream],
        map: &BlockMap,
        graph: &FlowGraph,
        streams_per_stack: f64,
    ) -> Option<PerBranch> {
        self.totals
            .map(|totals| PerBranch::new(totals, streams, map, graph, streams_per_stack))
    }

    /// Less the code that samples show and streams never do.
    pub(super) fn without_unseen(
        self,
        seen: &SeenBlocks,
        samples: &[Counted],
        streams: &[Stream],
        ring_of: impl Fn(TextIdx) -> Ring,
    ) -> Self {
        let of_ring = |ring| unseen::share(seen, samples, streams, |text| ring_of(text) == ring);
        Self {
            totals: self
                .totals
                .map(|totals| totals.without(unseen::share(seen, samples, streams, |_| true))),
            rings: self.rings.map(|ran| ran.without(of_ring)),
        }
    }

    /// Scales streams to what was counted, of each ring where that is known.
    pub(super) fn set_right(self, streams: &mut [Stream], map: &BlockMap, ring_of: impl Fn(TextIdx) -> Ring) {
        match (self.totals, self.rings) {
            (_, Some(ran)) => ran.set_right(streams, map, ring_of),
            (Some(totals), None) => totals.set_right(streams, map),
            (None, None) => {}
        }
    }
}
