//! Questions without a waiting caller: a thread passes them to a worker and delivers the answers as they arrive. Root's
//! files come first, then those of the user who has spent least.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::allowance::Allowance;
use super::worker::{Spent, Worker};

/// Questions that wait; each holds its files open. More than programs and libraries that a machine runs in a drain.
const MAX_WAITING: usize = 256;

/// What was found in a file, or will be.
#[derive(Debug)]
pub enum Answer<T> {
    /// It is there; `None` if parsing was given up.
    There(Option<T>),
    /// It is not there yet.
    Awaited(Receiver<Option<T>>),
}

impl<T> Answer<T> {
    /// What was found, if it is there within a time; `Some(None)` if parsing was given up.
    pub fn within(&mut self, time: Duration) -> Option<Option<&T>> {
        if let Self::Awaited(answers) = self {
            match answers.recv_timeout(time) {
                Ok(found) => *self = Self::There(found),
                Err(RecvTimeoutError::Disconnected) => *self = Self::There(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        match self {
            Self::There(found) => Some(found.as_ref()),
            Self::Awaited(_) => None,
        }
    }
}

/// Does what a question asks for with the worker, or without one where the question is refused.
type Question = Box<dyn FnOnce(Option<&mut Worker>) -> Spent + Send>;

struct Waiting {
    /// Who owns the file.
    user: u32,
    question: Question,
}

/// Puts questions to a worker.
pub(super) struct Queue {
    thread: Mutex<Thread>,
    /// CPU time that was spent, in ns.
    spent: Arc<AtomicU64>,
}

/// The thread starts with the first question: threads block the signals that the one which starts them blocks.
enum Thread {
    NotYet(Option<Worker>),
    Running(SyncSender<Waiting>),
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("spent", &self.spent)
            .finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new(worker: Worker, spent: Arc<AtomicU64>) -> Self {
        Self {
            thread: Mutex::new(Thread::NotYet(Some(worker))),
            spent,
        }
    }

    /// Asks about a file of a user; the question is put to the worker when its turn comes.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        user: u32,
        put: impl FnOnce(&mut Worker) -> (Option<T>, Spent) + Send + 'static,
    ) -> Answer<T> {
        let (found, answer) = channel();
        let all = Arc::clone(&self.spent);
        let question = move |worker: Option<&mut Worker>| {
            let (answer, spent) = worker.map_or((None, Spent::default()), put);
            // Before the answer, so that whoever has it finds its cost.
            add(&all, spent.cpu);
            // The caller may have stopped waiting.
            let _ = found.send(answer);
            spent
        };
        let waiting = Waiting {
            user,
            question: Box::new(question),
        };
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Thread::NotYet(worker) = &mut *thread
            && let Some(worker) = worker.take()
        {
            let (questions, asked) = sync_channel(MAX_WAITING);
            let work = move || put_all(&asked, worker);
            if thread::Builder::new()
                .name("files".to_owned())
                .spawn(work)
                .is_ok()
            {
                *thread = Thread::Running(questions);
            }
        }
        let is_asked = match &*thread {
            Thread::Running(questions) => questions.try_send(waiting).is_ok(),
            Thread::NotYet(_) => false,
        };
        if is_asked {
            Answer::Awaited(answer)
        } else {
            Answer::There(None)
        }
    }
}

/// Passes questions to the worker until all senders are gone.
fn put_all(asked: &Receiver<Waiting>, mut worker: Worker) {
    let began = Instant::now();
    let mut allowance = Allowance::default();
    let mut waiting: Vec<Waiting> = Vec::new();
    loop {
        if waiting.is_empty() {
            let Ok(first) = asked.recv() else { return };
            waiting.push(first);
        }
        let room = MAX_WAITING.saturating_sub(waiting.len());
        waiting.extend(asked.try_iter().take(room));
        let now = began.elapsed();
        let users = waiting.iter().enumerate();
        // Everybody runs the libraries of root.
        let least =
            users.min_by_key(|(nth, waiting)| (waiting.user != 0, allowance.spent(waiting.user, now), *nth));
        let Some(nth) = least.map(|(nth, _)| nth) else {
            continue;
        };
        let Waiting { user, question } = waiting.remove(nth);
        let is_allowed = allowance.allows(user, now);
        if !is_allowed {
            worker.refuse();
        }
        let cost = question(is_allowed.then_some(&mut worker));
        allowance.charge(user, cost, began.elapsed());
    }
}

/// Adds to CPU time in ns.
pub(super) fn add(spent: &AtomicU64, cpu: Duration) {
    spent.fetch_add(
        u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX),
        Ordering::Relaxed,
    );
}
