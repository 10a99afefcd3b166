//! A perf map as a worker answers with it: its text, and a column for each field of its functions.

use prost::Message as _;
use prost::bytes::Bytes;

use super::perf_map::{MAX_FUNCTIONS, NamedRange, PerfMap};

#[derive(Clone, PartialEq, prost::Message)]
struct PerfMapMessage {
    #[prost(bytes = "vec", tag = "1")]
    text: Vec<u8>,
    /// Each start, less the one before: they rise.
    #[prost(uint64, repeated, tag = "2")]
    starts: Vec<u64>,
    #[prost(uint64, repeated, tag = "3")]
    lens: Vec<u64>,
    /// Where each name begins in the text.
    #[prost(uint32, repeated, tag = "4")]
    names: Vec<u32>,
    /// Where it ends.
    #[prost(uint32, repeated, tag = "5")]
    name_ends: Vec<u32>,
    #[prost(bool, tag = "6")]
    is_cut: bool,
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
            text: self.text.clone(),
            starts: starts.collect(),
            lens: self.functions.iter().map(|function| function.len).collect(),
            names: self
                .functions
                .iter()
                .map(|function| function.name.start)
                .collect(),
            name_ends: self.functions.iter().map(|function| function.name.end).collect(),
            is_cut: self.is_cut,
        };
        message.encode_to_vec()
    }

    /// Reads the columns; `None` if they do not fit together.
    pub(crate) fn decode_columns(bytes: Bytes) -> Option<Self> {
        let message = PerfMapMessage::decode(bytes).ok()?;
        let n = message.starts.len();
        let columns = [message.lens.len(), message.names.len(), message.name_ends.len()];
        let fits = n <= MAX_FUNCTIONS && columns.iter().all(|column| *column == n);
        fits.then_some(())?;
        let mut start = 0_u64;
        let mut functions = Vec::with_capacity(n);
        let names = message.names.iter().zip(message.name_ends);
        for ((rise, len), (name, name_end)) in message.starts.iter().zip(message.lens).zip(names) {
            start = start.checked_add(*rise)?;
            let is_inside = *name <= name_end && (name_end as usize) <= message.text.len();
            is_inside.then_some(())?;
            functions.push(NamedRange {
                start,
                len,
                name: *name..name_end,
            });
        }
        Some(Self {
            text: message.text,
            functions,
            is_cut: message.is_cut,
        })
    }
}
