//! Basic blocks of both rings by weight, for analysers of machine code.
//!
//! ```text
//! hex,UNIT,cycles,ring,module,address,unit         blocks: the first column is a block of the BHive data set and of uiCA
//! # LLVM-MCA-BEGIN name .. # LLVM-MCA-END           mca: assembly in AT&T syntax for llvm-mca, heaviest block first
//! ```
//!
//! The second column is named for the unit of its numbers, which is in the last column as well.
//! Cycles are those of one execution, from the processor's cycle counts of streams that cover exactly this block; empty
//! where none was recorded. Bytes are the executed ones, the branch at the end included.

use std::collections::BTreeMap;
use std::io::{self, Write};

use hbbp_decode::Decoder;
use iced_x86::{Formatter as _, GasFormatter};

use super::counted::{Counted, Only, is_in};
use super::image::Written;
use super::names::Names;
use hbbp_code::blocks::BlockId;
use hbbp_code::locate::{AddressMap, Site};
use hbbp_estimate::BlockCount;
use hbbp_model::printable::csv_name;
use hbbp_model::snapshot::hex;

/// An executed block.
struct Block<'a> {
    count: u64,
    block: &'a BlockCount,
    site: Site,
    bytes: &'a [u8],
}

/// Blocks in assembly: hotter ones are all that a throughput analyser needs, and each takes it milliseconds.
const MOST_IN_ASSEMBLY: usize = 10_000;

/// Writes all blocks of a profile, or of one of its modules, as comma-separated values.
pub fn write_blocks(counted: &Counted<'_>, only: Only<'_>, out: &mut dyn Write) -> io::Result<Written> {
    let mut written = Written::default();
    let names = Names::new(counted);
    let cycles = cycles(counted);
    let mut csv = csv::Writer::from_writer(out);
    let unit = counted.counts.assignment.unit.id();
    csv.write_record(["hex", unit, "cycles", "ring", "module", "address", "unit"])?;
    for Block {
        count,
        block,
        site,
        bytes,
    } in heaviest(counted, only)
    {
        written.add("for all blocks", count);
        let cycles = cycles.get(&block.block).map(|(cycles, hits)| cycles / hits);
        csv.write_record([
            hex(bytes),
            count.to_string(),
            cycles.map_or_else(String::new, |cycles| format!("{cycles:.2}")),
            block.ring.to_string(),
            csv_name(names.module(site)),
            format!("{:x}", site.addr.0),
            unit.to_owned(),
        ])?;
    }
    csv.flush()?;
    Ok(written)
}

/// Writes the heaviest blocks as assembly.
pub fn write_assembly(counted: &Counted<'_>, only: Only<'_>, out: &mut dyn Write) -> io::Result<Written> {
    let mut written = Written::default();
    let mut formatter = GasFormatter::new();
    let noun = counted.noun();
    let names = Names::new(counted);
    for (block, n) in heaviest(counted, only).into_iter().zip(0..) {
        if MOST_IN_ASSEMBLY <= n {
            written.leave_out("of blocks beyond the heaviest 10,000", block.count);
            continue;
        }
        let module = counted.module(block.site);
        let bits = module.map_or(64, |module| module.kind.bits());
        let Ok(mut decoder) = Decoder::try_with_ip(bits, block.bytes, block.site.addr.0) else {
            written.leave_out("of blocks that cannot be decoded", block.count);
            continue;
        };
        written.add("for all blocks", block.count);
        let (function, addr) = (names.function(block.site), block.site.addr.0);
        writeln!(
            out,
            "# {}: {function} at {addr:x}, {} {noun}",
            names.module(block.site),
            block.count
        )?;
        writeln!(out, "# LLVM-MCA-BEGIN b{n}")?;
        while decoder.position() < block.bytes.len() {
            let rest = block.bytes.get(decoder.position()..).unwrap_or(&[]);
            let instruction = decoder.decode();
            let mut text = String::new();
            let is_written = decoder.modern().is_some()
                && hbbp_decode::write(&mut formatter, rest, instruction.ip(), &mut text).is_some();
            if !is_written {
                formatter.format(&instruction, &mut text);
            }
            writeln!(out, "\t{text}")?;
        }
        writeln!(out, "# LLVM-MCA-END b{n}")?;
    }
    Ok(written)
}

/// All blocks with executions, the heaviest first: executions times instructions.
fn heaviest<'a>(counted: &'a Counted<'_>, only: Only<'_>) -> Vec<Block<'a>> {
    let blocks = counted.counts.blocks.iter();
    let in_module = |block: &&BlockCount| {
        let text = counted.map.text(block.block.text);
        text.is_some_and(|text| is_in(only, text.module))
    };
    let wanted: Vec<&BlockCount> = blocks.filter(in_module).collect();
    let amounts: Vec<f64> = wanted.iter().map(|block| block.chosen().count).collect();
    let whole = counted.whole(&amounts);
    let described = wanted.into_iter().zip(whole).filter_map(|(block, count)| {
        let text = counted.map.text(block.block.text)?;
        let (first, last) = {
            let instructions = counted.map.instructions(block.block);
            (*instructions.first()?, *instructions.last()?)
        };
        let bytes = &counted.snapshot.text.get(block.block.text.0 as usize)?.bytes;
        let site = Site {
            module: text.module,
            addr: text.addr(first),
        };
        Some(Block {
            count,
            block,
            site,
            bytes: bytes.get(first.offset as usize..last.offset as usize + usize::from(last.len))?,
        })
    });
    let mut blocks: Vec<Block<'_>> = described.filter(|block| 0 < block.count).collect();
    blocks.sort_by_key(|block| {
        let weight = u128::from(block.count) * u128::from(block.block.instructions);
        (std::cmp::Reverse(weight), block.site)
    });
    blocks
}

/// Cycles and hits of the streams that cover exactly one block.
fn cycles(counted: &Counted<'_>) -> BTreeMap<BlockId, (f64, f64)> {
    let mut cycles: BTreeMap<BlockId, (f64, f64)> = BTreeMap::new();
    let mut map = AddressMap::new(counted.snapshot);
    for (interval, n) in counted.snapshot.intervals.iter().zip(0..) {
        map.set_interval(n);
        for stream in &interval.streams {
            let Some(known) = stream.cycles else { continue };
            let block = |at| {
                let (module, addr) = map.module_at(stream.process, at)?;
                counted.find(Site { module, addr })
            };
            let [Some(start), Some(end)] = [stream.start, stream.end].map(block) else {
                continue;
            };
            if start.0 == end.0 && covers(counted, start.0, start.1, end.1) {
                let sum = cycles.entry(start.0).or_default();
                *sum = (sum.0 + known.get() as f64, sum.1 + stream.hits as f64);
            }
        }
    }
    cycles
}

/// Whether two instructions of a block are its first and its last.
fn covers(counted: &Counted<'_>, block: BlockId, first: u32, last: u32) -> bool {
    let range = counted.map.text(block.text).map(|text| text.block(block.block));
    range.is_some_and(|range| range.start == first && range.end == last.saturating_add(1))
}
