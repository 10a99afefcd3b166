//! What a collection knows of itself when it has stopped: its events, what was lost, what else a reader should know.

use hbbp_ebpf::EventStats;

use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::run::Event;
use hbbp_model::snapshot::{ClassCount, Loss, Losses};
use hbbp_model::streams::StackStats;

/// What a collection knows of itself when it has stopped.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The events with what the kernel counted.
    pub events: Vec<Event>,
    /// Classes of instructions that were counted with them.
    pub classes: Vec<ClassCount>,
    /// What reached a program and could not be counted.
    pub losses: Losses,
    /// What else the reader of the report should know.
    pub notes: Vec<Advised>,
}

/// The sum over all CPUs.
pub(super) fn sum(by_cpu: &[EventStats]) -> EventStats {
    by_cpu
        .iter()
        .copied()
        .fold(EventStats::default(), EventStats::plus)
}

/// Adds what the programs and the table of streams counted.
pub(super) fn add_losses(losses: &mut Losses, samples: &EventStats, stacks: &StackStats) {
    let counted = [
        (Loss::CountsRaced, samples.raced),
        (Loss::NoMap, samples.no_map),
        (Loss::NoStack, samples.no_stack),
        (Loss::WrongPath, samples.wrong_path),
        (Loss::NewestUnused, stacks.newest_unused),
        (Loss::Backward, stacks.backward),
        (Loss::Crossing, stacks.crossing),
        (Loss::Long, stacks.long),
        (Loss::Switched, stacks.switched),
        (Loss::StreamsRefused, stacks.refused),
        (Loss::OldestRefused, stacks.refused_oldest),
    ];
    for (loss, n) in counted {
        losses.add(loss, n);
    }
}

/// The kernel's limit of samples of an event a second, on each CPU.
pub(super) fn read_sample_rate() -> Option<u64> {
    let rate = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?;
    rate.trim().parse().ok()
}

/// A note if the kernel lowered its limit of samples per second, which it does when they take too much time. It stops an event
/// that exceeds the limit until the next clock tick; the event counts nothing meanwhile.
pub(super) fn throttled(before: Option<u64>, after: Option<u64>) -> Option<Advised> {
    let (before, after) = before.zip(after).filter(|(before, after)| after < before)?;
    let note = format!(
        "the kernel lowered its limit of samples (kernel.perf_event_max_sample_rate) from {before} to {after} a second \
         during the run, because they took too much time: events that took more were stopped at times, and counted \
         nothing"
    );
    Some(Advised::new(note, Advice::RarerSamples))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_a_loss_of_its_own() {
        let samples = EventStats {
            raced: 1,
            no_map: 2,
            no_stack: 3,
            wrong_path: 4,
            ..EventStats::default()
        };
        let stacks = StackStats {
            newest_unused: 5,
            backward: 6,
            crossing: 7,
            long: 8,
            switched: 9,
            refused: 10,
            refused_oldest: 11,
            ..StackStats::default()
        };
        let expected = [
            Loss::CountsRaced,
            Loss::NoMap,
            Loss::NoStack,
            Loss::WrongPath,
            Loss::NewestUnused,
            Loss::Backward,
            Loss::Crossing,
            Loss::Long,
            Loss::Switched,
            Loss::StreamsRefused,
            Loss::OldestRefused,
        ];
        let mut losses = Losses::default();
        add_losses(&mut losses, &samples, &stacks);
        let found = expected.map(|loss| losses.get(loss));
        assert_eq!(found, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(losses.iter().count(), expected.len());
    }

    #[test]
    fn a_lower_limit_of_samples_is_named() {
        assert_eq!(throttled(Some(100_000), Some(100_000)), None);
        assert_eq!(throttled(None, Some(100)), None);
        let note = throttled(Some(100_000), Some(25_000)).unwrap();
        assert!(note.text.contains("from 100000 to 25000"), "{note}");
    }
}
