//! Parses what other users wrote: ELF files, and the perf maps of compilers at run time.
//!
//! A [`Parser`] works in this process, or asks a worker: a process without rights, with limits of memory and time, that
//! gets open files and answers with what it found. Both run the same functions ([`Parsed::parse`]). An answer is checked
//! like a file ([`Parsed::decode`]): the worker may be in the hands of who wrote the file.
//!
//! ```text
//! Parser -- here ----------------------------------> Parsed::parse
//!        -- worker.rs == files, question ==> serve.rs -> Parsed::parse
//!                     <== bytes ============
//! ```

mod layout_wire;
pub mod serve;
mod socket;
mod worker;

use std::sync::{Arc, Mutex, PoisonError};

use prost::bytes::Bytes;

use crate::resolve::elf::byte_source::ByteSource;
use crate::resolve::elf::functions::{Functions, SymbolFile, read_functions};
use crate::resolve::elf::layout::{ElfError, ElfLayout, read_layout};
use crate::resolve::user::perf_map::{PerfMap, read_perf_map};

pub use socket::{receive, send};
pub use worker::{Failure, Worker};

/// What is found in files.
pub(in crate::resolve) trait Parsed: Sized {
    /// Its number in a question.
    const QUESTION: u8;

    /// Parses it from one file, or from one and its debug file.
    fn parse(files: &[&ByteSource]) -> Self;

    /// Its bytes in an answer.
    fn encode(&self) -> Vec<u8>;

    /// Reads the bytes of an answer; `None` where they are not one that `parse` could have given.
    fn decode(bytes: Bytes) -> Option<Self>;
}

/// The layout of an ELF file without its sections, which only its functions are found by.
pub(in crate::resolve) type Layout = Result<ElfLayout, ElfError>;

/// Who parses files.
#[derive(Clone, Debug, Default)]
pub enum Parser {
    /// This process.
    #[default]
    Here,
    /// A worker.
    Apart(Arc<Mutex<Worker>>),
}

impl Parser {
    /// A worker.
    pub fn apart(worker: Worker) -> Self {
        Self::Apart(Arc::new(Mutex::new(worker)))
    }

    /// The layout of an ELF file, without its sections.
    pub(in crate::resolve) fn layout(&self, file: &ByteSource) -> Layout {
        self.ask(&[file]).unwrap_or(Err(ElfError::GivenUp))
    }

    /// The functions of an ELF file, with the help of its debug file where there is one. Empty where parsing was given up.
    pub(in crate::resolve) fn functions(&self, own: &ByteSource, debug: Option<&ByteSource>) -> Functions {
        let files: Vec<&ByteSource> = std::iter::once(own).chain(debug).collect();
        self.ask(&files).unwrap_or_default()
    }

    /// The functions of a perf map. Empty where parsing was given up.
    pub(in crate::resolve) fn perf_map(&self, file: &ByteSource) -> PerfMap {
        self.ask(&[file]).unwrap_or_default()
    }

    fn ask<T: Parsed>(&self, files: &[&ByteSource]) -> Option<T> {
        match self {
            Self::Here => Some(T::parse(files)),
            Self::Apart(worker) => {
                let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
                worker.ask(T::QUESTION, files, T::decode)
            }
        }
    }
}

impl Parsed for Functions {
    const QUESTION: u8 = 2;

    fn parse(files: &[&ByteSource]) -> Self {
        let layout = |nth: usize| {
            let source = *files.get(nth)?;
            Some((source, read_layout(source).ok()?))
        };
        let (own, debug) = (layout(0), layout(1));
        let Some((source, layout)) = &own else {
            return Self::default();
        };
        let debug = debug
            .as_ref()
            .filter(|(_, debug)| debug.build_id == layout.build_id);
        let debug = debug.map(|(source, layout)| SymbolFile { source, layout });
        read_functions(SymbolFile { source, layout }, debug)
    }

    fn encode(&self) -> Vec<u8> {
        self.encode_columns()
    }

    fn decode(bytes: Bytes) -> Option<Self> {
        Self::decode_columns(bytes)
    }
}

impl Parsed for PerfMap {
    const QUESTION: u8 = 3;

    fn parse(files: &[&ByteSource]) -> Self {
        files.first().map(|file| read_perf_map(file)).unwrap_or_default()
    }

    fn encode(&self) -> Vec<u8> {
        self.encode_columns()
    }

    fn decode(bytes: Bytes) -> Option<Self> {
        Self::decode_columns(bytes)
    }
}

#[cfg(test)]
mod tests;
