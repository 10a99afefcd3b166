//! The names of the units of events.

use hbbp_model::snapshot::EventUnit;

pub(in crate::report) const fn unit_id(unit: EventUnit) -> &'static str {
    match unit {
        EventUnit::Nanoseconds => "ns",
        EventUnit::Cycles => "cycles",
        EventUnit::Instructions => "instructions",
        EventUnit::TakenBranches => "taken_branches",
        EventUnit::MicroOps => "micro_ops",
        EventUnit::Other => "other",
    }
}
