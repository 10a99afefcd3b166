//! What the code and all samples together show of where time was spent, by which each sample finds its instructions.

use super::code::Code;
use super::executions::Executions;
use super::interrupts::Interrupts;
use super::system_calls::{Calls, KernelWays, SystemCalls};
use super::times::Times;
use super::ways_in::WaysIn;
use crate::sources::ebs::Hits;
use crate::sums::over;
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::LocatedIp;
use hbbp_model::snapshot::Snapshot;

/// What the code and all samples together show.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Origins {
    pub(super) ways_in: WaysIn,
    pub(super) system_calls: SystemCalls,
    pub(super) times: Times,
    /// The share of the samples that come after the bound of the work ([`Executions`]).
    pub(super) unsearched: f64,
}

impl Origins {
    /// What is known without samples.
    pub(super) fn known(map: &BlockMap) -> Self {
        Self {
            times: Times::known(map),
            ..Self::default()
        }
    }

    /// What these samples show, which serve.
    pub(super) fn shown(snapshot: &Snapshot, map: &BlockMap, hits: &Hits, serving: &[&LocatedIp]) -> Self {
        let mut interrupts = Interrupts::new(Code::new(snapshot, map).with_sources());
        let known = Times::known(map);
        let calls = calls(&interrupts, map, serving);
        let ways = match calls.is_empty() {
            true => KernelWays::default(),
            false => KernelWays::new(&interrupts, &known, hits),
        };
        interrupts.find_off(hits, ways.way_in.iter().chain(&ways.way_out));
        let times = known.shown(&interrupts, hits);
        let mut executions = Executions::new(&interrupts, hits, &times);
        let (ways_in, unsearched) = WaysIn::new(&mut executions, hits);
        let system_calls = SystemCalls::new(&ways, calls, &mut executions);
        Self {
            ways_in,
            system_calls,
            times,
            unsearched: over(unsearched, hits.values().sum()),
        }
    }
}

/// The samples behind system calls.
fn calls(interrupts: &Interrupts<'_>, map: &BlockMap, serving: &[&LocatedIp]) -> Calls {
    let mut calls = Calls::new();
    for ip in serving {
        let found = map
            .text(ip.location.text)
            .map(|blocks| blocks.find(ip.location.addr));
        let before = found.and_then(|found| found.ok()?.checked_sub(1));
        let before = before.map(|before| (ip.location.text, before));
        if let Some(call) = before.filter(|before| interrupts.is_call(*before)) {
            *calls.entry(ip.process).or_default().entry(call).or_default() += ip.weight as f64;
        }
    }
    calls
}
