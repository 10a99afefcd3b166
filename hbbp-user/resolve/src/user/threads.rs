//! Threads that are counted apart: each is an entry beside that of its process image, which has the mappings.
//!
//! The name is that of the last notification, or that which /proc shows when the first sample of the thread is resolved, or
//! that of the process: a thread begins with the name of the one that created it.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use super::hit_process::{HitProcess, hit_process};
use super::space::{Origin, UserSpace};
use hbbp_model::record::{Record, Timed};
use hbbp_model::snapshot::{ProcessIdx, Thread};
use hbbp_model::streams::ThreadCounts;

/// Most threads in a snapshot, 16 MiB; the others of a process image are counted together.
const MAX_THREADS: usize = 1 << 16;
/// Most names that are held at once. Further threads have the names that /proc shows.
const MAX_NAMES: usize = 1 << 17;

/// The threads of process images.
#[derive(Debug, Default)]
pub(super) struct Threads {
    counts: ThreadCounts,
    names: ThreadNames,
    /// Entries by the process image and the thread id.
    entries: HashMap<(ProcessIdx, u32), ProcessIdx>,
    /// Those of the last thread.
    last: Option<((ProcessIdx, u32), ProcessIdx)>,
    /// Whether there were more than [`MAX_THREADS`].
    is_full: bool,
}

/// A thread that has counts.
#[derive(Clone, Debug)]
pub(super) struct HitThread {
    /// Its process image.
    pub(super) of: ProcessIdx,
    /// Its id.
    pub(super) tid: u32,
    /// Its name; empty where it is that of the process.
    pub(super) name: Arc<str>,
}

impl Threads {
    /// Takes over a record of a live run, in the order of time.
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

impl UserSpace {
    /// Sets whether threads are kept apart. To be called before anything is counted.
    pub fn count_threads(&mut self, threads: ThreadCounts) {
        self.threads.counts = threads;
    }

    /// The entry of a thread of a process image; that of the image itself for thread id 0, and where threads are not kept
    /// apart.
    #[inline]
    pub fn thread(&mut self, process: ProcessIdx, tid: u32) -> ProcessIdx {
        if tid == 0 || self.threads.counts == ThreadCounts::Together || process == ProcessIdx::KERNEL {
            return process;
        }
        match self.threads.last {
            Some((key, entry)) if key == (process, tid) => entry,
            _ => self.look_up_thread(process, tid),
        }
    }

    #[cold]
    fn look_up_thread(&mut self, process: ProcessIdx, tid: u32) -> ProcessIdx {
        let threads = &mut self.threads;
        let is_new = !threads.entries.contains_key(&(process, tid));
        let is_beyond = is_new && MAX_THREADS <= threads.entries.len();
        threads.is_full |= is_beyond;
        let key = (process, if is_beyond { Thread::OTHERS } else { tid });
        let entry = match threads.entries.get(&key) {
            Some(entry) => *entry,
            None => self.add_thread(key),
        };
        self.threads.last = Some(((process, tid), entry));
        entry
    }

    fn add_thread(&mut self, key: (ProcessIdx, u32)) -> ProcessIdx {
        let (process, tid) = key;
        let Some(image) = hit_process(&mut self.processes, process) else {
            return process;
        };
        let (task, generation, cgroup) = (image.task, image.generation, image.cgroup.clone());
        let named = self.threads.names.get(tid);
        let is_live = matches!(self.origin, Origin::Live(_)) && self.index.is_live(task.tgid, generation);
        let read = || is_live.then(|| read_name(task.tgid, tid)).flatten();
        let thread = HitThread {
            of: process,
            tid,
            name: named.or_else(read).unwrap_or_default(),
        };
        self.processes.push(HitProcess {
            cgroup,
            thread: Some(thread),
            ..HitProcess::new(task, generation)
        });
        // The kernel stands before all of them.
        let entry = ProcessIdx(u32::try_from(self.processes.len()).unwrap_or(u32::MAX));
        self.threads.entries.insert(key, entry);
        entry
    }
}

/// The name of a live thread; `None` where it is gone.
fn read_name(tgid: u32, tid: u32) -> Option<Arc<str>> {
    let name = fs::read(format!("/proc/{tgid}/task/{tid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(Arc::from(String::from_utf8_lossy(name)))
}

/// Names of threads by their ids, as they were notified.
#[derive(Debug, Default)]
struct ThreadNames(HashMap<u32, ThreadName>);

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

    fn get(&self, tid: u32) -> Option<Arc<str>> {
        self.0.get(&tid).map(|thread| thread.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::TaskKey;
    use crate::user::recorded_files::RecordedFiles;
    use hbbp_model::snapshot::Losses;

    fn named(tid: u32, comm: &str) -> Record {
        Record::Comm {
            pid: 7,
            tid,
            comm: comm.into(),
            exec: false,
        }
    }

    /// A recording with a process whose threads have names.
    fn space() -> (UserSpace, ProcessIdx) {
        let records = [named(7, "server"), named(8, "worker"), named(8, "writer")];
        let records: Vec<Timed> = (1..)
            .zip(records)
            .map(|(time, record)| Timed { time, record })
            .collect();
        let mut space = UserSpace::recorded(&records, RecordedFiles::default());
        space.count_threads(ThreadCounts::Apart);
        let task = TaskKey { tgid: 7, exec_id: 1 };
        let image = space.process_at(task, 10, &mut Losses::default());
        (space, image)
    }

    #[test]
    fn threads_are_entries_beside_their_process() {
        let (mut space, image) = space();
        let entries = [7, 8, 9, 8, 7].map(|tid| space.thread(image, tid));
        assert_eq!(entries.map(|entry| entry.0), [2, 3, 4, 3, 2]);
        assert_eq!(space.thread(image, 0), image);
        assert_eq!(space.thread(ProcessIdx::KERNEL, 8), ProcessIdx::KERNEL);
        let (processes, _) = space.emit(&mut Vec::new(), &mut Vec::new());
        assert_eq!(processes[0].thread, None);
        let threads = processes[1..].iter().map(|process| {
            assert_eq!(process.tgid, processes[0].tgid);
            let thread = process.thread.as_ref().unwrap();
            (thread.tid, thread.name.as_str())
        });
        assert_eq!(
            threads.collect::<Vec<_>>(),
            [(7, "server"), (8, "writer"), (9, "")]
        );
    }

    #[test]
    fn threads_beyond_the_bound_are_counted_together() {
        let (mut space, image) = space();
        let n = u32::try_from(MAX_THREADS).unwrap();
        for tid in 1..=n + 100 {
            space.thread(image, tid);
        }
        let others = space.thread(image, n + 5);
        assert_eq!(others, space.thread(image, n + 6));
        assert_eq!(others.0, 1 + n + 1);
        assert_ne!(space.thread(image, 5), others);
        assert!(space.threads.take_note().unwrap().contains("65536"));
        assert_eq!(space.threads.take_note(), None);
    }

    #[test]
    fn threads_stay_together_unless_asked() {
        let (mut space, image) = space();
        space.count_threads(ThreadCounts::Together);
        assert_eq!(space.thread(image, 8), image);
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

    #[test]
    fn the_name_of_a_live_thread_is_read() {
        let own = std::process::id();
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(read_name(own, own).as_deref(), Some(comm.trim_end()));
        assert_eq!(read_name(own, u32::MAX), None);
    }
}
