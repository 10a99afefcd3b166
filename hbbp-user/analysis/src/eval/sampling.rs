//! The sampling methods of "Establishing a Base of Trust with Performance Counters for Enterprise Workloads" (ATC 2015, sections
//! 3.4 and 6): which of them a profile has the samples for.
//!
//! A method is a property of a recording: its event, precise level and period. So one profile serves one of the methods that
//! sample addresses at the most, and the two with branch stacks where it has these.

use super::amounts::Method;
use super::evaluation::Evaluation;
use hbbp_model::snapshot::run::{Period, is_prime};
use hbbp_model::snapshot::{Event, EventUnit, Snapshot};

/// A sampling method.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sampling {
    /// Imprecise; in the paper at an even, fixed period.
    Classic,
    /// Precise, at a period that is fixed and not prime.
    Precise,
    /// Precise, at a prime period.
    PrecisePrime,
    /// Precise, at periods that were drawn anew during the run. The paper draws one for each sample, which no kernel does.
    Randomised,
    /// The precisely distributed event, whose records have no shadow; at any period.
    Distributed,
    /// Precise at level 1, each address corrected by one instruction through the newest branch.
    IpPlusOne,
    /// The same of the precisely distributed event.
    IpPlusOneDistributed,
    /// Branch stacks alone.
    Lbr,
    /// Addresses and branch stacks, by the rule of HBBP.
    Hybrid,
}

/// What serves a method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served<'a> {
    /// The estimate that is its own.
    pub estimate: Method,
    /// The events it sampled.
    pub events: [Option<&'a Event>; 2],
}

/// What keeps a profile from serving a method.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unserved {
    /// No address of a retired instruction.
    #[error("the profile has no samples of retired instructions")]
    NoAddresses,
    /// Addresses of several events are one estimate.
    #[error("the profile has samples of several events of retired instructions: record each on its own")]
    Several,
    /// No branch stack.
    #[error("the profile has no branch stacks")]
    NoStacks,
    /// The kernel chose the periods, or they are unknown.
    #[error("its period is not known: record with a fixed one (-c)")]
    UnknownPeriod,
    /// The addresses were sampled by another method.
    #[error("its samples of instructions are those of {}", .0.name())]
    Other(Sampling),
    /// Stacks that no taken branch triggered are on a scale of their own, so one of the two serves alone.
    #[error(
        "{0} serve alone, as the same event triggered both: record taken branches as well (-b -e br_inst_retired.near_taken)"
    )]
    Alone(&'static str),
    /// Addresses at level 1 without branches that correct them.
    #[error(
        "its addresses are those of the next instruction, at precise level 1: record with branch stacks (-b)"
    )]
    OneLate,
}

impl Sampling {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 9] = [
        Self::Classic,
        Self::Precise,
        Self::PrecisePrime,
        Self::Randomised,
        Self::Distributed,
        Self::IpPlusOne,
        Self::IpPlusOneDistributed,
        Self::Lbr,
        Self::Hybrid,
    ];

    /// Name of its column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Precise => "precise",
            Self::PrecisePrime => "precise-prime",
            Self::Randomised => "randomised",
            Self::Distributed => "distributed",
            Self::IpPlusOne => "ip+1",
            Self::IpPlusOneDistributed => "ip+1-distributed",
            Self::Lbr => "lbr",
            Self::Hybrid => "hybrid",
        }
    }

    /// What of a profile is this method, where it was evaluated like this.
    pub fn served<'a>(self, snapshot: &'a Snapshot, evaluation: &Evaluation) -> Result<Served<'a>, Unserved> {
        let stacks = || {
            let stacked = || snapshot.run.events.iter().filter(|event| event.branch_stack);
            let taken = stacked().find(|event| event.unit == EventUnit::TakenBranches);
            let event = taken.or_else(|| stacked().next()).ok_or(Unserved::NoStacks)?;
            let used = 0.0 < evaluation.stacks;
            used.then_some(event).ok_or(Unserved::Alone("its addresses"))
        };
        let addresses = || {
            let event = addresses(snapshot)?;
            let used = 0.0 < evaluation.samples;
            used.then_some(event).ok_or(Unserved::Alone("its branch stacks"))
        };
        match self {
            Self::Lbr => Ok(Served {
                estimate: Method::Lbr,
                events: [Some(stacks()?), None],
            }),
            Self::Hybrid => {
                let (addresses, stacks) = (addresses()?, stacks()?);
                Ok(Served {
                    estimate: Method::Hybrid,
                    events: [Some(addresses), Some(stacks)],
                })
            }
            _ => {
                let event = addresses()?;
                match of_addresses(event)? {
                    found if found == self => Ok(Served {
                        estimate: Method::Ebs,
                        events: [Some(event), None],
                    }),
                    found => Err(Unserved::Other(found)),
                }
            }
        }
    }
}

/// The event whose addresses serve.
fn addresses(snapshot: &Snapshot) -> Result<&Event, Unserved> {
    let events = snapshot.run.events.iter();
    let mut events = events.filter(|event| event.unit == EventUnit::Instructions && 0 < event.runs);
    match (events.next(), events.next()) {
        (None, _) => Err(Unserved::NoAddresses),
        (Some(event), None) => Ok(event),
        (Some(_), Some(_)) => Err(Unserved::Several),
    }
}

/// The method that sampled the addresses of an event.
fn of_addresses(event: &Event) -> Result<Sampling, Unserved> {
    let is_even = match event.period {
        Period::Fixed(period) if period < 2 => return Err(Unserved::UnknownPeriod),
        Period::Frequency(_) => return Err(Unserved::UnknownPeriod),
        Period::Fixed(period) => !is_prime(period),
        // Those that are adapted are prime.
        Period::Between(..) => false,
    };
    match (event.precise, event.branch_stack) {
        // At any period: its shadow outweighs what a prime one gains.
        (0, _) => Ok(Sampling::Classic),
        (1, true) if is_distributed(event) => Ok(Sampling::IpPlusOneDistributed),
        (1, true) => Ok(Sampling::IpPlusOne),
        (1, false) => Err(Unserved::OneLate),
        _ if is_distributed(event) => Ok(Sampling::Distributed),
        _ if event.varied() => Ok(Sampling::Randomised),
        _ if is_even => Ok(Sampling::Precise),
        _ => Ok(Sampling::PrecisePrime),
    }
}

/// Whether an event is INST_RETIRED.PREC_DIST (Intel SDM volume 3, "Precise Distribution of Instructions Retired"). Its name says so,
/// or level 3, which the kernel grants to nothing else (`pebs_prec_dist` in arch/x86/events/intel/core.c).
fn is_distributed(event: &Event) -> bool {
    3 <= event.precise || event.name.to_ascii_lowercase().contains("prec_dist")
}
