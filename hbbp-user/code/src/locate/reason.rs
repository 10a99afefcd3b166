//! Reasons why a recorded count cannot be used, each with its id and message.
//!
//! Losses before counting are in [`hbbp_model::snapshot::loss`].
//! [`super::locate`] assigns the reasons that follow from mappings and text, [`hbbp_estimate`] those that follow from
//! the instructions.
//! Tallies close: used and tallied counts add up to the counts of the snapshot.

use std::collections::BTreeMap;

use hbbp_ebpf::stream::Refusal;

use hbbp_model::addr::Ring;
use hbbp_model::snapshot::EventIdx;

macro_rules! reasons {
    ($(#[$about:meta])* $name:ident { $($variant:ident, $id:literal, $sentence:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum $name {
            $(#[doc = $sentence] $variant,)*
        }

        impl $name {
            /// All of them, in the order of the report.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Stable name, used in JSON and in exports.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id),* }
            }

            /// Message, to be read after the count.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence),* }
            }
        }
    };
}

reasons! {
    /// Why a sample is not in the mix.
    Unresolved {
        NoMapping, "ip.no_mapping",
            "samples unresolved: address outside any known executable mapping";
        NoText, "ip.no_text",
            "samples unresolved: the code of this file could not be read";
        NotOnInstruction, "ip.not_on_instruction",
            "samples unresolved: address inside an instruction, so other text ran";
        Undecodable, "ip.undecodable",
            "samples unresolved: invalid instruction bytes";
        Halted, "ip.halted",
            "samples excluded: the CPU was halted and executed nothing";
    }
}

reasons! {
    /// Why a stream of a branch stack is not in the estimate.
    Discard {
        Crossing, "stream.crossing",
            "streams discarded: start and end in different rings, so a branch entry is missing";
        Backward, "stream.backward",
            "streams discarded: end before start, from a repeated or missing branch entry";
        Long, "stream.long",
            "streams discarded: too long for straight-line code, so a branch entry is missing";
        NoMapping, "stream.no_mapping",
            "streams discarded: start or end outside any known executable mapping";
        NoText, "stream.no_text",
            "streams discarded: the code at start or end could not be read";
        CrossesText, "stream.crosses_text",
            "streams discarded: start and end in different text ranges, so a branch entry is missing";
        NotOnInstruction, "stream.not_on_instruction",
            "streams discarded: start or end inside an instruction";
        Undecodable, "stream.undecodable",
            "streams discarded: invalid instruction bytes";
        PassesBranch, "stream.passes_branch",
            "streams discarded: run past an unconditional branch, so a branch entry is missing";
    }
}

impl Discard {
    /// Whether something other than the stream was executed: then its weight is redistributed to the other streams.
    /// Where only its text is unknown, its executions are missing.
    pub const fn is_impossible(self) -> bool {
        matches!(
            self,
            Self::Crossing | Self::Backward | Self::Long | Self::CrossesText | Self::PassesBranch
        )
    }
}

impl From<Refusal> for Discard {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Crossing => Self::Crossing,
            Refusal::Backward => Self::Backward,
            Refusal::Long => Self::Long,
        }
    }
}

/// Counts of the two rings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PerRing {
    /// Ring 0.
    pub kernel: u64,
    /// Ring 3.
    pub user: u64,
}

/// Counts of each reason, by event and ring.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tally<R: Ord>(pub BTreeMap<(EventIdx, R), PerRing>);

impl<R: Ord> Default for Tally<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl PerRing {
    /// Counts `n` more in one ring.
    pub fn add(&mut self, ring: Ring, n: u64) {
        let count = match ring {
            Ring::Kernel => &mut self.kernel,
            Ring::User => &mut self.user,
        };
        *count = count.saturating_add(n);
    }

    /// Both rings together.
    pub const fn total(self) -> u64 {
        self.kernel.saturating_add(self.user)
    }
}

impl<R: Ord + Copy> Tally<R> {
    /// Counts `n` more.
    pub fn add(&mut self, event: EventIdx, reason: R, ring: Ring, n: u64) {
        self.0.entry((event, reason)).or_default().add(ring, n);
    }

    /// Adds another tally of the same reasons.
    pub fn merge(&mut self, other: &Self) {
        for (&(event, reason), &counts) in &other.0 {
            self.add(event, reason, Ring::Kernel, counts.kernel);
            self.add(event, reason, Ring::User, counts.user);
        }
    }

    /// Counts of one reason over all events.
    pub fn get(&self, reason: R) -> PerRing {
        self.sum(|_, r| r == reason)
    }

    /// Counts of all reasons of these events, which are sorted.
    pub fn of_events(&self, events: &[EventIdx]) -> PerRing {
        self.sum(|e, _| events.binary_search(&e).is_ok())
    }

    /// Counts of all reasons, by event.
    pub fn by_event(&self) -> BTreeMap<EventIdx, PerRing> {
        let mut by_event: BTreeMap<EventIdx, PerRing> = BTreeMap::new();
        for ((event, _), counts) in &self.0 {
            let sum = by_event.entry(*event).or_default();
            sum.add(Ring::Kernel, counts.kernel);
            sum.add(Ring::User, counts.user);
        }
        by_event
    }

    /// Counts of all reasons of one event.
    pub fn of_event(&self, event: EventIdx) -> PerRing {
        self.sum(|e, _| e == event)
    }

    fn sum(&self, wanted: impl Fn(EventIdx, R) -> bool) -> PerRing {
        let mut sum = PerRing::default();
        for (_, counts) in self
            .0
            .iter()
            .filter(|((event, reason), _)| wanted(*event, *reason))
        {
            sum.add(Ring::Kernel, counts.kernel);
            sum.add(Ring::User, counts.user);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::Loss;

    #[test]
    fn reason_ids_are_unique() {
        let ids = Unresolved::ALL
            .iter()
            .map(|r| r.id())
            .chain(Discard::ALL.iter().map(|r| r.id()));
        let mut seen = std::collections::BTreeSet::new();
        for id in ids {
            assert!(seen.insert(id), "duplicate id {id}");
        }
    }

    #[test]
    fn refusals_have_one_name_and_sentence_live_and_in_recordings() {
        for (loss, discard) in [
            (Loss::Crossing, Discard::Crossing),
            (Loss::Backward, Discard::Backward),
            (Loss::Long, Discard::Long),
        ] {
            assert_eq!((loss.id(), loss.sentence()), (discard.id(), discard.sentence()));
        }
    }

    #[test]
    fn tally_sums_by_event_and_by_reason() {
        let mut tally = Tally::default();
        tally.add(EventIdx(0), Unresolved::NoText, Ring::Kernel, 2);
        tally.add(EventIdx(1), Unresolved::NoText, Ring::User, 3);
        tally.add(EventIdx(1), Unresolved::NoMapping, Ring::User, 4);
        let copy = tally.clone();
        tally.merge(&copy);
        assert_eq!(tally.get(Unresolved::NoText), PerRing { kernel: 4, user: 6 });
        assert_eq!(tally.of_event(EventIdx(1)).total(), 14);
        assert_eq!(tally.of_events(&[EventIdx(1)]).total(), 14);
        assert_eq!(tally.of_events(&[EventIdx(0), EventIdx(1)]).total(), 18);
        assert_eq!(tally.by_event()[&EventIdx(0)], PerRing { kernel: 4, user: 0 });
    }
}
