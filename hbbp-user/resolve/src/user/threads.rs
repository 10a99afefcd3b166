//! Names of threads that are counted separately, as they were notified, and which of them have entries.

use std::collections::HashMap;
use std::sync::Arc;

use hbbp_model::record::{Record, Timed};
use hbbp_model::snapshot::ProcessIdx;
use hbbp_model::streams::ThreadCounts;

/// Most threads in a snapshot, 16 MiB; the others of a process image are counted together.
pub(super) const MAX_THREADS: usize = 1 << 16;
/// Most names that are held at once. Further threads have the names that /proc shows.
const MAX_NAMES: usize = 1 << 17;

/// The threads of process images.
#[derive(Debug, Default)]
pub(super) struct Threads {
    pub(super) counts: ThreadCounts,
    pub(super) names: ThreadNames,
    /// Entries by the process image and the thread id.
    pub(super) entries: HashMap<(ProcessIdx, u32), ProcessIdx>,
    /// Those of the last thread.
    pub(super) last: Option<((ProcessIdx, u32), ProcessIdx)>,
    /// Whether there were more than [`MAX_THREADS`].
    pub(super) is_full: bool,
}

impl Threads {
    /// Applies a record of a live run, in the order of time.
    pub(super) fn apply(&mut self, timed: &Timed) {
        if self.counts == ThreadCounts::Apart {
            self.take(timed);
        }
    }

    /// The same for a recording, of which all is taken over before it is known what is asked.
    pub(super) fn take(&mut self, timed: &Timed) {
        self.names.apply(timed);
    }

    /// Forgets the names of threads that ended before `time`.
    pub(super) fn forget_before(&mut self, time: u64) {
        self.names
            .0
            .retain(|_, name| name.ended.is_none_or(|ended| time <= ended));
    }

    /// Begins another snapshot. Returns what a reader of the last one should know.
    pub(super) fn take_note(&mut self) -> Option<String> {
        self.entries.clear();
        self.last = None;
        std::mem::take(&mut self.is_full).then(|| {
            format!("more than {MAX_THREADS} threads ran: the others are counted as [other threads]")
        })
    }
}

/// Names of threads by their ids, as they were notified.
#[derive(Debug, Default)]
pub(super) struct ThreadNames(HashMap<u32, ThreadName>);

#[derive(Debug)]
struct ThreadName {
    name: Arc<str>,
    /// When the thread ended, in ns.
    ended: Option<u64>,
}

impl ThreadNames {
    fn apply(&mut self, timed: &Timed) {
        match &timed.record {
            // An exec makes the thread that called it the only one of its process, with another id (fs/exec.c, `de_thread`).
            Record::Comm { tid, comm, .. } if self.0.len() < MAX_NAMES || self.0.contains_key(tid) => {
                let name = comm.clone();
                self.0.insert(*tid, ThreadName { name, ended: None });
            }
            // The id may have been that of another thread.
            Record::Fork { tid, .. } => {
                self.0.remove(tid);
            }
            Record::Exit { tid, .. } => {
                if let Some(name) = self.0.get_mut(tid) {
                    name.ended = Some(timed.time);
                }
            }
            _ => {}
        }
    }

    /// The name of a thread that was notified.
    pub(super) fn get(&self, tid: u32) -> Option<Arc<str>> {
        self.0.get(&tid).map(|thread| thread.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(tid: u32, comm: &str) -> Record {
        Record::Comm {
            pid: 7,
            tid,
            comm: comm.into(),
            exec: false,
        }
    }

    #[test]
    fn an_id_that_is_used_again_has_another_name() {
        let mut names = ThreadNames::default();
        let records = [
            named(8, "worker"),
            Record::Exit { pid: 7, tid: 8 },
            Record::Fork {
                pid: 7,
                tid: 8,
                parent_pid: 7,
            },
        ];
        let expected = [Some("worker"), Some("worker"), None];
        for (record, expected) in records.into_iter().zip(expected) {
            names.apply(&Timed { time: 5, record });
            assert_eq!(names.get(8).as_deref(), expected);
        }
    }
}
