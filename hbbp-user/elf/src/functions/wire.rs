//! The functions of a file as a worker answers with them: a column for each field.

use prost::Message as _;
use prost::bytes::Bytes;

use super::table::{FunctionRange, Functions, MAX_SYMBOLS, NameFile, NameTable, STUB_SUFFIX, UNNAMED};
use crate::byte_source::ByteSource;
use crate::unwind::MAX_ENTRIES;
use crate::unwind_table::{Entry, UnwindTable};

/// Ranges of symbols, stubs and unwind tables together.
const MAX_RANGES: usize = 2 * MAX_SYMBOLS;

#[derive(Clone, PartialEq, prost::Message)]
struct FunctionsMessage {
    #[prost(uint64, tag = "1")]
    first: u64,
    /// Bytes from the first start: they rise. Numbers of four bytes, the least first, as in `lens` and `names`.
    #[prost(bytes = "bytes", tag = "2")]
    starts: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    lens: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    names: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    tables: Bytes,
    #[prost(bytes = "bytes", tag = "7")]
    global: Bytes,
    #[prost(message, repeated, tag = "6")]
    name_tables: Vec<TableMessage>,
    #[prost(message, optional, tag = "8")]
    unwind: Option<UnwindMessage>,
    #[prost(bytes = "bytes", tag = "9")]
    unpacked: Bytes,
    #[prost(bool, tag = "10")]
    is_cut: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnwindMessage {
    #[prost(uint64, tag = "1")]
    address: u64,
    #[prost(uint64, tag = "2")]
    offset: u64,
    /// Eight bytes for each entry, as in the file.
    #[prost(bytes = "bytes", tag = "3")]
    entries: Bytes,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct TableMessage {
    /// 0 of the file itself, 1 of what the answer holds, from 2 on of a debug file.
    #[prost(uint32, tag = "1")]
    file: u32,
    #[prost(uint64, tag = "2")]
    offset: u64,
    #[prost(bool, tag = "3")]
    of_stubs: bool,
}

impl Functions {
    /// The columns.
    pub(crate) fn encode_columns(&self) -> Vec<u8> {
        let tables = self.names.iter().map(|table| TableMessage {
            file: match table.file {
                NameFile::Own => 0,
                NameFile::Unpacked => 1,
                NameFile::Debug(nth) => 2 + u32::from(nth),
            },
            offset: table.offset,
            of_stubs: !table.suffix.is_empty(),
        });
        let message = FunctionsMessage {
            first: self.first,
            starts: self.column(|range| range.start.to_le_bytes()),
            lens: self.column(|range| range.len.to_le_bytes()),
            names: self.column(|range| range.name.to_le_bytes()),
            tables: self.column(|range| [range.table]),
            global: self.column(|range| [u8::from(range.global)]),
            name_tables: tables.collect(),
            unwind: self.unwind.as_ref().map(|table| UnwindMessage {
                address: table.address,
                offset: table.offset,
                entries: table.entries.iter().flat_map(|entry| entry.bytes()).collect(),
            }),
            unpacked: match &self.unpacked {
                ByteSource::Memory(names) => names.clone().into(),
                ByteSource::File(..) | ByteSource::Bounded(..) => Bytes::new(),
            },
            is_cut: self.is_cut,
        };
        message.encode_to_vec()
    }

    fn column<const N: usize>(&self, value: impl Fn(&FunctionRange) -> [u8; N]) -> Bytes {
        self.ranges.iter().flat_map(value).collect()
    }

    /// Reads the columns; `None` if they do not fit together.
    pub(crate) fn decode_columns(bytes: Bytes) -> Option<Self> {
        let message = FunctionsMessage::decode(bytes).ok()?;
        let n = message.tables.len();
        let columns = [&message.starts, &message.lens, &message.names];
        let fits = n <= MAX_RANGES
            && message.global.len() == n
            && columns.iter().all(|column| column.len() == 4 * n);
        let names = message.name_tables.len();
        (fits && names <= usize::from(UNNAMED)).then_some(())?;
        let last = numbers(&message.starts).last().unwrap_or(0);
        message.first.checked_add(last.into())?;
        let starts_lens = numbers(&message.starts).zip(numbers(&message.lens));
        let names_tables = numbers(&message.names).zip(&message.tables).zip(&message.global);
        let mut ranges = Vec::with_capacity(n);
        let mut before = 0;
        for ((start, len), ((name, &table), &global)) in starts_lens.zip(names_tables) {
            let is_known = table == UNNAMED || usize::from(table) < names;
            (before <= start && 0 < len && is_known && global <= 1).then_some(())?;
            before = start;
            ranges.push(FunctionRange {
                start,
                len,
                name,
                table,
                global: global == 1,
            });
        }
        let names = message.name_tables.iter().map(|table| NameTable {
            file: match table.file {
                0 => NameFile::Own,
                1 => NameFile::Unpacked,
                nth => NameFile::Debug(u8::try_from(nth - 2).unwrap_or(u8::MAX)),
            },
            offset: table.offset,
            suffix: if table.of_stubs { STUB_SUFFIX } else { "" },
        });
        let unwind = message.unwind.map(|table| {
            let entries = table.entries.as_chunks::<8>().0.iter().take(MAX_ENTRIES);
            let entries = entries.map(|bytes| Entry::of(*bytes)).collect();
            UnwindTable::new(table.address, table.offset, entries)
        });
        Some(Self {
            first: message.first,
            unwind,
            ranges,
            names: names.collect(),
            unpacked: ByteSource::Memory(message.unpacked.into()),
            is_cut: message.is_cut,
            ..Self::default()
        })
    }
}

fn numbers(column: &[u8]) -> impl Iterator<Item = u32> {
    let (numbers, _) = column.as_chunks::<4>();
    numbers.iter().map(|bytes| u32::from_le_bytes(*bytes))
}
