//! What rows of all kinds have in common: groups, weights, and the room that they take.

use crate::snapshot::row::Row;
use crate::snapshot::wire::malformed::{Capacity, Malformed};
use crate::snapshot::wire::number::Reader;
use crate::snapshot::{EventIdx, ProcessIdx};

/// How weights are stored.
pub(super) const IN_UNITS: u64 = 0;

pub(super) const PLAIN: u64 = 1;

/// Bytes that a usual row needs, to allocate once.
const USUAL: usize = 8;

/// Adds a row to the last one where both count the same, and appends it otherwise.
pub(super) fn push_or_add<R: Row>(
    all: &mut Vec<R>,
    row: R,
    rows: &Reader<'_>,
    capacity: &mut Capacity,
) -> Result<(), Malformed> {
    match all.last_mut().filter(|last| last.key() == row.key()) {
        Some(last) => last.add(&row),
        None => {
            capacity.take(rows.table, size_of::<R>())?;
            all.push(row);
        }
    }
    Ok(())
}

/// What neighbouring rows have in common.
pub(super) struct Group {
    pub(super) n: u64,
    pub(super) event: EventIdx,
    pub(super) process: ProcessIdx,
    pub(super) kind: bool,
}

pub(super) fn read_group(rows: &mut Reader<'_>) -> Result<Group, Malformed> {
    Ok(Group {
        n: rows.number()?,
        event: EventIdx(rows.number32()?),
        process: ProcessIdx(rows.number32()?),
        kind: rows.choice(1)? == 1,
    })
}

pub(super) fn read_hits_in_units(rows: &mut Reader<'_>, unit: u64) -> Result<(u64, u64), Malformed> {
    let number = rows.number()?;
    let hits = number >> 1;
    let excess = if number & 1 == 0 { 0 } else { rows.difference()? };
    Ok((hits, hits.wrapping_mul(unit).wrapping_add(excess)))
}

/// The weight per hit that most rows have (Boyer and Moore's majority vote). Any number is correct; this one makes rows
/// short.
#[derive(Default)]
pub(super) struct Usual {
    pub(super) unit: u64,
    pub(super) votes: u64,
}

impl Usual {
    pub(super) fn vote(&mut self, hits: u64, weight: u64) {
        let unit = weight.checked_div(hits).unwrap_or(0);
        if unit == self.unit {
            self.votes += 1;
        } else if self.votes == 0 {
            (self.unit, self.votes) = (unit, 1);
        } else {
            self.votes -= 1;
        }
    }
}

/// The weight of a row in excess of one unit for each hit, modulo 2^64.
pub(super) const fn excess(hits: u64, weight: u64, unit: u64) -> u64 {
    weight.wrapping_sub(hits.wrapping_mul(unit))
}

/// An empty table with the capacity for `n` usual rows.
pub(super) fn for_rows(n: usize) -> Vec<u8> {
    Vec::with_capacity(USUAL * n + size_of::<u64>())
}
