//! The text profile of AutoFDO's create_llvm_prof (`--profiler=text`; google/autofdo, `TextSampleReaderWriter`).
//!
//! ```text
//! number of ranges                 start-last:count, both inclusive
//! number of addresses              0: ranges say it all
//! number of branches               from->to:count
//! // build_id: ..                  after the last section, where the reader stops
//! ```
//!
//! Addresses are offsets in the file in hexadecimal without 0x, for .ko files too. Branches from or to other images are not
//! part of the format.

use std::io::{self, Write};

use super::image::{Image, Written};
use super::profgen::LEAVES;
use hbbp_model::snapshot::ImageLayout;

/// Ranges that are longer are dropped by the reader.
const LONGEST: u64 = 1 << 20;

/// Writes the profile of an image.
pub fn write_ranges(image: &Image<'_>, out: &mut dyn Write) -> io::Result<Written> {
    let mut written = Written::default();
    let term = |layout: &ImageLayout, at| layout.file_off(at).map(|offset| offset.0);
    let (ranges, long): (Vec<_>, Vec<_>) = image
        .ranges(term, &mut written)
        .into_iter()
        .partition(|range| range.last - range.start <= LONGEST);
    for range in long {
        written.leave_out("ranges of more than 1 MiB, which the reader drops", range.count);
    }
    writeln!(out, "{}", ranges.len())?;
    for range in ranges {
        writeln!(out, "{:x}-{:x}:{}", range.start, range.last, range.count)?;
        written.add("ranges", range.count);
    }
    writeln!(out, "0")?;
    let mut lines = Vec::new();
    for branch in image.branches(term, &mut written) {
        match (branch.from, branch.to) {
            (Some(from), Some(to)) => {
                lines.push((from, to, branch.count));
                written.add("taken branches", branch.count);
            }
            (Some(_), None) => written.leave_out(LEAVES, branch.count),
            _ => written.leave_out(ENTERS, branch.count),
        }
    }
    writeln!(out, "{}", lines.len())?;
    for (from, to, count) in lines {
        writeln!(out, "{from:x}->{to:x}:{count}")?;
    }
    Ok(written)
}

/// Branches from other images.
const ENTERS: &str = "taken branches from outside of the image, which the format does not have";
