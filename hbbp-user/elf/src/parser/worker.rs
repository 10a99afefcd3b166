//! The side that asks: sends files to a worker, waits for its answer for a bounded time, and replaces a worker that gave
//! none.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};

use super::serve::{Head, MAX_ANSWER};
use super::socket::send;
use crate::byte_source::ByteSource;

/// CPU time that a worker may take for one question, which it limits itself to: the largest programs take a tenth of it.
pub const FILE_CPU: Duration = Duration::from_secs(2);

/// Ten times that: a busy machine may take so long, and a file system that does not answer longer.
const DEADLINE: Duration = Duration::from_secs(20);

/// Why a file was not parsed; the worker was replaced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// It took too long, by the clock.
    TimedOut,
    /// More was to be read than may be for one file.
    TooLarge,
    /// Its owner has had all that may be spent on the files of one user, or all users together have.
    Refused,
    /// The worker ended: it met a limit of memory or time, or failed.
    Ended,
    /// The answer was not one.
    Invalid,
}

/// What parsing took.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Spent {
    /// CPU time of the worker.
    pub cpu: Duration,
    /// Bytes that it read.
    pub read: u64,
}

type Start = Box<dyn FnMut(OwnedFd) -> io::Result<()> + Send>;
type Tell = Box<dyn Fn(Failure) + Send>;

/// A worker, and how to start another one.
pub struct Worker {
    start: Start,
    tell: Tell,
    deadline: Duration,
    socket: Option<UnixStream>,
    /// CPU time of the worker that answers, as it said last.
    cpu: Duration,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// `start` starts a worker that [serves](super::serve::serve) at a socket, and ends the one before; `tell` receives
    /// each file that was not parsed.
    pub fn new(
        start: impl FnMut(OwnedFd) -> io::Result<()> + Send + 'static,
        tell: impl Fn(Failure) + Send + 'static,
    ) -> Self {
        Self {
            start: Box::new(start),
            tell: Box::new(tell),
            deadline: DEADLINE,
            socket: None,
            cpu: Duration::ZERO,
        }
    }

    #[cfg(test)]
    pub(super) fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Has files parsed; `None` if no valid answer came in time. A worker that gave none is taken to have spent all that it
    /// may.
    pub(super) fn ask<T>(
        &mut self,
        question: u8,
        files: &[OwnedFd],
        decode: impl FnOnce(Bytes) -> Option<T>,
    ) -> (Option<T>, Spent) {
        let began = Instant::now();
        let (answer, spent) = match self.exchange(question, files) {
            Ok((answer, read)) => {
                let cpu = answer.cpu.saturating_sub(self.cpu).min(began.elapsed());
                self.cpu = answer.cpu;
                let found = if answer.is_cut {
                    Err(Failure::TooLarge)
                } else {
                    decode(read.into()).ok_or(Failure::Invalid)
                };
                (
                    found,
                    Spent {
                        cpu,
                        read: answer.read,
                    },
                )
            }
            Err(error) => {
                let most = Spent {
                    cpu: FILE_CPU.min(began.elapsed()),
                    read: 0,
                };
                (Err(failure(&error)), most)
            }
        };
        let found = answer.inspect_err(|failure| {
            (self.tell)(*failure);
            if *failure != Failure::TooLarge {
                // The start of another one ends it at once.
                self.socket = self.connect().ok();
            }
        });
        (found.ok(), spent)
    }

    /// Reports a file that it was not asked about.
    pub(super) fn refuse(&self) {
        (self.tell)(Failure::Refused);
    }

    fn exchange(&mut self, question: u8, files: &[OwnedFd]) -> io::Result<(Head, Vec<u8>)> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.connect()?,
        };
        let borrowed: Vec<_> = files.iter().map(OwnedFd::as_fd).collect();
        let until = Instant::now() + self.deadline;
        socket.set_write_timeout(Some(self.deadline))?;
        send(&socket, question, &borrowed)?;
        let mut head = [0; Head::LEN];
        read_until(&socket, &mut head, until)?;
        let head = Head::of(head).filter(|head| head.len <= MAX_ANSWER);
        let head = head.ok_or(io::ErrorKind::InvalidData)?;
        let mut answer = vec![0; usize::try_from(head.len).unwrap_or(0)];
        read_until(&socket, &mut answer, until)?;
        if !head.is_last {
            self.socket = Some(socket);
        }
        Ok((head, answer))
    }

    fn connect(&mut self) -> io::Result<UnixStream> {
        let (own, its) = UnixStream::pair()?;
        (self.start)(its.into())?;
        self.cpu = Duration::ZERO;
        Ok(own)
    }
}

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::TimedOut,
        io::ErrorKind::InvalidData => Failure::Invalid,
        _ => Failure::Ended,
    }
}

/// Fills `bytes` as [`io::Read::read_exact`] does, up to a time.
fn read_until(mut socket: &UnixStream, bytes: &mut [u8], until: Instant) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A descriptor that the worker can have: of the file, or of a copy of memory.
pub(super) fn descriptor(source: &ByteSource) -> io::Result<OwnedFd> {
    match source {
        ByteSource::File(file, _) | ByteSource::Bounded(file, ..) => Ok(file.try_clone()?.into()),
        ByteSource::Memory(bytes) => {
            let mut copy = std::fs::File::from(memfd_create(c"image", MemfdFlags::CLOEXEC)?);
            copy.write_all(bytes)?;
            Ok(copy.into())
        }
    }
}
