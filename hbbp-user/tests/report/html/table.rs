//! Reads the table of a page as its script does.

use std::collections::HashMap;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::ZlibDecoder;
use serde_json::Value;

/// The table in a page.
pub(crate) struct Table {
    pub(crate) document: Value,
    columns: HashMap<String, Vec<f64>>,
}

/// A block with its instructions as the page shows them.
pub(super) struct Block {
    pub(super) module: String,
    /// Address in the module, and length in bytes.
    pub(super) start: u64,
    pub(super) len: usize,
    pub(super) instructions: Vec<String>,
}

impl Table {
    pub(crate) fn of(page: &str) -> Self {
        let (_, after) = page.split_once("id=\"data\">").unwrap();
        let (data, _) = after.split_once('<').unwrap();
        let packed = BASE64.decode(data).unwrap();
        let mut plain = Vec::new();
        ZlibDecoder::new(packed.as_slice())
            .read_to_end(&mut plain)
            .unwrap();
        let (length, rest) = plain.split_first_chunk().unwrap();
        let (document, mut bytes) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let document: Value = serde_json::from_slice(document).unwrap();
        let mut columns = HashMap::new();
        for column in document["columns"].as_array().unwrap() {
            let len = column["len"].as_u64().unwrap();
            let coding = column["coding"].as_str().unwrap();
            let mut before = 0;
            let values = (0..len).map(|_| value(coding, &mut before, &mut bytes)).collect();
            columns.insert(column["name"].as_str().unwrap().to_owned(), values);
        }
        assert!(bytes.is_empty(), "{} bytes follow the columns", bytes.len());
        Self { document, columns }
    }

    pub(super) fn numbers(&self, column: &str) -> &[f64] {
        &self.columns[column]
    }

    fn indices(&self, column: &str) -> Vec<usize> {
        self.numbers(column)
            .iter()
            .map(|number| *number as usize)
            .collect()
    }

    fn string(&self, idx: usize) -> &str {
        self.document["strings"][idx].as_str().unwrap()
    }

    /// Instructions of both rings.
    pub(super) fn totals(&self) -> [f64; 2] {
        let mut sums = [0.0; 2];
        let blocks = self.indices("block.ring").into_iter();
        let blocks = blocks
            .zip(self.numbers("block.count"))
            .zip(self.numbers("block.size"));
        for ((ring, count), size) in blocks {
            sums[ring] += count * size;
        }
        sums
    }

    pub(super) fn blocks(&self) -> Vec<Block> {
        let (kinds, lengths) = (self.indices("kind.text"), self.indices("kind.len"));
        let (names, modules) = (self.indices("function.name"), self.indices("function.module"));
        let mut instructions = self.indices("instruction.kind").into_iter();
        let mut numbers = self.numbers("instruction.numbers").iter();
        let mut functions = self.indices("instruction.functions").into_iter();
        let mut blocks = Vec::new();
        let heads = self
            .indices("block.function")
            .into_iter()
            .zip(self.indices("block.start"));
        for ((function, start), size) in heads.zip(self.indices("block.size")) {
            let mut block = Block {
                module: String::new(),
                start: 0,
                len: 0,
                instructions: Vec::new(),
            };
            for kind in instructions.by_ref().take(size) {
                let mut text = String::new();
                for c in self.string(kinds[kind]).chars() {
                    match c {
                        '#' => text += &shown(*numbers.next().unwrap() as u64),
                        '@' => {
                            let zigzag = functions.next().unwrap() as i64;
                            let to = function as i64 + ((zigzag >> 1) ^ -(zigzag & 1));
                            text += self.string(names[to as usize]);
                        }
                        c => text.push(c),
                    }
                }
                block.instructions.push(text);
                block.len += lengths[kind];
            }
            let module = &self.document["modules"][modules[function]];
            block.module = self.string(module["name"].as_u64().unwrap() as usize).to_owned();
            let base = u64::from_str_radix(module["start"].as_str().unwrap(), 16).unwrap();
            block.start = base + start as u64;
            blocks.push(block);
        }
        assert_eq!((numbers.len(), functions.len()), (0, 0));
        blocks
    }
}

fn shown(number: u64) -> String {
    if number < 10 {
        number.to_string()
    } else {
        format!("{number:#x}")
    }
}

fn value(coding: &str, before: &mut i64, bytes: &mut &[u8]) -> f64 {
    match coding {
        "unsigned" => leb128(bytes) as f64,
        "delta" => {
            let zigzag = leb128(bytes);
            *before = before.wrapping_add((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed());
            *before as f64
        }
        "double" => f64::from_le_bytes(chunk(bytes)),
        "single" => f32::from_le_bytes(chunk(bytes)).into(),
        other => panic!("no such coding: {other}"),
    }
}

fn chunk<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (chunk, rest) = bytes.split_first_chunk().unwrap();
    *bytes = rest;
    *chunk
}

fn leb128(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let [byte] = chunk(bytes);
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}
