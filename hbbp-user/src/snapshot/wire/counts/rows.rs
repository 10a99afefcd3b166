//! The rows of counts as bytes, written in one pass: half of what a recording costs after its end is their encoding.
//!
//! ```text
//! ips      := weights unit run(kind: 1 exact)*         row: ip hits
//! streams  := weights unit cycles run(kind: 1 source)* row: start length [source] hits [cycles]
//! branches := run(kind: 1 full)*                       row: from hits | from to hits oldest mispredicted
//! run      := n event process kind row[n]              neighbouring rows with the same event, process image and kind
//! ```
//!
//! All are numbers in LEB128. Addresses are differences, modulo 2^64: `ip`, `start` and `from` to the row before, of
//! either sign as protobuf folds it (zigzag), and so are `source` to `start` and `to` to `from`; `length` has no sign.
//! `cycles` says whether rows have any; 0 stands for those that are not known.
//! A branch that is not full was seen in the oldest slot alone, without a target or predictions. `mispredicted` is one more
//! than the number, and 0 where it is not known.
//!
//! Nearly all rows weigh `unit` for each hit. Where `weights` is 0, the lowest bit beside the hits says whether a row
//! does not, and the difference follows (zigzag); a unit is 1 / [`FRACTIONS`] of one of the event for streams, which
//! their collector counts in. Where it is 1, hits and the weight follow each other: a number, or the 8 bytes of a
//! double for streams.

use std::num::NonZeroU64;

use super::super::Malformed;
use super::word::Word;
use crate::addr::Va;
use crate::snapshot::{BranchCount, EventIdx, IpCount, ProcessIdx, StreamCount};

/// Weights of streams are stored in this fraction, which is exact for all that the collector counts.
const FRACTIONS: f64 = 256.0;
/// Doubles hold all whole numbers below.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// How weights are stored.
const IN_UNITS: u64 = 0;
const PLAIN: u64 = 1;

/// Bytes that a usual row needs, to have room at once.
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
    for run in ips.chunk_by(|a, b| key(a) == key(b)) {
        let Some((event, process, exact)) = run.first().map(key) else {
            continue;
        };
        word = word.run(&mut out, run.len(), (event, process), exact);
        for count in run {
            word = word.difference(&mut out, count.ip.0.wrapping_sub(last));
            last = count.ip.0;
            if in_units {
                word = word.hits_in_units(&mut out, count.hits, beside(count.hits, count.weight, unit));
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
pub(super) fn to_ips(bytes: &[u8]) -> Result<Vec<IpCount>, Malformed> {
    let mut rest = Rest("IP counts", bytes);
    let mut ips = Vec::new();
    if bytes.is_empty() {
        return Ok(ips);
    }
    let in_units = rest.choice(PLAIN)? == IN_UNITS;
    let unit = rest.number()?;
    let mut ip = 0_u64;
    while !rest.1.is_empty() {
        let (n, event, process, exact) = rest.run()?;
        for _ in 0..n {
            ip = ip.wrapping_add(rest.difference()?);
            let (hits, weight) = if in_units {
                rest.hits_in_units(unit)?
            } else {
                (rest.number()?, rest.number()?)
            };
            ips.push(IpCount {
                event,
                process,
                ip: Va(ip),
                exact,
                hits,
                weight,
            });
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
    for run in streams.chunk_by(|a, b| key(a) == key(b)) {
        let Some((event, process, has_source)) = run.first().map(key) else {
            continue;
        };
        word = word.run(&mut out, run.len(), (event, process), has_source);
        for count in run {
            let start = count.start.0;
            word = word.difference(&mut out, start.wrapping_sub(last));
            last = start;
            word = word.number(&mut out, count.end.0.wrapping_sub(start));
            if let Some(Va(source)) = count.source {
                word = word.difference(&mut out, source.wrapping_sub(start));
            }
            if in_units {
                let beside = if weighs(count, unit) {
                    0
                } else {
                    beside(count.hits, in_fractions(count).unwrap_or(0), unit)
                };
                word = word.hits_in_units(&mut out, count.hits, beside);
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
pub(super) fn to_streams(bytes: &[u8]) -> Result<Vec<StreamCount>, Malformed> {
    let mut rest = Rest("streams", bytes);
    let mut streams = Vec::new();
    if bytes.is_empty() {
        return Ok(streams);
    }
    let in_units = rest.choice(PLAIN)? == IN_UNITS;
    let unit = rest.number()?;
    let has_cycles = rest.choice(1)? == 1;
    let mut start = 0_u64;
    while !rest.1.is_empty() {
        let (n, event, process, has_source) = rest.run()?;
        for _ in 0..n {
            start = start.wrapping_add(rest.difference()?);
            let end = start.wrapping_add(rest.number()?);
            let source = if has_source {
                Some(Va(start.wrapping_add(rest.difference()?)))
            } else {
                None
            };
            let (hits, weight) = if in_units {
                let (hits, weight) = rest.hits_in_units(unit)?;
                (hits, of_fractions(weight))
            } else {
                (rest.number()?, rest.double()?)
            };
            let cycles = if has_cycles { rest.number()? } else { 0 };
            let cycles = NonZeroU64::new(cycles);
            // A weight that is no number would silently spoil every sum that it enters.
            if !weight.is_finite() {
                return Err(Malformed::Weight);
            }
            streams.push(StreamCount {
                event,
                process,
                start: Va(start),
                end: Va(end),
                source,
                hits,
                weight,
                cycles,
            });
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
    for run in branches.chunk_by(|a, b| key(a) == key(b)) {
        let Some((event, process, full)) = run.first().map(key) else {
            continue;
        };
        word = word.run(&mut out, run.len(), (event, process), full);
        for count in run {
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
pub(super) fn to_branches(bytes: &[u8]) -> Result<Vec<BranchCount>, Malformed> {
    let mut rest = Rest("branches", bytes);
    let mut branches = Vec::new();
    let mut from = 0_u64;
    while !rest.1.is_empty() {
        let (n, event, process, full) = rest.run()?;
        for _ in 0..n {
            from = from.wrapping_add(rest.difference()?);
            let to = if full {
                from.wrapping_add(rest.difference()?)
            } else {
                0
            };
            let hits = rest.number()?;
            let (oldest, mispredicted) = if full {
                (rest.number()?, rest.number()?.checked_sub(1))
            } else {
                (hits, None)
            };
            branches.push(BranchCount {
                event,
                process,
                from: Va(from),
                to: Va(to),
                hits,
                oldest,
                mispredicted,
            });
        }
    }
    Ok(branches)
}

/// The weight of most rows for each of their hits, where most have one (Boyer and Moore's majority vote); any number
/// serves, but this one makes rows short.
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

/// What a row weighs beside a unit for each hit.
const fn beside(hits: u64, weight: u64, unit: u64) -> u64 {
    weight.wrapping_sub(hits.wrapping_mul(unit))
}

/// Whether a stream weighs so many fractions for each hit, and can be stored so.
#[inline]
fn weighs(count: &StreamCount, unit: u64) -> bool {
    let whole = count.hits.wrapping_mul(unit);
    let exact = whole < 1 << f64::MANTISSA_DIGITS && count.hits <= u64::MAX >> 1;
    exact && of_fractions(whole).to_bits() == count.weight.to_bits()
}

/// The weight of a stream as a whole number of fractions; `None` where that, or the hits beside it, cannot be stored.
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

/// An empty table with room for `n` usual rows.
fn for_rows(n: usize) -> Vec<u8> {
    Vec::with_capacity(USUAL * n + size_of::<u64>())
}

/// What is still to be read of the table with a name.
struct Rest<'a>(&'static str, &'a [u8]);

impl Rest<'_> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.1.split_first().ok_or(Malformed::Lengths(self.0))?;
        self.1 = rest;
        Ok(*byte)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed::Lengths(self.0))
    }

    fn difference(&mut self) -> Result<u64, Malformed> {
        let folded = self.number()?;
        Ok(folded >> 1 ^ (folded & 1).wrapping_neg())
    }

    /// A number up to `most`.
    fn choice(&mut self, most: u64) -> Result<u64, Malformed> {
        let number = self.number()?;
        if number <= most {
            Ok(number)
        } else {
            Err(Malformed::Value(self.0, number.cast_signed()))
        }
    }

    fn run(&mut self) -> Result<(u64, EventIdx, ProcessIdx, bool), Malformed> {
        let n = self.number()?;
        let mut index = || {
            let index = self.number()?;
            u32::try_from(index).map_err(|_| Malformed::Value(self.0, index.cast_signed()))
        };
        let (event, process) = (EventIdx(index()?), ProcessIdx(index()?));
        Ok((n, event, process, self.choice(1)? == 1))
    }

    fn hits_in_units(&mut self, unit: u64) -> Result<(u64, u64), Malformed> {
        let number = self.number()?;
        let hits = number >> 1;
        let beside = if number & 1 == 0 { 0 } else { self.difference()? };
        Ok((hits, hits.wrapping_mul(unit).wrapping_add(beside)))
    }

    fn double(&mut self) -> Result<f64, Malformed> {
        let (bytes, rest) = self.1.split_first_chunk().ok_or(Malformed::Lengths(self.0))?;
        self.1 = rest;
        Ok(f64::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert_eq!(to_streams(&bytes).unwrap(), usual);
        assert_eq!(to_streams(&more).unwrap(), odd);
    }

    #[test]
    fn rows_that_end_early_or_say_too_much_are_refused() {
        let bytes = of_streams(&[stream(7, 1, 0.5), stream(9, 1, 0.3)]);
        let no_rows = 3;
        for len in (1..bytes.len()).filter(|len| *len != no_rows) {
            assert!(to_streams(&bytes[..len]).is_err(), "{len}");
        }
        assert!(to_branches(&[0xff; 11]).is_err());
        assert!(to_branches(&[0, 0, 0, 2]).is_err());
        assert!(to_ips(&[2, 0]).is_err());
        let infinite = of_streams(&[stream(7, 1, f64::INFINITY)]);
        assert!(matches!(to_streams(&infinite), Err(Malformed::Weight)));
    }

    proptest! {
        #[test]
        fn weights_of_any_sort_come_back(
            rows in prop::collection::vec((0u64..5, 0u64..1 << 20, any::<bool>()), 0..20),
            wild in proptest::option::of(any::<f64>().prop_filter("finite", |w| w.is_finite())),
        ) {
            let mut streams: Vec<StreamCount> = rows
                .iter()
                .map(|(hits, weight, told)| {
                    let source = told.then_some(Va(*weight));
                    StreamCount { source, ..stream(*weight, *hits, of_fractions(*weight)) }
                })
                .collect();
            streams.extend(wild.map(|weight| stream(1, u64::MAX, weight)));
            let read = to_streams(&of_streams(&streams)).unwrap();
            let bits = |all: &[StreamCount]| all.iter().map(|c| c.weight.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&read), bits(&streams));
            prop_assert_eq!(read, streams);
        }
    }
}
