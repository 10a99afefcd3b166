//! The side that asks: sends files to a worker, waits for its answer for a bounded time, and replaces a worker that gave
//! none.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};

use super::serve::{HEAD, LAST, MAX_ANSWER};
use super::socket::send;
use crate::resolve::elf::byte_source::ByteSource;

/// The largest programs take a tenth of it. Records of processes wait meanwhile.
const DEADLINE: Duration = Duration::from_secs(2);

/// Why a file was not parsed; the worker was replaced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// It took too long.
    TimedOut,
    /// The worker ended: it met a limit of memory or time, or failed.
    Ended,
    /// The answer was not one.
    Invalid,
}

type Start = Box<dyn FnMut(OwnedFd) -> io::Result<()> + Send>;
type Tell = Box<dyn Fn(Failure) + Send>;

/// A worker, and how to start another one.
pub struct Worker {
    start: Start,
    tell: Tell,
    deadline: Duration,
    socket: Option<UnixStream>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// `start` starts a worker that [serves](super::serve::serve) at a socket, and ends the one before; `tell` is told of
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
        }
    }

    #[cfg(test)]
    pub(super) fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Has files parsed; `None` where no valid answer came in time.
    pub(super) fn ask<T>(
        &mut self,
        question: u8,
        files: &[&ByteSource],
        decode: impl FnOnce(Bytes) -> Option<T>,
    ) -> Option<T> {
        let answer = match self.exchange(question, files) {
            Ok(answer) => decode(answer.into()).ok_or(Failure::Invalid),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Err(Failure::TimedOut)
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Failure::Invalid),
            Err(_) => Err(Failure::Ended),
        };
        answer
            .inspect_err(|failure| {
                (self.tell)(*failure);
                // The start of another one ends it at once.
                self.socket = self.connect().ok();
            })
            .ok()
    }

    fn exchange(&mut self, question: u8, files: &[&ByteSource]) -> io::Result<Vec<u8>> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.connect()?,
        };
        let files = files.iter().map(|file| descriptor(file));
        let files: Vec<OwnedFd> = files.collect::<io::Result<_>>()?;
        let borrowed: Vec<_> = files.iter().map(OwnedFd::as_fd).collect();
        let until = Instant::now() + self.deadline;
        socket.set_write_timeout(Some(self.deadline))?;
        send(&socket, question, &borrowed)?;
        let mut head = [0; HEAD];
        read_until(&socket, &mut head, until)?;
        let [a, b, c, d, last] = head;
        let len = u32::from_le_bytes([a, b, c, d]);
        if MAX_ANSWER < len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut answer = vec![0; usize::try_from(len).unwrap_or(0)];
        read_until(&socket, &mut answer, until)?;
        if last != LAST {
            self.socket = Some(socket);
        }
        Ok(answer)
    }

    fn connect(&mut self) -> io::Result<UnixStream> {
        let (own, its) = UnixStream::pair()?;
        (self.start)(its.into())?;
        Ok(own)
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
fn descriptor(source: &ByteSource) -> io::Result<OwnedFd> {
    match source {
        ByteSource::File(file, _) => Ok(file.try_clone()?.into()),
        ByteSource::Memory(bytes) => {
            let mut copy = std::fs::File::from(memfd_create(c"image", MemfdFlags::CLOEXEC)?);
            copy.write_all(bytes)?;
            Ok(copy.into())
        }
    }
}
