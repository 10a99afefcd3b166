//! BOLT's pre-aggregated profile (bolt/include/bolt/Profile/DataAggregator.h, LLVM 22), for `perf2bolt --pa` and
//! `llvm-bolt --pa`.
//!
//! ```text
//! B from to count mispredicted     taken branch; 0 is an address outside of the image
//! F start last count               range
//! r start last count               range after a return: BOLT counts the fall-through from the call before it too
//! ```
//!
//! Addresses are ELF addresses in hexadecimal without 0x, from which BOLT subtracts nothing: images are linked at 0 or at
//! a fixed address.

use std::io::{self, Write};

use super::image::{Image, Written};
use hbbp_model::snapshot::ImageLayout;

/// Writes the profile of an image.
pub fn write_bolt(image: &Image<'_>, out: &mut dyn Write) -> io::Result<Written> {
    let mut written = Written::default();
    let term = |layout: &ImageLayout, at| layout.elf_addr(at);
    for branch in image.branches(term, &mut written) {
        let [from, to] = [branch.from, branch.to].map(Option::unwrap_or_default);
        writeln!(out, "B {from:x} {to:x} {} {}", branch.count, branch.mispredicted)?;
        written.add("taken branches", branch.count);
    }
    for range in image.ranges(term, &mut written) {
        let kinds = [("F", range.count - range.after_return), ("r", range.after_return)];
        for (kind, count) in kinds.into_iter().filter(|(_, count)| 0 < *count) {
            writeln!(out, "{kind} {:x} {:x} {count}", range.start, range.last)?;
        }
        written.add("ranges", range.count);
    }
    Ok(written)
}
