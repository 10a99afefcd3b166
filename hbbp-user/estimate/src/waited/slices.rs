//! Time slices of a run: its drains, neighbouring ones together where there are many.

use std::ops::Range;

use hbbp_model::snapshot::Interval;

/// Most slices: their shares fit next to names on a terminal.
const MOST_SLICES: usize = 60;

/// The intervals of each slice, by their indices. The parts of one drain are in one slice.
pub fn time_slices(intervals: &[Interval]) -> Vec<Range<usize>> {
    let drains = intervals.iter().filter(|interval| !interval.continues).count();
    let drains_each = drains.div_ceil(MOST_SLICES).max(1);
    let mut slices: Vec<Range<usize>> = Vec::new();
    let mut drain = 0_usize;
    for (n, interval) in intervals.iter().enumerate() {
        let begins = slices.is_empty() || !interval.continues;
        match slices.last_mut() {
            Some(last) if !(begins && drain.is_multiple_of(drains_each)) => last.end = n + 1,
            _ => slices.push(n..n + 1),
        }
        drain += usize::from(begins);
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_drains_share_a_slice_and_parts_of_a_drain_too() {
        let interval = |continues| Interval {
            continues,
            ..Interval::default()
        };
        let few = time_slices(&[interval(false), interval(true), interval(false)]);
        assert_eq!(few, [0..2, 2..3]);
        let many = time_slices(&vec![interval(false); 150]);
        assert_eq!(
            (many.len(), many.first(), many.last()),
            (50, Some(&(0..3)), Some(&(147..150)))
        );
    }
}
