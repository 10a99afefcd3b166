//! What surrounds this system: the machine that it runs on, its container, its guests, and which machines have more.

use std::fmt::Write as _;

use super::finding::{Finding, limited, ok};
use crate::cmd::environment::{Environment, OfferHere};
use hbbp_collect::pmu::Pmu;

/// The machine.
pub(super) fn machine(environment: &Environment) -> Finding {
    let described = environment.described();
    if environment.is_apart() {
        return limited(
            "machine",
            described,
            "processes outside of the container have no code here: share the host's, as with `docker run --pid=host`",
        );
    }
    ok("machine", described)
}

/// What a host does not see.
pub(super) fn guests(environment: &Environment) -> Option<Finding> {
    environment.runs_guests().then(|| {
        limited(
            "guests",
            "code of virtual machines is in no figure: the host knows neither their processes nor their memory, and a \
             mediated PMU stops its counters meanwhile",
            "measure inside them",
        )
    })
}

/// Which machines have more; none where this one has branch records.
pub(super) fn offers(pmus: &[Pmu], environment: &Environment) -> Vec<OfferHere> {
    if pmus.iter().any(|pmu| 0 < pmu.branches) {
        return Vec::new();
    }
    environment.offers()
}

/// The same as text.
pub(super) fn text(offers: &[OfferHere]) -> String {
    let mut text = String::new();
    if offers.is_empty() {
        return text;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\nWhere there is more, by source and its date:");
    for OfferHere { offer, is_this } in offers {
        let this = if *is_this == Some(true) {
            ", as this one"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "  {}{this}\n    counters: {}; branch records: {}; PEBS: {}\n    {} ({})",
            offer.machines, offer.counters, offer.branch_records, offer.pebs, offer.source, offer.dated
        );
    }
    let is_named = offers.iter().any(|it| it.is_this.is_some());
    if is_named && offers.iter().all(|it| it.is_this != Some(true)) {
        text.push_str("  What this machine type has is unknown.\n");
    }
    text
}
