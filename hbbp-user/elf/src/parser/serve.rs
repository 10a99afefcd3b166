//! The side that parses: gets files and a question, and answers, one after the other.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::parsed::{Layout, Parsed};
use super::socket::receive;
use crate::byte_source::{ByteSource, Readable};
use crate::functions::Functions;
use crate::perf_map::PerfMap;

/// The largest answers are those on files with millions of functions.
pub(super) const MAX_ANSWER: u32 = 96 << 20;

/// Bytes that are read of the files of one question: five times the tables of the largest browsers.
const MAX_READ: u64 = 256 << 20;

/// CPU time after which a worker is replaced when it has answered. So it never meets the limit of its process in the middle
/// of a file.
const CPU_SPENT: Duration = Duration::from_secs(5);

/// What precedes each answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Head {
    /// Length of the answer.
    pub(super) len: u32,
    /// Whether it is the last one of this worker.
    pub(super) is_last: bool,
    /// Whether there was more to read than may be.
    pub(super) is_cut: bool,
    /// CPU time of the worker so far.
    pub(super) cpu: Duration,
    /// Bytes that were read for this answer.
    pub(super) read: u64,
}

impl Head {
    pub(super) const LEN: usize = 22;

    pub(super) fn of(bytes: [u8; Self::LEN]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk()?;
        let ([is_last, is_cut], rest) = rest.split_first_chunk()?;
        let (cpu, rest) = rest.split_first_chunk()?;
        let (read, _) = rest.split_first_chunk()?;
        Some(Self {
            len: u32::from_le_bytes(*len),
            is_last: *is_last != 0,
            is_cut: *is_cut != 0,
            cpu: Duration::from_nanos(u64::from_le_bytes(*cpu)),
            read: u64::from_le_bytes(*read),
        })
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        let cpu = u64::try_from(self.cpu.as_nanos()).unwrap_or(u64::MAX);
        let mut bytes = self.len.to_le_bytes().to_vec();
        bytes.extend([u8::from(self.is_last), u8::from(self.is_cut)]);
        bytes.extend(cpu.to_le_bytes());
        bytes.extend(self.read.to_le_bytes());
        bytes
    }
}

/// Answers until the other end is closed, or the worker has taken much CPU time. `begin` begins the time of a question, and
/// `cpu` is the CPU time so far.
pub fn serve(mut socket: &UnixStream, begin: impl Fn(), cpu: impl Fn() -> Duration) -> io::Result<()> {
    while let Some((question, files)) = receive(socket)? {
        begin();
        let readable = Arc::new(Readable::new(MAX_READ));
        let bounded = files.into_iter().map(|file| source(file, &readable));
        let files: Vec<ByteSource> = bounded.collect::<io::Result<_>>()?;
        let files: Vec<&ByteSource> = files.iter().collect();
        let answer = match question {
            Layout::QUESTION => Layout::parse(&files).encode(),
            Functions::QUESTION => Functions::parse(&files).encode(),
            PerfMap::QUESTION => PerfMap::parse(&files).encode(),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let head = Head {
            len: u32::try_from(answer.len()).unwrap_or(u32::MAX),
            is_last: CPU_SPENT <= cpu(),
            is_cut: readable.is_spent(),
            cpu: cpu(),
            read: readable.n_read(),
        };
        socket.write_all(&head.bytes())?;
        socket.write_all(&answer)?;
        if head.is_last {
            break;
        }
    }
    Ok(())
}

fn source(file: File, readable: &Arc<Readable>) -> io::Result<ByteSource> {
    let len = file.metadata()?.len();
    Ok(ByteSource::Bounded(file, len, Arc::clone(readable)))
}
