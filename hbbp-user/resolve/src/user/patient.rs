//! Work that may never end, such as opening a file on a network mount that does not answer.
//!
//! A helper thread does it. After a deadline the work is given up, and the helper ends when the kernel returns; another
//! one replaces it.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// A slow disk answers within this time. Records wait meanwhile, so it must be short.
const DEADLINE: Duration = Duration::from_millis(500);
/// Helpers that were left to themselves. With more of them nothing is tried any more until one ends.
const MAX_LEFT: usize = 16;

type Job<T> = Box<dyn FnOnce() -> T + Send>;

/// Does work with results of one type, one after the other.
pub(super) struct Patient<T> {
    helper: Option<Helper<T>>,
    /// Held by each helper as long as it runs.
    helpers: Arc<()>,
}

struct Helper<T> {
    jobs: Sender<Job<T>>,
    results: Receiver<T>,
}

/// The work was not done in time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct GivenUp;

impl<T> Default for Patient<T> {
    fn default() -> Self {
        Self {
            helper: None,
            helpers: Arc::default(),
        }
    }
}

impl<T> fmt::Debug for Patient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_helpers = Arc::strong_count(&self.helpers) - 1;
        f.debug_struct("Patient").field("n_helpers", &n_helpers).finish()
    }
}

impl<T: Send + 'static> Patient<T> {
    /// Does a job, or gives it up when it takes too long.
    pub(super) fn run(&mut self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, GivenUp> {
        let helper = match self.helper.take() {
            Some(helper) => helper,
            None => self.start().ok_or(GivenUp)?,
        };
        helper.jobs.send(Box::new(job)).map_err(|_| GivenUp)?;
        let result = helper.results.recv_timeout(DEADLINE).map_err(|_| GivenUp)?;
        self.helper = Some(helper);
        Ok(result)
    }

    fn start(&self) -> Option<Helper<T>> {
        if MAX_LEFT < Arc::strong_count(&self.helpers) {
            return None;
        }
        let running = Arc::clone(&self.helpers);
        let (jobs, to_do) = channel::<Job<T>>();
        let (done, results) = channel();
        let work = move || {
            let _running = running;
            while let Ok(job) = to_do.recv() {
                if done.send(job()).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("files".to_owned()).spawn(work);
        thread.ok().map(|_| Helper { jobs, results })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_never_ends_is_given_up_and_other_work_goes_on() {
        let mut patient = Patient::default();
        assert_eq!(patient.run(|| 1), Ok(1));
        let (release, held) = channel::<()>();
        let held = move || {
            let _ = held.recv();
            2
        };
        assert_eq!(patient.run(held), Err(GivenUp));
        assert_eq!(patient.run(|| 3), Ok(3));
        assert_eq!(format!("{patient:?}"), "Patient { n_helpers: 2 }");
        drop(release);
        while Arc::strong_count(&patient.helpers) != 2 {
            thread::yield_now();
        }
        assert_eq!(patient.run(|| 4), Ok(4), "the late result is nobody's");
    }

    #[test]
    fn helpers_are_not_started_without_end() {
        let mut patient = Patient::<u32>::default();
        let others: Vec<_> = (0..=MAX_LEFT).map(|_| Arc::clone(&patient.helpers)).collect();
        assert_eq!(patient.run(|| 1), Err(GivenUp));
        drop(others);
        assert_eq!(patient.run(|| 1), Ok(1));
    }
}
