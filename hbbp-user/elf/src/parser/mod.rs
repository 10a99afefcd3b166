//! Parses what other users wrote: ELF files, and the perf maps of compilers at run time.
//!
//! A [`Parser`] works in this process, or asks a worker. A worker is a process without rights, with limits of memory and time.
//! It gets open files and answers with what it found. Both run the same functions ([`Parsed::parse`]). An answer is checked
//! like a file ([`Parsed::decode`]), as whoever wrote the file may control the worker.
//!
//! ```text
//! Parser -- here ----------------------------------> Parsed::parse
//!        -- worker.rs == files, question ==> serve.rs -> Parsed::parse
//!                     <== bytes ============
//! ```
//!
//! The kind of a file is found in a moment, and is waited for. Tables may take long, so a queue puts these questions to a
//! worker of their own ([`queue`]). An answer that comes too late for a drain is taken in a later one.
//! Limits are on sums: bytes and CPU time for each file, and CPU time for the files of one user and of all ([`allowance`]).
//! The user is the owner of the file, who wrote it; the process that mapped it may be gone.

mod allowance;
mod layout_wire;
mod parsed;
mod queue;
pub mod serve;
mod socket;
mod worker;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::byte_source::ByteSource;
use crate::functions::{Functions, MAX_DEBUG_FILES};
use crate::layout::ElfError;
use crate::perf_map::PerfMap;

pub(crate) use parsed::{Layout, Parsed};
pub use queue::Answer;
use queue::{Queue, add};
pub use socket::{receive, send};
use worker::descriptor;
pub use worker::{FILE_CPU, Failure, Worker};

/// Who parses files.
#[derive(Clone, Debug, Default)]
pub enum Parser {
    /// This process.
    #[default]
    Here,
    /// Workers.
    Apart(Arc<Workers>),
}

/// Workers that parse files.
#[derive(Debug)]
pub struct Workers {
    /// Reads what kind of files they are, which takes a moment and is waited for.
    layouts: Mutex<Worker>,
    /// Reads their tables, which may take long.
    tables: Queue,
    /// CPU time that they spent, in ns.
    spent: Arc<AtomicU64>,
    patience: Mutex<Patience>,
}

/// For how long the thread that reads rings may wait for answers: a tenth of the time, and no more than this at once. Nearly
/// all files are parsed within it, and their text is then read as it is hit.
const PATIENCE: Duration = Duration::from_millis(100);
const PATIENCE_PART: u32 = 10;

/// What is left of the time to wait.
#[derive(Debug)]
struct Patience {
    left: Duration,
    since: Instant,
}

impl Parser {
    /// Workers, one for what kind of files they are, and one for their tables.
    pub fn apart(layouts: Worker, tables: Worker) -> Self {
        let spent = Arc::default();
        Self::Apart(Arc::new(Workers {
            layouts: Mutex::new(layouts),
            tables: Queue::new(tables, Arc::clone(&spent)),
            spent,
            patience: Mutex::new(Patience {
                left: PATIENCE,
                since: Instant::now(),
            }),
        }))
    }

    /// CPU time that workers took so far, in ns.
    pub fn spent(&self) -> u64 {
        match self {
            Self::Here => 0,
            Self::Apart(workers) => workers.spent.load(Ordering::Relaxed),
        }
    }

    /// The layout of an ELF file, without its sections.
    pub fn layout(&self, file: &ByteSource) -> Layout {
        match self {
            Self::Here => Layout::parse(&[file]),
            Self::Apart(workers) => {
                let file = [descriptor(file).map_err(|_| ElfError::GivenUp)?];
                let mut worker = workers.layouts.lock().unwrap_or_else(PoisonError::into_inner);
                let (found, spent) = worker.ask(Layout::QUESTION, &file, Layout::decode);
                add(&workers.spent, spent.cpu);
                found.unwrap_or(Err(ElfError::GivenUp))
            }
        }
    }

    /// The functions of an ELF file, with the help of its debug file where there is one, the debug file of that, and so on.
    pub fn functions(&self, own: &ByteSource, debug: &[ByteSource]) -> Answer<Functions> {
        let debug = debug.iter().take(MAX_DEBUG_FILES);
        let files: Vec<&ByteSource> = std::iter::once(own).chain(debug).collect();
        self.ask(&files)
    }

    /// The functions of a perf map.
    pub fn perf_map(&self, file: &ByteSource) -> Answer<PerfMap> {
        self.ask(&[file])
    }

    /// What an answer says, if it has arrived or arrives within the time that may be waited for answers.
    pub fn wait<'a, T>(&self, answer: &'a mut Answer<T>) -> Option<Option<&'a T>> {
        let (Self::Apart(workers), Answer::Awaited(_)) = (self, &*answer) else {
            return answer.within(Duration::ZERO);
        };
        let mut patience = workers.patience.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let more = began.saturating_duration_since(patience.since) / PATIENCE_PART;
        let left = patience.left.saturating_add(more).min(PATIENCE);
        let found = answer.within(left);
        patience.left = left.saturating_sub(began.elapsed());
        patience.since = Instant::now();
        found
    }

    fn ask<T: Parsed + Send + 'static>(&self, files: &[&ByteSource]) -> Answer<T> {
        let workers = match self {
            Self::Here => return Answer::There(Some(T::parse(files))),
            Self::Apart(workers) => workers,
        };
        let user = files.first().and_then(|file| file.owner()).unwrap_or(0);
        let files = files.iter().map(|file| descriptor(file));
        let Ok(files) = files.collect::<io::Result<Vec<OwnedFd>>>() else {
            return Answer::There(None);
        };
        let put = move |worker: &mut Worker| worker.ask(T::QUESTION, &files, T::decode);
        workers.tables.ask(user, put)
    }
}

#[cfg(test)]
mod tests;
