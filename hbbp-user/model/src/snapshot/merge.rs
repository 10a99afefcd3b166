//! Profiles of many runs and hosts as one: all their runs side by side, in an order of their own.
//!
//! A run is what was measured on one host from one start to one stop. Its kernel runs at an address of its own and was
//! patched at times of its own. Its processes are those of its host, and the weights of its samples follow from its
//! counters. So runs are estimated one by one, and reports add up what was estimated.

use super::Snapshot;
use super::file::{Error, encode};

/// All runs in a canonical order, independent of the order of the inputs: merging is associative and commutative.
pub fn merged(runs: impl IntoIterator<Item = Snapshot>) -> Result<Vec<Snapshot>, Error> {
    let mut keyed = Vec::new();
    for run in runs {
        // Runs of one host that began at once are distinguished by everything that they hold.
        let key = (run.run.started, run.run.host.name.clone(), encode(&run)?);
        keyed.push((key, run));
    }
    keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(keyed.into_iter().map(|(_, run)| run).collect())
}
