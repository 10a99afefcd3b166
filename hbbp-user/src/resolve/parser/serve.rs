//! The side that parses: gets files and a question, and answers, one after the other.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;

use super::socket::receive;
use super::{Layout, Parsed};
use crate::resolve::elf::byte_source::ByteSource;
use crate::resolve::elf::functions::Functions;
use crate::resolve::user::perf_map::PerfMap;

/// Bytes before each answer: its length, and whether it is the last one of this worker.
pub(super) const HEAD: usize = 5;
/// Marks the last answer of a worker.
pub(super) const LAST: u8 = 1;
/// The largest answers are those on files with millions of functions.
pub(super) const MAX_ANSWER: u32 = 64 << 20;

/// Answers until the other end is closed, or until `is_spent` after an answer.
pub fn serve(mut socket: &UnixStream, is_spent: impl Fn() -> bool) -> io::Result<()> {
    while let Some((question, files)) = receive(socket)? {
        let files: Vec<ByteSource> = files.into_iter().map(source).collect::<io::Result<_>>()?;
        let files: Vec<&ByteSource> = files.iter().collect();
        let answer = match question {
            Layout::QUESTION => Layout::parse(&files).encode(),
            Functions::QUESTION => Functions::parse(&files).encode(),
            PerfMap::QUESTION => PerfMap::parse(&files).encode(),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let len = u32::try_from(answer.len()).unwrap_or(u32::MAX);
        let last = is_spent();
        socket.write_all(&len.to_le_bytes())?;
        socket.write_all(&[u8::from(last) * LAST])?;
        socket.write_all(&answer)?;
        if last {
            break;
        }
    }
    Ok(())
}

fn source(file: File) -> io::Result<ByteSource> {
    let len = file.metadata()?.len();
    Ok(ByteSource::File(file, len))
}
