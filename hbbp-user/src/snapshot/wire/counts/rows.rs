//! The rows of counts as bytes, written in one pass: half of what a recording costs after its end is their encoding.
//!
//! ```text
//! ips      := weights unit group(kind: 1 exact)*         row: ip hits
//! streams  := weights unit cycles group(kind: 1 source)* row: start length [source] hits [cycles]
//! branches := group(kind: 1 full)*                       row: from hits | from to hits oldest mispredicted
//! group    := n event process kind row[n]                neighbouring rows with the same event, process image and kind
//! ```
//!
//! All are numbers in LEB128. Addresses are differences modulo 2^64, zigzag encoded: `ip`, `start` and `from` to the
//! row before, `source` to `start`, `to` to `from`; `length` has no sign.
//! `cycles` says whether rows have cycles; 0 stands for those that are not known.
//! A branch that is not full was seen in the oldest slot alone, without a target or predictions. `mispredicted` is one more
//! than the number, and 0 where it is not known.
//!
//! Nearly all rows weigh `unit` for each hit. Where `weights` is 0, the lowest bit of the hits says whether a row does
//! not, and then the difference follows (zigzag); for streams, a unit is 1 / [`FRACTIONS`] of one unit of the event.
//! Where `weights` is 1, the weight follows the hits: a number for IPs, the 8 bytes of a double for streams.

use std::num::NonZeroU64;

use super::super::number::Reader;
use super::super::{Capacity, Malformed};
use super::word::Word;
use crate::addr::Va;
use crate::snapshot::fold::Row;
use crate::snapshot::{BranchCount, EventIdx, IpCount, ProcessIdx, StreamCount};

/// Weights of streams are stored in this fraction of a unit, which is exact for all that the collector counts.
const FRACTIONS: f64 = 256.0;
/// Doubles hold all integers below.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// How weights are stored.
const IN_UNITS: u64 = 0;
const PLAIN: u64 = 1;

/// Bytes that a usual row needs, to allocate once.
const USUAL: usize = 8;

/// Samples of instruction pointers as bytes.
pub(super) fn of_ips(ips: &[IpCount]) -> Vec<u8> {
    let (mut out, mut word) = (for_rows(ips.len()), Word::default());
    let in_units = ips.iter().all(|c| c.hits <= u64::MAX >> 1);
    let mut usual = Usual::default();
    ips.iter().for_each(|c| usual.vote(c.hits, c.weight));
    let unit = usual.unit;
    word = word.number(&mut out, if in_units { IN_UNITS } else { PLAIN });
    word = word.number(&mut out, unit);
    word = word.end_row(&mut out);
    let mut last = 0;
    let key = |c: &IpCount| (c.event, c.process, c.exact);
    for group in ips.chunk_by(|a, b| key(a) == key(b)) {
        let Some((event, process, exact)) = group.first().map(key) else {
            continue;
        };
        word = word.group(&mut out, group.len(), (event, process), exact);
        for count in group {
            word = word.difference(&mut out, count.ip.0.wrapping_sub(last));
            last = count.ip.0;
            if in_units {
                word = word.hits_in_units(&mut out, count.hits, excess(count.hits, count.weight, unit));
            } else {
                word = word.number(&mut out, count.hits);
                word = word.number(&mut out, count.weight);
            }
            word = word.end_row(&mut out);
        }
    }
    out
}

/// Reads what [`of_ips`] wrote.
pub(super) fn to_ips(bytes: &[u8], capacity: &mut Capacity) -> Result<Vec<IpCount>, Malformed> {
    let mut rows = Reader::new("IP counts", bytes);
    let mut ips = Vec::new();
    if bytes.is_empty() {
        return Ok(ips);
    }
    let in_units = rows.choice(PLAIN)? == IN_UNITS;
    let unit = rows.number()?;
    let mut ip = 0_u64;
    while !rows.is_at_end() {
        let group = read_group(&mut rows)?;
        for _ in 0..group.n {
            let ip = Va(rows.next(&mut ip)?);
            let (hits, weight) = if in_units {
                read_hits_in_units(&mut rows, unit)?
            } else {
                (rows.number()?, rows.number()?)
            };
            let count = IpCount {
                event: group.event,
                process: group.process,
                ip,
                exact: group.kind,
                hits,
                weight,
            };
            push_or_add(&mut ips, count, &rows, capacity)?;
        }
    }
    Ok(ips)
}

/// Streams as bytes.
pub(super) fn of_streams(streams: &[StreamCount]) -> Vec<u8> {
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
        word = word.group(&mut out, group.len(), (event, process), has_source);
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
pub(super) fn to_streams(bytes: &[u8], capacity: &mut Capacity) -> Result<Vec<StreamCount>, Malformed> {
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

/// Branches as bytes.
pub(super) fn of_branches(branches: &[BranchCount]) -> Vec<u8> {
    let (mut out, mut word) = (for_rows(branches.len()), Word::default());
    let mut last = 0;
    let is_full = |c: &BranchCount| c.to != Va(0) || c.oldest != c.hits || c.mispredicted.is_some();
    let key = |c: &BranchCount| (c.event, c.process, is_full(c));
    for group in branches.chunk_by(|a, b| key(a) == key(b)) {
        let Some((event, process, full)) = group.first().map(key) else {
            continue;
        };
        word = word.group(&mut out, group.len(), (event, process), full);
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
pub(super) fn to_branches(bytes: &[u8], capacity: &mut Capacity) -> Result<Vec<BranchCount>, Malformed> {
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

/// Adds a row to the last one where both count the same, and appends it otherwise.
fn push_or_add<R: Row>(
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
struct Group {
    n: u64,
    event: EventIdx,
    process: ProcessIdx,
    kind: bool,
}

fn read_group(rows: &mut Reader<'_>) -> Result<Group, Malformed> {
    Ok(Group {
        n: rows.number()?,
        event: EventIdx(rows.number32()?),
        process: ProcessIdx(rows.number32()?),
        kind: rows.choice(1)? == 1,
    })
}

fn read_hits_in_units(rows: &mut Reader<'_>, unit: u64) -> Result<(u64, u64), Malformed> {
    let number = rows.number()?;
    let hits = number >> 1;
    let excess = if number & 1 == 0 { 0 } else { rows.difference()? };
    Ok((hits, hits.wrapping_mul(unit).wrapping_add(excess)))
}

/// The weight per hit that most rows have (Boyer and Moore's majority vote). Any number is correct; this one makes rows
/// short.
#[derive(Default)]
struct Usual {
    unit: u64,
    votes: u64,
}

impl Usual {
    fn vote(&mut self, hits: u64, weight: u64) {
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

/// What a row weighs in excess of one unit for each hit, modulo 2^64.
const fn excess(hits: u64, weight: u64, unit: u64) -> u64 {
    weight.wrapping_sub(hits.wrapping_mul(unit))
}

/// Whether a stream weighs `unit` fractions for each hit, and can be stored so.
#[inline]
fn weighs(count: &StreamCount, unit: u64) -> bool {
    let whole = count.hits.wrapping_mul(unit);
    let exact = whole < 1 << f64::MANTISSA_DIGITS && count.hits <= u64::MAX >> 1;
    exact && of_fractions(whole).to_bits() == count.weight.to_bits()
}

/// The weight of a stream as an integer of fractions; `None` where that, or the hits beside it, cannot be stored.
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
fn of_fractions(whole: u64) -> f64 {
    whole as i64 as f64 / FRACTIONS
}

/// An empty table with the capacity for `n` usual rows.
fn for_rows(n: usize) -> Vec<u8> {
    Vec::with_capacity(USUAL * n + size_of::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Capacity {
        Capacity(usize::MAX)
    }

    fn stream(start: u64, hits: u64, weight: f64) -> StreamCount {
        StreamCount {
            event: EventIdx(0),
            process: ProcessIdx(3),
            start: Va(start),
            end: Va(start + 9),
            source: Some(Va(start + 40)),
            hits,
            weight,
            cycles: None,
        }
    }

    #[test]
    fn a_usual_stream_takes_four_bytes_and_an_odd_weight_three_more() {
        let usual: Vec<_> = (1..100_u32)
            .map(|n| stream(u64::from(n) * 16, n.into(), f64::from(n) * 32.5))
            .collect();
        let mut odd = usual.clone();
        odd[7].weight += 33.25;
        let (bytes, more) = (of_streams(&usual), of_streams(&odd));
        let long_hits = 99 - 63;
        assert_eq!(bytes.len(), 1 + 2 + 1 + 4 + 99 * 4 + long_hits);
        assert_eq!(more.len(), bytes.len() + 3);
        assert_eq!(to_streams(&bytes, &mut all()).unwrap(), usual);
        assert_eq!(to_streams(&more, &mut all()).unwrap(), odd);
    }

    #[test]
    fn rows_that_end_early_or_say_too_much_are_refused() {
        let bytes = of_streams(&[stream(7, 1, 0.5), stream(9, 1, 0.3)]);
        let no_rows = 3;
        for len in (1..bytes.len()).filter(|len| *len != no_rows) {
            assert!(to_streams(&bytes[..len], &mut all()).is_err(), "{len}");
        }
        assert!(to_branches(&[0xff; 11], &mut all()).is_err());
        assert!(to_branches(&[0, 0, 0, 2], &mut all()).is_err());
        assert!(to_ips(&[2, 0], &mut all()).is_err());
        let infinite = of_streams(&[stream(7, 1, f64::INFINITY)]);
        assert!(matches!(
            to_streams(&infinite, &mut all()),
            Err(Malformed::Weight)
        ));
    }

    #[test]
    fn rows_that_count_the_same_are_summed_as_they_are_read() {
        let ip = |ip, exact| IpCount {
            event: EventIdx(0),
            process: ProcessIdx(1),
            ip: Va(ip),
            exact,
            hits: 2,
            weight: 30,
        };
        let bytes = of_ips(&[ip(5, true), ip(5, true), ip(5, false), ip(6, false)]);
        let twice = IpCount {
            hits: 4,
            weight: 60,
            ..ip(5, true)
        };
        assert_eq!(
            to_ips(&bytes, &mut all()).unwrap(),
            [twice, ip(5, false), ip(6, false)]
        );
        let bytes = of_streams(&[stream(7, 1, 0.5), stream(7, 3, 2.0)]);
        assert_eq!(to_streams(&bytes, &mut all()).unwrap(), [stream(7, 4, 2.5)]);
    }

    #[test]
    fn rows_beyond_the_capacity_are_refused() {
        let bytes = of_streams(&[stream(7, 1, 0.5), stream(8, 1, 0.5)]);
        let read = |n_rows| to_streams(&bytes, &mut Capacity(n_rows * size_of::<StreamCount>()));
        assert!(read(2).is_ok());
        assert!(matches!(read(1), Err(Malformed::Capacity("streams"))));
    }

    proptest! {
        #[test]
        fn weights_of_any_sort_come_back(
            rows in prop::collection::vec((0u64..5, 0u64..1 << 20, any::<bool>()), 0..20),
            wild in proptest::option::of(any::<f64>().prop_filter("finite", |w| w.is_finite())),
        ) {
            let mut streams: Vec<StreamCount> = rows
                .iter()
                .map(|(hits, weight, has_source)| {
                    let source = has_source.then_some(Va(*weight));
                    StreamCount { source, ..stream(*weight, *hits, of_fractions(*weight)) }
                })
                .collect();
            streams.extend(wild.map(|weight| stream(1, u64::MAX, weight)));
            let read = to_streams(&of_streams(&streams), &mut all()).unwrap();
            let bits = |all: &[StreamCount]| all.iter().map(|c| c.weight.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&read), bits(&streams));
            prop_assert_eq!(read, streams);
        }
    }
}
