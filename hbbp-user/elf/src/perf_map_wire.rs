//! A perf map as a worker answers with it: a column for each field of its functions.

use std::collections::BTreeMap;

use prost::Message as _;
use prost::bytes::Bytes;

use super::perf_map::{Line, MAX_FUNCTIONS, NameFormat, PerfMap};

#[derive(Clone, PartialEq, prost::Message)]
struct PerfMapMessage {
    /// Each start, less the one before: they rise.
    #[prost(uint64, repeated, tag = "1")]
    starts: Vec<u64>,
    #[prost(uint64, repeated, tag = "2")]
    lens: Vec<u64>,
    /// Where the line of each is in the file.
    #[prost(uint64, repeated, tag = "3")]
    offsets: Vec<u64>,
    #[prost(bool, tag = "4")]
    is_cut: bool,
    #[prost(bool, tag = "5")]
    is_dump: bool,
    #[prost(btree_map = "uint64, uint64", tag = "6")]
    replacing: BTreeMap<u64, u64>,
}

impl PerfMap {
    /// The columns.
    pub(crate) fn encode_columns(&self) -> Vec<u8> {
        let mut before = 0;
        let starts = self.functions.iter().map(|function| {
            let rise = function.start.saturating_sub(before);
            before = function.start;
            rise
        });
        let message = PerfMapMessage {
            starts: starts.collect(),
            lens: self.functions.iter().map(|function| function.len).collect(),
            offsets: self.functions.iter().map(|function| function.offset).collect(),
            is_cut: self.is_cut,
            is_dump: self.format == NameFormat::Records,
            replacing: self.replacing.clone(),
        };
        message.encode_to_vec()
    }

    /// Reads the columns; `None` if they do not fit together.
    pub(crate) fn decode_columns(bytes: Bytes) -> Option<Self> {
        let message = PerfMapMessage::decode(bytes).ok()?;
        let n = message.starts.len();
        let fits = n <= MAX_FUNCTIONS
            && message.lens.len() == n
            && message.offsets.len() == n
            && message.replacing.len() <= MAX_FUNCTIONS;
        fits.then_some(())?;
        let mut start = 0_u64;
        let mut functions = Vec::with_capacity(n);
        for ((rise, len), offset) in message.starts.iter().zip(message.lens).zip(message.offsets) {
            start = start.checked_add(*rise)?;
            functions.push(Line { start, len, offset });
        }
        Some(Self {
            functions,
            format: if message.is_dump {
                NameFormat::Records
            } else {
                NameFormat::Lines
            },
            is_cut: message.is_cut,
            replacing: message.replacing,
        })
    }
}
