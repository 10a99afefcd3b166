//! Calls, with time and instructions of what they called, according to call chains.

use super::region::Inclusive;
use crate::callers::Ends;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{EventUnit, ModuleIdx};

/// What was called from where, by call chains.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    /// The unit of inclusive time.
    pub unit: EventUnit,
    /// The time of all samples with a chain.
    pub total: f64,
    /// How the chains ended.
    pub ends: Ends,
    /// The calls with the most time of what they called, by that.
    pub sites: Vec<CallSite>,
    /// How many there are.
    pub n_sites: usize,
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallSite {
    /// The module of the call.
    pub module: ModuleIdx,
    /// Its address there.
    pub addr: ImageAddr,
    /// Its function: the name of its symbol, or of its module and address.
    pub function: String,
    /// Its source line, once [`super::Loops::locate`] has looked up locations.
    pub line: Option<String>,
    /// The innermost loop that it lies in, as an index.
    pub within: Option<usize>,
    /// What passed in what it called, or in the loop that it called.
    pub called: Inclusive,
}

impl Calls {
    /// Gives loops their numbers after sorting; the new index of each, if it still has one.
    pub(super) fn renumber(&mut self, places: &[Option<usize>]) {
        for site in &mut self.sites {
            site.within = site.within.and_then(|n| places.get(n).copied().flatten());
        }
    }
}
