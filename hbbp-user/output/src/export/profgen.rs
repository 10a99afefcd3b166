//! The unsymbolized profile of llvm-profgen (`--unsymbolized-profile`; llvm/tools/llvm-profgen/PerfReader.cpp, LLVM 22).
//!
//! ```text
//! number of ranges                 start-last:count, both inclusive
//! number of branches               from->to:count
//! ```
//!
//! Addresses count from the page of the first executable segment (`--use-offset`, the reader's default), in hexadecimal without
//! 0x; a branch from outside of the image has the address 1 as its source. Branches that leave the image are not part of the
//! format.

use std::io::{self, Write};

use super::image::{Image, Written};
use hbbp_model::snapshot::ImageLayout;

/// The source of branches from outside of the image (`ExternalAddr`).
const OUTSIDE: u64 = 1;

/// Bytes of a page: the reader's base begins one.
const PAGE: u64 = 4096;

/// Writes the profile of an image.
pub fn write_profgen(image: &Image<'_>, out: &mut dyn Write) -> io::Result<Written> {
    let mut written = Written::default();
    let first = image.layout.executable().next();
    let base = first.map_or(0, |segment| segment.linked.addr / PAGE * PAGE);
    let term = |layout: &ImageLayout, at| layout.elf_addr(at)?.checked_sub(base);
    let ranges = image.ranges(term, &mut written);
    writeln!(out, "{}", ranges.len())?;
    for range in ranges {
        writeln!(out, "{:x}-{:x}:{}", range.start, range.last, range.count)?;
        written.add("ranges", range.count);
    }
    let mut lines = Vec::new();
    for branch in image.branches(term, &mut written) {
        match branch.to {
            Some(to) => {
                lines.push((
                    branch.from.unwrap_or(OUTSIDE.wrapping_sub(base)),
                    to,
                    branch.count,
                ));
                written.add("taken branches", branch.count);
            }
            None => written.leave_out(LEAVES, branch.count),
        }
    }
    writeln!(out, "{}", lines.len())?;
    for (from, to, count) in lines {
        writeln!(out, "{from:x}->{to:x}:{count}")?;
    }
    Ok(written)
}

/// Branches to other images.
pub(super) const LEAVES: &str = "taken branches that leave the image, which the format does not have";
