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
//! `cycles` says whether rows have cycles; 0 means those that are not known.
//! A branch that is not full was seen in the oldest slot alone, without a target or predictions. `mispredicted` is one more
//! than the number, and 0 where it is not known.
//!
//! Nearly all rows have the weight `unit` for each hit. Where `weights` is 0, the lowest bit of the hits says whether a
//! row does not, and then the difference follows (zigzag); for streams, a unit is 1 / `FRACTIONS` of one unit of the
//! event. Where `weights` is 1, the weight follows the hits: a number for IPs, the 8 bytes of a double for streams.

mod branches;
mod chains;
mod group;
mod ips;
mod streams;

pub(super) use branches::{of_branches, to_branches};
pub(super) use chains::{of_chains, to_chains};
pub(super) use ips::{of_ips, to_ips};
pub(super) use streams::{of_streams, to_streams};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::streams::of_fractions;
    use super::*;
    use crate::addr::Va;
    use crate::snapshot::wire::malformed::{Capacity, Malformed};
    use crate::snapshot::{EventIdx, ProcessIdx};
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
