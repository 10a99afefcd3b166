//! How large a page is for the code of compilers.

use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{IpCount, Mapping, Snapshot, Symbol, Text};
use iced_x86::{Decoder, DecoderOptions};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use super::program;
use super::table::Table;

/// Bytes of code that are taken.
const CODE: usize = 1 << 19;
/// Instructions from one sample to the next.
const EVERY: usize = 6;

/// A run of the code of this test itself, which is that of a compiler, libraries and all.
pub(super) fn own_code() -> Snapshot {
    let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let elf = object::File::parse(file.as_slice()).unwrap();
    let section = elf.section_by_name(".text").unwrap();
    let code = section.data().unwrap();
    let from = code.len().saturating_sub(CODE) / 2;
    let bytes = code[from..].iter().take(CODE).copied().collect::<Vec<u8>>();
    let start = section.address() + from as u64;
    let range = start..start + bytes.len() as u64;

    let mut snapshot = program::clocked();
    let symbols = elf
        .symbols()
        .filter(|it| it.kind() == SymbolKind::Text && range.contains(&it.address()));
    let mut symbols: Vec<Symbol> = symbols
        .map(|symbol| Symbol {
            start: ImageAddr(symbol.address()),
            len: symbol.size(),
            name: symbol.name().unwrap().to_owned(),
        })
        .collect();
    symbols.sort_by_key(|symbol| symbol.start);
    symbols.dedup_by_key(|symbol| symbol.start);
    // Where a function begins, so does an instruction.
    let first = (symbols[0].start.0 - start) as usize;
    let mut decoder = Decoder::with_ip(64, &bytes[first..], start + first as u64, DecoderOptions::NONE);
    let instructions = decoder.iter().step_by(EVERY);
    let sample = snapshot.intervals[0].ips.last().copied().unwrap();
    let samples = instructions.map(|instruction| IpCount {
        ip: Va(instruction.ip()),
        hits: 1,
        weight: 1_000_000,
        ..sample
    });
    snapshot.intervals[0].ips = samples.collect();
    snapshot.modules[1].symbols = symbols;
    snapshot.processes[1].mappings = vec![Mapping {
        start: Va(start),
        end: Va(range.end),
        image_start: ImageAddr(start),
        ..snapshot.processes[1].mappings[0]
    }];
    snapshot.text.truncate(1);
    snapshot.text.push(Text {
        start: ImageAddr(start),
        bytes,
        ..program::clocked().text[1].clone()
    });
    snapshot
}

/// A minute of a compiling machine runs some 350 000 instructions of 11 000 functions in 44 000 blocks: with 8 bytes for each
/// it has a page of 2.8 MB.
#[test]
fn page_has_eight_bytes_for_an_instruction() {
    let snapshot = own_code();
    snapshot.check().unwrap();
    let page = super::page(&snapshot);
    let n = Table::of(&page).indices("instruction.kind").len();
    assert!(50_000 < n, "{n}");
    assert!(page.len() < 8 * n, "{} bytes for {n} instructions", page.len());
}
