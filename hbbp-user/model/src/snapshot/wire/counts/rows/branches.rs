//! The rows of branches.

use super::super::super::malformed::{Capacity, Malformed};
use super::super::super::number::Reader;
use super::super::word::Word;
use super::group::{for_rows, push_or_add, read_group};
use crate::addr::Va;
use crate::snapshot::BranchCount;

/// Branches as bytes.
pub(in super::super) fn of_branches(branches: &[BranchCount]) -> Vec<u8> {
    let (mut out, mut word) = (for_rows(branches.len()), Word::default());
    let mut last = 0;
    let is_full = |c: &BranchCount| c.to != Va(0) || c.oldest != c.hits || c.mispredicted.is_some();
    let key = |c: &BranchCount| (c.event, c.process, is_full(c));
    for group in branches.chunk_by(|a, b| key(a) == key(b)) {
        let Some((event, process, full)) = group.first().map(key) else {
            continue;
        };
        word = word.group(&mut out, group.len(), event, process, full);
        for count in group {
            let from = count.from.0;
            word = word.difference(&mut out, from.wrapping_sub(last));
            last = from;
            if full {
                word = word.difference(&mut out, count.to.0.wrapping_sub(from));
            }
            word = word.number(&mut out, count.hits);
            if full {
                word = word.number(&mut out, count.oldest);
                word = word.number(&mut out, count.mispredicted.map_or(0, |n| n.saturating_add(1)));
            }
            word = word.end_row(&mut out);
        }
    }
    out
}

/// Reads what [`of_branches`] wrote.
pub(in super::super) fn to_branches(
    bytes: &[u8],
    capacity: &mut Capacity,
) -> Result<Vec<BranchCount>, Malformed> {
    let mut rows = Reader::new("branches", bytes);
    let mut branches = Vec::new();
    let mut from = 0_u64;
    while !rows.is_at_end() {
        let group = read_group(&mut rows)?;
        for _ in 0..group.n {
            let from = rows.next(&mut from)?;
            let to = if group.kind {
                from.wrapping_add(rows.difference()?)
            } else {
                0
            };
            let hits = rows.number()?;
            let (oldest, mispredicted) = if group.kind {
                (rows.number()?, rows.number()?.checked_sub(1))
            } else {
                (hits, None)
            };
            let count = BranchCount {
                event: group.event,
                process: group.process,
                from: Va(from),
                to: Va(to),
                hits,
                oldest,
                mispredicted,
            };
            push_or_add(&mut branches, count, &rows, capacity)?;
        }
    }
    Ok(branches)
}
