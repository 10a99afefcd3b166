//! The section `text`: the executed bytes.
//!
//! ```text
//! text := range*      range := module start since bytes
//! ```
//!
//! `start` is the difference to the row before, and to 0 in the first row.

use std::io::{self, Write};

use prost::bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::images::stored_len;
use super::malformed::{Capacity, Malformed};
use super::number::{Reader, Rows};
use crate::addr::ImageAddr;
use crate::snapshot::{ModuleIdx, Text};

/// The section `text`, as it is read.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::snapshot) struct TextSection {
    #[prost(bytes = "bytes", tag = "1")]
    rows: Bytes,
}

impl TextSection {
    /// Length of the message of these text ranges in bytes.
    pub(in crate::snapshot) fn len(text: &[Text]) -> usize {
        head(text).len() + rows_len(text)
    }

    /// Writes the message of these text ranges, range by range: text is most of a profile, and is in memory already.
    pub(in crate::snapshot) fn write(text: &[Text], out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&head(text))?;
        for (head, bytes) in rows(text) {
            out.write_all(&head.0)?;
            out.write_all(bytes)?;
        }
        Ok(())
    }

    /// The text ranges.
    pub(in crate::snapshot) fn read(&self, capacity: &mut Capacity) -> Result<Vec<Text>, Malformed> {
        let mut rows = Reader::new("text ranges", &self.rows);
        let mut start = 0;
        let mut text = Vec::new();
        while !rows.is_at_end() {
            let module = ModuleIdx(rows.number32()?);
            let start = ImageAddr(rows.next(&mut start)?);
            let since = rows.number32()?;
            let bytes = rows.bytes()?;
            capacity.take(rows.table, size_of::<Text>() + bytes.len())?;
            text.push(Text {
                module,
                start,
                bytes: bytes.to_vec(),
                since,
            });
        }
        Ok(text)
    }
}

/// What comes before the rows: protobuf leaves out an empty field.
fn head(text: &[Text]) -> Vec<u8> {
    let mut head = Vec::new();
    if !text.is_empty() {
        encode_key(1, WireType::LengthDelimited, &mut head);
        encode_varint(stored_len(rows_len(text)), &mut head);
    }
    head
}

/// The rows of text ranges: the numbers of each, and its bytes.
fn rows(text: &[Text]) -> impl Iterator<Item = (Rows, &[u8])> {
    let mut start = 0;
    text.iter().map(move |text| {
        let mut row = Rows::default();
        row.number(text.module.0.into());
        row.next(&mut start, text.start.0);
        row.number(text.since.into());
        row.number(stored_len(text.bytes.len()));
        (row, text.bytes.as_slice())
    })
}

fn rows_len(text: &[Text]) -> usize {
    rows(text).map(|(head, bytes)| head.0.len() + bytes.len()).sum()
}
