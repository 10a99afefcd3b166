//! Callers: the time of samples with call chains, charged to the instructions that called.
//!
//! A sample's time belongs to the instruction that spent it ([`crate::time`]) and, as inclusive time, to each call on
//! its chain, once, however often a recursion has it there. Chains are walked outwards as far as each step is proved
//! ([`mod@walk`]): callers beyond the first step without proof are not charged, and are counted ([`Ends`]).

mod frame;
mod walk;

use std::collections::BTreeMap;

use crate::mix::Estimated;
use crate::time::{Amount, scale};
use hbbp_code::locate::Location;
use hbbp_estimate::Waits;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{EventUnit, ProcessIdx};
use walk::Walker;
pub(crate) use walk::{At, Ends};

/// The time of call chains.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Callers {
    /// Cycles, or nanoseconds.
    pub(crate) unit: EventUnit,
    /// In the order of the snapshot; only chains whose sampled instruction is known.
    pub(crate) charged: Vec<Charged>,
    /// What all of these are.
    pub(crate) total: Amount,
    /// How the chains ended.
    pub(crate) ends: Ends,
}

/// A part of the time of a chain, which one instruction spent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Charged {
    /// The instruction that spent it.
    pub(crate) spender: At,
    /// The calls that led to it, innermost first. A call may be there several times.
    pub(crate) calls: Vec<At>,
    /// Samples and units of time.
    pub(crate) amount: Amount,
}

impl Callers {
    /// The callers of a run; `None` if no chain was sampled.
    pub(crate) fn new(estimated: &Estimated<'_>) -> Option<Self> {
        let (snapshot, map) = (estimated.snapshot, &estimated.map);
        let chains = &estimated.located.chains;
        let event_idx = chains.first()?.event;
        let event = snapshot.run.events.get(event_idx.0 as usize)?;
        let mut callers = Self {
            unit: event.unit,
            charged: Vec::new(),
            total: Amount::default(),
            ends: Ends::default(),
        };
        let waits = Waits::new(snapshot, map, estimated.counts());
        let has_time = estimated.time().is_some() || estimated.counts().waited.is_some();
        let walker = Walker::new(snapshot, map);
        let scale = scale(snapshot, estimated.counts(), event_idx);
        for chain in chains {
            let (calls, end) = walker.walk(&chain.frames, chain.top);
            callers.ends.add(end, chain.hits);
            let Some((here, blocks)) = chain.ip.and_then(|ip| {
                let blocks = map.text(ip.text)?;
                Some(((ip.text, blocks.find(ip.addr).ok()?), blocks))
            }) else {
                callers.ends.unresolved = callers.ends.unresolved.saturating_add(chain.hits);
                continue;
            };
            // Without time, samples stay where they are in the rest of the report, too.
            let spenders = match has_time {
                true => waits.of(chain.event, ProcessIdx::OTHERS, here),
                false => vec![(here, 1.0)],
            };
            // At the start of a function, the chain knows which of its calls it was.
            let led = calls
                .first()
                .filter(|call| spenders.iter().any(|(it, _)| it == *call));
            let spenders = led.map_or(spenders, |call| vec![(*call, 1.0)]);
            // The sampled address is a return address: a return that spent the time had been called from there.
            let called = blocks.instruction(here.1).and_then(|it| {
                let addr = ImageAddr(blocks.addr(it).0.checked_sub(1)?);
                walker.call(Location { text: here.0, addr }, false)
            });
            for (spender, share) in spenders {
                let called = called.filter(|call| spender != here && spender != *call);
                let amount = Amount {
                    hits: share * chain.hits as f64,
                    units: scale * share * chain.weight as f64,
                };
                callers.total += amount;
                callers.charged.push(Charged {
                    spender,
                    calls: called.iter().chain(&calls).copied().collect(),
                    amount,
                });
            }
        }
        Some(callers)
    }

    /// What each call called, summed up by `add`, by the call.
    pub(crate) fn by_call<T: Default>(&self, add: impl Fn(&mut T, &Charged)) -> BTreeMap<At, T> {
        let mut all: BTreeMap<At, T> = BTreeMap::new();
        for charged in &self.charged {
            let mut calls = charged.calls.clone();
            calls.sort_unstable();
            calls.dedup();
            for call in calls {
                add(all.entry(call).or_default(), charged);
            }
        }
        all
    }
}

#[cfg(test)]
pub(crate) mod tests;
