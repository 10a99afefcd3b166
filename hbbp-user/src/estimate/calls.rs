//! Which place stands behind which call.
//!
//! A call comes back, so what returns to the place behind a call has arrived as often as the call ran: that is more
//! certain than where each return goes, above all where all functions share one return instruction (return thunks,
//! arch/x86/lib/retpoline.S).

use std::collections::{HashMap, HashSet};

use super::chain::{Numbers, Share, add, at};
use crate::blocks::{BlockMap, Flow};
use crate::locate::TextIdx;
use crate::snapshot::ProcessIdx;

/// Most times that what returns behind a call may differ from what called, either way, and still be taken for its
/// returns: a bias is less than that, and a function that does not return as a rule is more.
const RETURNS: f64 = 4.0;

/// The places behind calls.
pub(super) struct Calls {
    /// Returns from functions, and from the kernel.
    pub(super) returns: HashSet<usize>,
    /// By place, the call before it.
    pub(super) calls: HashMap<usize, usize>,
}

impl Calls {
    pub(super) fn new(
        map: &BlockMap,
        places: &Numbers,
        sources: &Numbers,
        ended: &[Share],
        arrivals: &[f64],
        branches: &[Share],
    ) -> Self {
        let flow = |text, instruction| Some(map.text(text)?.instruction(instruction)?.flow);
        let returns = sources.0.iter().filter(|((text, instruction, _), _)| {
            matches!(
                flow(*text, *instruction),
                Some(Flow::Return | Flow::InterruptReturn)
            )
        });
        let returns: HashSet<usize> = returns.map(|(_, n)| *n).collect();
        let mut returned = vec![0.0; arrivals.len()];
        for branch in branches.iter().filter(|b| returns.contains(&b.from)) {
            add(&mut returned, branch.to, branch.share);
        }
        let mut ran = vec![0.0; sources.0.len()];
        for stream in ended {
            let arrived = at(arrivals, stream.from);
            add(&mut ran, stream.to, arrived * stream.share);
        }
        let call = |(text, instruction, process): (TextIdx, u32, ProcessIdx), place: usize| {
            let before = instruction.checked_sub(1)?;
            let is_call = matches!(
                flow(text, before),
                Some(Flow::Call | Flow::IndirectCall | Flow::SystemCall)
            );
            let call = sources.0.get(&(text, before, process)).filter(|_| is_call)?;
            let (returned, ran) = (*returned.get(place)?, *ran.get(*call)?);
            (0.0 < returned && returned < RETURNS * ran && ran < RETURNS * returned).then_some((place, *call))
        };
        let calls = places.0.iter().filter_map(|(spot, n)| call(*spot, *n)).collect();
        Self { returns, calls }
    }
}
