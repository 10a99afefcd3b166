//! Threads that are counted separately: each is an entry in addition to that of its process image, which has the
//! mappings.
//!
//! The name is that of the last notification, or that which /proc shows when the first sample of the thread is resolved, or
//! that of the process: a thread begins with the name of the one that created it.

use std::fs;
use std::sync::Arc;

use super::hit_process::{HitProcess, HitThread, hit_process};
use super::space::{Origin, UserSpace};
use super::threads::MAX_THREADS;
use hbbp_model::snapshot::{ProcessIdx, Thread};
use hbbp_model::streams::ThreadCounts;

impl UserSpace {
    /// Sets whether threads are kept separate. Call it before anything is counted.
    pub(crate) fn count_threads(&mut self, threads: ThreadCounts) {
        self.threads.counts = threads;
    }

    /// The entry of a thread of a process image; that of the image itself for thread id 0, and where threads are not
    /// kept separate.
    #[inline]
    pub(crate) fn thread(&mut self, process: ProcessIdx, tid: u32) -> ProcessIdx {
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
            None => self.add_thread(process, key.1),
        };
        self.threads.last = Some(((process, tid), entry));
        entry
    }

    fn add_thread(&mut self, process: ProcessIdx, tid: u32) -> ProcessIdx {
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
        // The kernel precedes all of them.
        let entry = ProcessIdx(u32::try_from(self.processes.len()).unwrap_or(u32::MAX));
        self.threads.entries.insert((process, tid), entry);
        entry
    }
}

/// The name of a live thread; `None` if it is gone.
fn read_name(tgid: u32, tid: u32) -> Option<Arc<str>> {
    let name = fs::read(format!("/proc/{tgid}/task/{tid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(Arc::from(String::from_utf8_lossy(name)))
}

#[cfg(test)]
mod tests {
    use super::super::recorded_files::RecordedFiles;
    use super::*;
    use crate::raw::TaskKey;
    use hbbp_model::record::{Record, Timed};
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
    fn threads_are_entries_next_to_their_process() {
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
    fn the_name_of_a_live_thread_is_read() {
        let own = std::process::id();
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(read_name(own, own).as_deref(), Some(comm.trim_end()));
        assert_eq!(read_name(own, u32::MAX), None);
    }
}
