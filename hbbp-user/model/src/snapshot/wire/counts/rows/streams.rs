//! The rows of streams.

use std::num::NonZeroU64;

use super::super::super::malformed::{Capacity, Malformed};
use super::super::super::number::Reader;
use super::super::word::Word;
use super::group::{IN_UNITS, PLAIN, Usual, excess, for_rows, push_or_add, read_group, read_hits_in_units};
use crate::addr::Va;
use crate::snapshot::StreamCount;

/// Weights of streams are stored in this fraction of a unit, which is exact for all that the collector counts.
const FRACTIONS: f64 = 256.0;
/// Doubles hold all integers below.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Streams as bytes.
pub(in super::super) fn of_streams(streams: &[StreamCount]) -> Vec<u8> {
    let (mut out, mut word) = (for_rows(streams.len()), Word::default());
    let (mut in_units, mut has_cycles) = (true, false);
    let mut usual = Usual::default();
    for count in streams {
        has_cycles |= count.cycles.is_some();
        // The first test is the short one, and true of nearly all.
        if weighs(count, usual.unit) {
            usual.votes += 1;
        } else if let Some(weight) = in_fractions(count) {
            usual.vote(count.hits, weight);
        } else {
            in_units = false;
        }
    }
    let unit = usual.unit;
    word = word.number(&mut out, if in_units { IN_UNITS } else { PLAIN });
    word = word.number(&mut out, if in_units { unit } else { 0 });
    word = word.number(&mut out, has_cycles.into());
    word = word.end_row(&mut out);
    let mut last = 0;
    let key = |c: &StreamCount| (c.event, c.process, c.source.is_some());
    for group in streams.chunk_by(|a, b| key(a) == key(b)) {
        let Some((event, process, has_source)) = group.first().map(key) else {
            continue;
        };
        word = word.group(&mut out, group.len(), event, process, has_source);
        for count in group {
            let start = count.start.0;
            word = word.difference(&mut out, start.wrapping_sub(last));
            last = start;
            word = word.number(&mut out, count.end.0.wrapping_sub(start));
            if let Some(Va(source)) = count.source {
                word = word.difference(&mut out, source.wrapping_sub(start));
            }
            if in_units {
                let excess = if weighs(count, unit) {
                    0
                } else {
                    excess(count.hits, in_fractions(count).unwrap_or(0), unit)
                };
                word = word.hits_in_units(&mut out, count.hits, excess);
            } else {
                word = word.number(&mut out, count.hits);
                word = word.double(&mut out, count.weight);
            }
            if has_cycles {
                word = word.number(&mut out, count.cycles.map_or(0, NonZeroU64::get));
            }
            word = word.end_row(&mut out);
        }
    }
    out
}

/// Reads what [`of_streams`] wrote.
pub(in super::super) fn to_streams(
    bytes: &[u8],
    capacity: &mut Capacity,
) -> Result<Vec<StreamCount>, Malformed> {
    let mut rows = Reader::new("streams", bytes);
    let mut streams = Vec::new();
    if bytes.is_empty() {
        return Ok(streams);
    }
    let in_units = rows.choice(PLAIN)? == IN_UNITS;
    let unit = rows.number()?;
    let has_cycles = rows.choice(1)? == 1;
    let mut start = 0_u64;
    while !rows.is_at_end() {
        let group = read_group(&mut rows)?;
        for _ in 0..group.n {
            let start = rows.next(&mut start)?;
            let end = start.wrapping_add(rows.number()?);
            let source = if group.kind {
                Some(Va(start.wrapping_add(rows.difference()?)))
            } else {
                None
            };
            let (hits, weight) = if in_units {
                let (hits, weight) = read_hits_in_units(&mut rows, unit)?;
                (hits, of_fractions(weight))
            } else {
                (rows.number()?, rows.double()?)
            };
            let cycles = if has_cycles { rows.number()? } else { 0 };
            let cycles = NonZeroU64::new(cycles);
            // A weight that is NaN would silently spoil every sum that it enters.
            if !weight.is_finite() {
                return Err(Malformed::Weight);
            }
            let count = StreamCount {
                event: group.event,
                process: group.process,
                start: Va(start),
                end: Va(end),
                source,
                hits,
                weight,
                cycles,
            };
            push_or_add(&mut streams, count, &rows, capacity)?;
        }
    }
    Ok(streams)
}

/// Whether a stream has the weight of `unit` fractions for each hit, and can be stored so.
#[inline]
fn weighs(count: &StreamCount, unit: u64) -> bool {
    let whole = count.hits.wrapping_mul(unit);
    let exact = whole < 1 << f64::MANTISSA_DIGITS && count.hits <= u64::MAX >> 1;
    exact && of_fractions(whole).to_bits() == count.weight.to_bits()
}

/// The weight of a stream as an integer of fractions; `None` if that, or the hits, cannot be stored.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what does not come back is refused"
)]
fn in_fractions(count: &StreamCount) -> Option<u64> {
    let scaled = count.weight * FRACTIONS;
    let whole = scaled as i64 as u64;
    let comes_back = of_fractions(whole).to_bits() == count.weight.to_bits();
    (comes_back && (0.0..EXACT).contains(&scaled) && count.hits <= u64::MAX >> 1).then_some(whole)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the writer stores what comes back only, and a file may say any number"
)]
pub(super) fn of_fractions(whole: u64) -> f64 {
    whole as i64 as f64 / FRACTIONS
}
