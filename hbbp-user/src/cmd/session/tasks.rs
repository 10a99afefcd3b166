//! The tasks of a command or a process whose events follow tasks: each begins a period of its own, and the last one of each is
//! counted without a sample.

use std::collections::HashSet;

use hbbp_collect::Scope;
use hbbp_model::record::{Record, Timed};
use hbbp_model::snapshot::{Event, Run};

/// Processes that are followed at once; what those beyond start is not counted.
const MOST_PROCESSES: usize = 1 << 16;

/// Below this part of the expected samples, as its denominator, unfinished periods are not worth a sentence.
const WORTH_SAYING: u64 = 100;

/// The processes that are measured, and how many tasks these began.
#[derive(Debug)]
pub(super) struct Followed {
    processes: HashSet<u32>,
    /// Since the last profile was taken.
    begun: u64,
}

impl Followed {
    /// The first process, where events follow tasks.
    pub(super) fn of(scope: &Scope) -> Option<Self> {
        match scope {
            Scope::Command(pid) | Scope::Process(pid) => Some(Self {
                processes: HashSet::from([*pid]),
                begun: 0,
            }),
            Scope::System | Scope::Cpus(_) | Scope::Cgroup(_) => None,
        }
    }

    /// Counts the tasks that began.
    pub(super) fn note_records(&mut self, records: &[Timed]) {
        for timed in records {
            let Record::Fork { pid, parent_pid, .. } = timed.record else {
                continue;
            };
            if self.processes.contains(&parent_pid) {
                self.begun = self.begun.saturating_add(1);
                if self.processes.len() < MOST_PROCESSES {
                    self.processes.insert(pid);
                }
            } else {
                // Another process that has the id of one that ended.
                self.processes.remove(&pid);
            }
        }
    }

    /// What a reader of this run should know of them, from the last call on.
    pub(super) fn take_note(&mut self, run: &Run) -> Option<String> {
        let begun = std::mem::take(&mut self.begun);
        let due: u64 = run.events.iter().filter_map(Event::due).sum();
        let missing = run
            .events
            .iter()
            .filter_map(|event| Some(event.due()?.saturating_sub(event.runs)))
            .sum::<u64>();
        let explained = missing.min(begun.saturating_mul(run.events.len() as u64));
        (due < explained.saturating_mul(WORTH_SAYING)).then(|| {
            format!(
                "{begun} threads and processes were started; each ends in the middle of a sampling period, which explains up to \
                 {explained} of {missing} missing samples"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::Period;
    use hbbp_model::snapshot::run::Counter;

    fn fork(parent_pid: u32, pid: u32, tid: u32) -> Timed {
        Timed {
            time: 0,
            record: Record::Fork { pid, tid, parent_pid },
        }
    }

    /// A run of one event that received some of the samples that it expected.
    fn run(runs: u64, due: u64) -> Run {
        let counter = Counter {
            count: 10 * due,
            ..Counter::default()
        };
        Run {
            events: vec![Event {
                period: Period::Fixed(10),
                runs,
                counters: vec![counter],
                ..Event::default()
            }],
            ..Run::default()
        }
    }

    #[test]
    fn unfinished_periods_explain_no_more_than_is_missing() {
        let mut followed = Followed::of(&Scope::Command(7)).unwrap();
        let threads = (0..300).map(|tid| fork(7, 7, 1_000 + tid));
        let children = (0..200).map(|pid| fork(7, 2_000 + pid, 2_000 + pid));
        let records: Vec<Timed> = threads.chain(children).collect();
        followed.note_records(&records);
        let note = followed.take_note(&run(1_690, 1_898)).unwrap();
        assert!(
            note.starts_with("500 threads") && note.contains("208 of 208"),
            "{note}"
        );
        // They were reported.
        assert_eq!(followed.take_note(&run(1_690, 1_898)), None);
        followed.note_records(&records[..50]);
        let note = followed.take_note(&run(1_690, 1_898)).unwrap();
        assert!(note.contains("50 of 208"), "{note}");
        followed.note_records(&records);
        assert_eq!(
            followed.take_note(&run(99_990, 100_000)),
            None,
            "not worth saying"
        );
    }

    #[test]
    fn tasks_of_others_are_not_counted() {
        let mut followed = Followed::of(&Scope::Process(7)).unwrap();
        // A grandchild, and a process of somebody else that later has its id.
        followed.note_records(&[fork(7, 8, 8), fork(8, 9, 9), fork(1, 20, 20), fork(20, 20, 21)]);
        assert_eq!(followed.begun, 2);
        followed.note_records(&[fork(1, 9, 9), fork(9, 30, 30)]);
        assert_eq!(followed.begun, 2);
        assert!(Followed::of(&Scope::System).is_none());
    }

    #[test]
    fn processes_that_are_followed_are_bounded() {
        let mut followed = Followed::of(&Scope::Command(1)).unwrap();
        let most = u32::try_from(MOST_PROCESSES).unwrap();
        let records: Vec<Timed> = (2..2 * most).map(|pid| fork(1, pid, pid)).collect();
        followed.note_records(&records);
        assert_eq!(followed.processes.len(), MOST_PROCESSES);
        assert_eq!(followed.begun, u64::from(2 * most - 2));
    }
}
