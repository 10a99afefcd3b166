//! How control flows between the recorded streams, and the balance that makes their counts agree with it.
//!
//! One graph of streams and branches ([`graph`]) serves the balance and the phases here, and the bootstrap of [`super::error`].

pub(super) mod balance;
pub(super) mod branches;
mod chain;
mod conservation;
pub(super) mod errors;
pub(super) mod excess;
pub(super) mod graph;
pub(super) mod landed;
pub(super) mod late;
pub(super) mod least_squares;
pub(super) mod per_branch;
pub(super) mod phases;
mod return_sites;
pub(super) mod skid;
