//! The events of a recording that serve, and how a sample of each is counted: its owner, what it represents, and the
//! weight of its stack where another event than taken branches triggered it.

use hbbp_ebpf::branch::BranchEntry;

use super::count::{Counter, Owner, Use};
use super::eventing::EventingIps;
use super::events::choose;

/// The process image or thread, and the interval of a sample, by its process id and thread id, and its time.
pub(crate) type FindOwner<'a> = dyn FnMut([u32; 2], u64) -> (ProcessIdx, usize) + 'a;
use super::slots::SlotWeights;
use super::stream_cost::{FindText, Trigger};
use super::{ImportError, Sample};
use hbbp_model::snapshot::run::Period;
use hbbp_model::snapshot::{Event, EventIdx, EventUnit, ProcessIdx};

/// The events that serve, in their order in the snapshot.
pub(super) struct Chosen {
    /// With the samples that were counted.
    pub(super) events: Vec<Event>,
    /// For each event of the recording: its index in the snapshot, and what of it is counted.
    uses: Vec<Option<(EventIdx, Use)>>,
    /// Weights of stacks that other events than taken branches triggered.
    pub(super) weights: SlotWeights,
    /// The eventing addresses of samples whose own is one instruction late.
    pub(super) eventing: EventingIps,
    /// The entries of the last stack that were executed.
    entries: Vec<BranchEntry>,
    /// What the user must know.
    pub(super) notes: Vec<String>,
}

impl Chosen {
    /// Of the events of a recording.
    pub(super) fn new(events: &[Event]) -> Result<Self, ImportError> {
        let choice = choose(events)?;
        let mut chosen = Self {
            events: Vec::new(),
            uses: Vec::new(),
            weights: SlotWeights::default(),
            eventing: EventingIps::default(),
            entries: Vec::new(),
            notes: choice.notes,
        };
        for (event, wanted) in events.iter().zip(choice.uses) {
            let serves = wanted != Use::default();
            let idx = EventIdx(u32::try_from(chosen.events.len()).unwrap_or(u32::MAX));
            chosen.uses.push(serves.then_some((idx, wanted)));
            if serves {
                chosen.events.push(Event {
                    branch_stack: wanted.stacks,
                    runs: 0,
                    ..event.clone()
                });
            }
        }
        Ok(chosen)
    }

    /// Whether any stack was triggered by another event than taken branches.
    pub(super) fn weighs_stacks(&self) -> bool {
        self.events.iter().any(weighs_stacks)
    }

    /// Looks at the stack of a sample before it is counted.
    pub(super) fn look(&mut self, event: usize, sample: &Sample<'_>, text: &mut FindText<'_>) {
        let serving = self.uses.get(event).copied().flatten();
        let Some((event, _)) = serving.filter(|(_, wanted)| wanted.stacks) else {
            return;
        };
        let facts = self.events.get(event.0 as usize);
        if let Some(facts) = facts.filter(|facts| weighs_stacks(facts)) {
            sample.executed(&mut self.entries);
            let counts = Trigger::of(facts);
            self.weights.look(event.0, counts, sample, &self.entries, text);
        }
    }

    /// Counts a sample of an event that serves.
    pub(super) fn count(
        &mut self,
        counter: &mut Counter,
        event: usize,
        sample: &Sample<'_>,
        exact: bool,
        owner: &mut FindOwner<'_>,
        text: &mut FindText<'_>,
    ) {
        let Some((event, wanted)) = self.uses.get(event).copied().flatten() else {
            return;
        };
        let Some(facts) = self.events.get_mut(event.0 as usize) else {
            return;
        };
        let (process, interval) = owner([sample.tgid, sample.tid], sample.time);
        facts.runs = facts.runs.saturating_add(sample.times);
        let period = match (sample.period, facts.period) {
            (Some(period), _) | (None, Period::Fixed(period) | Period::Between(period, _)) => period,
            (None, Period::Frequency(_)) => 1,
        };
        let owner = Owner {
            event,
            process,
            // The idle task, or a text without process ids.
            kernel: if sample.tgid == 0 {
                ProcessIdx::KERNEL
            } else {
                process
            },
            interval,
        };
        let weight = (wanted.stacks && weighs_stacks(facts)).then(|| {
            sample.executed(&mut self.entries);
            self.weights.weight(event.0, sample.tgid, &self.entries)
        });
        let late = wanted.ips && !exact && is_one_late(facts);
        let eventing = late.then(|| {
            sample.executed(&mut self.entries);
            self.eventing.find(sample, self.entries.first(), text)
        });
        match eventing.flatten() {
            Some(ip) => {
                let ip = Some(ip);
                counter.add(owner, &Sample { ip, ..*sample }, period, weight, true, wanted);
            }
            None => counter.add(owner, sample, period, weight, exact, wanted),
        }
    }
}

/// Whether the stacks of an event weight code by something else than its taken branches.
fn weighs_stacks(event: &Event) -> bool {
    event.branch_stack && event.unit != EventUnit::TakenBranches
}

/// Whether the addresses of an event are those of the next instruction, with branches that identify the one before
/// ([`super::eventing`]).
fn is_one_late(event: &Event) -> bool {
    event.precise == 1 && event.branch_stack
}
