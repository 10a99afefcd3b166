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
    /// The columns of whole numbers, and the others.
    whole: HashMap<String, Vec<u64>>,
    real: HashMap<String, Vec<f64>>,
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
        let (mut whole, mut real) = (HashMap::new(), HashMap::new());
        for column in document["columns"].as_array().unwrap() {
            let name = column["name"].as_str().unwrap().to_owned();
            let values = 0..column["len"].as_u64().unwrap();
            let mut before = 0_u64;
            match column["coding"].as_str().unwrap() {
                "unsigned" => {
                    whole.insert(name, values.map(|_| leb128(&mut bytes)).collect());
                }
                "delta" => {
                    let values = values.map(|_| {
                        before = before.wrapping_add_signed(signed(leb128(&mut bytes)));
                        before
                    });
                    whole.insert(name, values.collect());
                }
                "double" => {
                    let values = values.map(|_| f64::from_le_bytes(chunk(&mut bytes)));
                    real.insert(name, values.collect());
                }
                "single" => {
                    let values = values.map(|_| f32::from_le_bytes(chunk(&mut bytes)).into());
                    real.insert(name, values.collect());
                }
                other => panic!("no such coding: {other}"),
            }
        }
        assert!(bytes.is_empty(), "{} bytes follow the columns", bytes.len());
        Self {
            document,
            whole,
            real,
        }
    }

    /// A column of amounts.
    pub(super) fn amounts(&self, column: &str) -> &[f64] {
        &self.real[column]
    }

    /// A column of indices and lengths.
    pub(super) fn indices(&self, column: &str) -> Vec<usize> {
        self.whole[column]
            .iter()
            .map(|number| usize::try_from(*number).unwrap())
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
            .zip(self.amounts("block.count"))
            .zip(&self.whole["block.size"]);
        for ((ring, count), size) in blocks {
            sums[ring] += count * *size as f64;
        }
        sums
    }

    /// Instructions by an attribute of their classes.
    pub(super) fn sums(&self, attribute: &str) -> HashMap<String, f64> {
        let names = self.document["attributes"].as_array().unwrap();
        let at = names.iter().position(|name| name == attribute).unwrap();
        let (mut kinds, forms) = (
            self.indices("instruction.kind").into_iter(),
            self.indices("kind.form"),
        );
        let mut sums = HashMap::new();
        // Samples belong to single instructions.
        let mut samples = self.real.get("instruction.amount").map(|all| all.iter());
        let counts = self.amounts("block.count").iter();
        for (count, size) in counts.zip(self.indices("block.size")) {
            for kind in kinds.by_ref().take(size) {
                let count = samples.as_mut().map_or(count, |all| all.next().unwrap());
                let value = self.document["forms"][forms[kind]][at].as_u64().unwrap();
                *sums.entry(self.string(value as usize).to_owned()).or_default() += count;
            }
        }
        sums
    }

    pub(super) fn blocks(&self) -> Vec<Block> {
        let (kinds, lengths) = (self.indices("kind.text"), self.indices("kind.len"));
        let (names, modules) = (self.indices("function.name"), self.indices("function.module"));
        let mut instructions = self.indices("instruction.kind").into_iter();
        let mut numbers = self.whole["instruction.numbers"].iter();
        let mut functions = self.whole["instruction.functions"].iter();
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
                        '#' => text += &shown(*numbers.next().unwrap()),
                        '@' => {
                            let to = signed(*functions.next().unwrap());
                            let to = function.checked_add_signed(to.try_into().unwrap()).unwrap();
                            text += self.string(names[to]);
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

/// The difference that zigzag represents.
fn signed(zigzag: u64) -> i64 {
    (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed()
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
