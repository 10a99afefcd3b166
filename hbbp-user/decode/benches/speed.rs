//! What decoding costs compared with iced-x86 alone, for code without APX: the section `.text` of libc, or of the file named.
//!
//! `cargo bench -p hbbp-decode` prints times. On a busy machine, count instructions instead, as times vary too much
//! there: `valgrind --tool=cachegrind BENCH FILE iced` and `ours`, less those of `none`, which only reads the file.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints a table, and fails like a test"
)]

use std::fs;
use std::time::Instant;

use hbbp_decode::Decoder;
use iced_x86::{Decoder as Iced, DecoderOptions, Instruction};
use object::{Object as _, ObjectSection as _};

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// The loop of a decoder, which returns the number of instructions. Bytes that are none are skipped one by one, as all callers do.
type Decode = fn(&[u8], u64) -> usize;

/// The offset after the first byte of an instruction.
fn after(instruction: &Instruction, start: u64) -> usize {
    usize::try_from(instruction.ip() + 1 - start).unwrap()
}

fn iced(text: &[u8], start: u64) -> usize {
    let mut decoder = Iced::with_ip(64, text, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut n = 0;
    while decoder.position() < text.len() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            decoder.set_position(after(&instruction, start)).unwrap();
            decoder.set_ip(instruction.ip() + 1);
        }
        n += 1;
    }
    n
}

fn ours(text: &[u8], start: u64) -> usize {
    let mut decoder = Decoder::try_with_ip(64, text, start).unwrap();
    let mut instruction = Instruction::default();
    let mut n = 0;
    while decoder.position() < text.len() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            let ip = instruction.ip() + 1;
            decoder.go_to(after(&instruction, start), ip).unwrap();
        }
        n += 1;
    }
    n
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let path = words.first().map_or(LIBC, String::as_str);
    let file = fs::read(path).unwrap();
    let file = object::File::parse(&*file).unwrap();
    let section = file.section_by_name(".text").unwrap();
    let (text, start) = (section.data().unwrap(), section.address());
    let all: [(&str, Decode); 2] = [("iced", iced), ("ours", ours)];
    for (name, decode) in all {
        if words.get(1).is_some_and(|wanted| wanted != name) {
            continue;
        }
        let begun = Instant::now();
        let n = decode(text, start);
        println!("{name}: {n} instructions in {:?}", begun.elapsed());
    }
}
