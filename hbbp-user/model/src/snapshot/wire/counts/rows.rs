//! The rows of counts as bytes, written in one pass: half of what a recording costs after its end is their encoding.
//!
//! ```text
//! ips      := weights unit group(kind: 1 exact)*         row: ip hits
//! streams  := weights unit cycles group(kind: 1 source)* row: start length [source] hits [cycles]
//! branches := group(kind: 1 full)*                       row: from hits | from to hits oldest mispredicted
//! chains   := row*                                       row: event process ip top n frame[n] hits weight
//! group    := n event process kind row[n]                neighbouring rows with the same event, process image and kind
//! ```
//!
//! All are numbers in LEB128. Addresses are differences modulo 2^64, zigzag encoded: `ip`, `start` and `from` to the
//! row before, `source` to `start`, `to` to `from`, `top` and the first `frame` to `ip` and each other one to that before it; `length` has
//! no sign.
//! `cycles` says whether rows have cycles; 0 stands for those that are not known.
//! A branch that is not full was seen in the oldest slot alone, without a target or predictions. `mispredicted` is one more
//! than the number, and 0 where it is not known.
//!
//! Nearly all rows weigh `unit` for each hit. Where `weights` is 0, the lowest bit of the hits says whether a row does
//! not, and then the difference follows (zigzag); for streams, a unit is 1 / `FRACTIONS` of one unit of the event.
//! Where `weights` is 1, the weight follows the hits: a number for IPs, the 8 bytes of a double for streams.

mod branches;
mod chains;
mod ips;
mod streams;

use super::super::number::Reader;
use super::super::{Capacity, Malformed};
use crate::snapshot::fold::Row;
use crate::snapshot::{EventIdx, ProcessIdx};
pub(super) use branches::{of_branches, to_branches};
pub(super) use chains::{of_chains, to_chains};
pub(super) use ips::{of_ips, to_ips};
pub(super) use streams::{of_streams, to_streams};

/// How weights are stored.
const IN_UNITS: u64 = 0;
const PLAIN: u64 = 1;

/// Bytes that a usual row needs, to allocate once.
const USUAL: usize = 8;

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

/// An empty table with the capacity for `n` usual rows.
fn for_rows(n: usize) -> Vec<u8> {
    Vec::with_capacity(USUAL * n + size_of::<u64>())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::streams::of_fractions;
    use super::*;
    use crate::addr::Va;
    use crate::snapshot::{IpCount, StreamCount};

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
