//! What is found in files, and how it is parsed, answered with and read from an answer.

use prost::bytes::Bytes;

use crate::byte_source::ByteSource;
use crate::functions::{Functions, SymbolFile, read_functions};
use crate::layout::{ElfError, ElfLayout, read_layout};
use crate::perf_map::{PerfMap, read_compiled};

/// What is found in files.
pub(crate) trait Parsed: Sized {
    /// Its number in a question.
    const QUESTION: u8;

    /// Parses it from one file, or from one, its debug file, the debug file of that, and so on.
    fn parse(files: &[&ByteSource]) -> Self;

    /// Its bytes in an answer.
    fn encode(&self) -> Vec<u8>;

    /// Reads the bytes of an answer; `None` if they are not one that `parse` could have given.
    fn decode(bytes: Bytes) -> Option<Self>;
}

/// The layout of an ELF file without its sections, which only its functions are found by.
pub(crate) type Layout = Result<ElfLayout, ElfError>;

impl Parsed for Functions {
    const QUESTION: u8 = 2;

    fn parse(files: &[&ByteSource]) -> Self {
        let layouts = files
            .iter()
            .map_while(|source| Some((*source, read_layout(source).ok()?)));
        let layouts: Vec<(&ByteSource, ElfLayout)> = layouts.collect();
        let mut chain = layouts
            .iter()
            .map(|(source, layout)| SymbolFile { source, layout });
        let Some(own) = chain.next() else {
            return Self::default();
        };
        let mut last = own;
        let debug = chain.map_while(|debug| {
            let belongs = debug.belongs_to(last.layout);
            last = debug;
            belongs.then_some(debug)
        });
        let debug: Vec<SymbolFile<'_>> = debug.collect();
        read_functions(own, &debug)
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
        files.first().map(|file| read_compiled(file)).unwrap_or_default()
    }

    fn encode(&self) -> Vec<u8> {
        self.encode_columns()
    }

    fn decode(bytes: Bytes) -> Option<Self> {
        Self::decode_columns(bytes)
    }
}
