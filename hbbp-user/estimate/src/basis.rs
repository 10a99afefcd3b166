//! What all stages of an estimate stand on.

use super::assignment::EventAssignment;
use super::sources::ring;
use super::stages::{Stage, Stages};
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::TextIdx;
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::Snapshot;

/// A profile, and how it is estimated.
#[derive(Clone, Copy)]
pub(super) struct Basis<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) map: &'a BlockMap,
    pub(super) assignment: &'a EventAssignment,
    pub(super) stages: Stages,
}

impl<'a> Basis<'a> {
    pub(super) const fn new(
        snapshot: &'a Snapshot,
        map: &'a BlockMap,
        assignment: &'a EventAssignment,
        stages: Stages,
    ) -> Self {
        Self {
            snapshot,
            map,
            assignment,
            stages,
        }
    }

    /// Whether a stage runs.
    pub(super) const fn runs(self, stage: Stage) -> bool {
        self.stages.run(stage)
    }

    /// The ring of a text.
    pub(super) fn ring(self, text: TextIdx) -> Ring {
        ring(self.snapshot, self.map, text)
    }
}
