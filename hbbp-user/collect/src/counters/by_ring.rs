//! Branch stacks of each ring by an event of its own, so that the ring that runs less has as many of them as it needs.
//!
//! With one event for both, a ring has stacks in proportion to its taken branches: of a load that computes, kernel code
//! has some hundredths, and its figures are off by chance several times as much. The errors of both rings are equal
//! where a ring with a share p of the branches has stacks in proportion to the root of p (Neyman's allocation; Cochran,
//! Sampling Techniques, section 5.5). Both events ask for all branches in their stacks, so that processors with one
//! filter for all events take both (LBR_SELECT, SDM vol. 3, 18.4.2); each stack counts with the period that it was
//! taken at.

use anyhow::{Context as _, bail};

use super::super::source::{Source, settle};
use hbbp_model::addr::Ring;
use hbbp_model::advice::{Advice, Advised};

/// Whether each ring has an event with branch stacks of its own.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum StackEvents {
    /// One event counts both.
    #[default]
    ForBothRings,
    /// One for each.
    ForEachRing,
}

/// What is said where there are no events for each ring.
const REFUSED: &str = "branch stacks of each ring cannot be sampled separately";

/// These sources with two instead of each that has branch stacks: for user code, and for the kernel.
pub(crate) fn apart(sources: Vec<Source>) -> anyhow::Result<Vec<Source>> {
    if sources.iter().all(|source| source.request.stack.is_none()) {
        let why = format!("{REFUSED}: this machine has no branch stacks");
        bail!(Advised::new(why, Advice::LeaveOutRingsApart));
    }
    let mut all = Vec::new();
    for source in sources {
        if source.request.stack.is_none() {
            all.push(source);
            continue;
        }
        for ring in [Ring::User, Ring::Kernel] {
            let mut of_ring = source.clone();
            of_ring.name.push_str(match ring {
                Ring::Kernel => ":k",
                Ring::User => ":u",
            });
            of_ring.request.ring = Some(ring);
            all.push(settle(of_ring).context(Advised::new(REFUSED, Advice::LeaveOutRingsApart))?);
        }
    }
    Ok(all)
}
