//! The functions of a file as a worker answers with them: a column for each field.

use prost::Message as _;

use super::{FunctionRange, Functions, MAX_SYMBOLS, NameFile, NameTable, STUB_SUFFIX, UNNAMED};

/// Ranges of symbols, stubs and unwind tables together.
const MAX_RANGES: usize = 2 * MAX_SYMBOLS;

#[derive(Clone, PartialEq, prost::Message)]
struct FunctionsMessage {
    /// Each start, less the one before: they rise.
    #[prost(uint64, repeated, tag = "1")]
    starts: Vec<u64>,
    #[prost(uint32, repeated, tag = "2")]
    lens: Vec<u32>,
    #[prost(uint32, repeated, tag = "3")]
    names: Vec<u32>,
    #[prost(bytes = "vec", tag = "4")]
    tables: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    global: Vec<u8>,
    #[prost(message, repeated, tag = "6")]
    name_tables: Vec<TableMessage>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct TableMessage {
    #[prost(bool, tag = "1")]
    of_debug_file: bool,
    #[prost(uint64, tag = "2")]
    offset: u64,
    #[prost(bool, tag = "3")]
    of_stubs: bool,
}

impl Functions {
    /// The columns.
    pub(in crate::resolve) fn encode_columns(&self) -> Vec<u8> {
        let mut before = 0;
        let starts = self.ranges.iter().map(|range| {
            let rise = range.start.saturating_sub(before);
            before = range.start;
            rise
        });
        let tables = self.names.iter().map(|table| TableMessage {
            of_debug_file: matches!(table.file, NameFile::Debug),
            offset: table.offset,
            of_stubs: !table.suffix.is_empty(),
        });
        let message = FunctionsMessage {
            starts: starts.collect(),
            lens: self.ranges.iter().map(|range| range.len).collect(),
            names: self.ranges.iter().map(|range| range.name).collect(),
            tables: self.ranges.iter().map(|range| range.table).collect(),
            global: self.ranges.iter().map(|range| u8::from(range.global)).collect(),
            name_tables: tables.collect(),
        };
        message.encode_to_vec()
    }

    /// Reads the columns; `None` where they do not fit together.
    pub(in crate::resolve) fn decode_columns(bytes: &[u8]) -> Option<Self> {
        let message = FunctionsMessage::decode(bytes).ok()?;
        let n = message.starts.len();
        let columns = [
            message.lens.len(),
            message.names.len(),
            message.tables.len(),
            message.global.len(),
        ];
        let fits = n <= MAX_RANGES && columns.iter().all(|column| *column == n);
        let names = message.name_tables.len();
        (fits && names <= usize::from(UNNAMED)).then_some(())?;
        let mut start = 0_u64;
        let mut ranges = Vec::with_capacity(n);
        let starts_lens = message.starts.iter().zip(message.lens);
        let names_tables = message.names.iter().zip(message.tables).zip(message.global);
        for ((rise, len), ((name, table), global)) in starts_lens.zip(names_tables) {
            start = start.checked_add(*rise)?;
            let is_known = table == UNNAMED || usize::from(table) < names;
            (0 < len && is_known && global <= 1).then_some(())?;
            ranges.push(FunctionRange {
                start,
                len,
                name: *name,
                table,
                global: global == 1,
            });
        }
        let names = message.name_tables.iter().map(|table| NameTable {
            file: if table.of_debug_file {
                NameFile::Debug
            } else {
                NameFile::Own
            },
            offset: table.offset,
            suffix: if table.of_stubs { STUB_SUFFIX } else { "" },
        });
        Some(Self {
            ranges,
            names: names.collect(),
            ..Self::default()
        })
    }
}
