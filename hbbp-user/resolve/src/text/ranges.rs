//! Text ranges by their starts, in pieces of sorted tables.
//!
//! Text is looked up several times for each new range, and a tree of small nodes is walked from its root each time; here
//! it takes two short searches. An insertion moves only the remainder of its piece, so that a program which makes text
//! without end costs no more for each range than others.

use std::ops::Range;

/// Most ranges of a piece.
const PIECE: usize = 32;

/// Values by their starts.
#[derive(Debug)]
pub(crate) struct RangeTable<T> {
    /// The first start of each piece.
    firsts: Vec<u64>,
    /// None is empty.
    pieces: Vec<Piece<T>>,
}

#[derive(Debug)]
struct Piece<T> {
    starts: Vec<u64>,
    values: Vec<T>,
}

impl<T> Default for RangeTable<T> {
    fn default() -> Self {
        Self {
            firsts: Vec::new(),
            pieces: Vec::new(),
        }
    }
}

impl<T> Piece<T> {
    const fn new() -> Self {
        Self {
            starts: Vec::new(),
            values: Vec::new(),
        }
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &T)> + ExactSizeIterator {
        self.starts.iter().copied().zip(&self.values)
    }

    fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (u64, &mut T)> + ExactSizeIterator {
        self.starts.iter().copied().zip(&mut self.values)
    }
}

impl<T> RangeTable<T> {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The last one that starts at `at` or before it.
    pub(crate) fn last_upto(&self, at: u64) -> Option<(u64, &T)> {
        let piece = self.pieces.get(self.piece_of(at)?)?;
        let nth = piece
            .starts
            .partition_point(|start| *start <= at)
            .checked_sub(1)?;
        Some((*piece.starts.get(nth)?, piece.values.get(nth)?))
    }

    /// The last one that starts at `at` or before it.
    pub(crate) fn last_upto_mut(&mut self, at: u64) -> Option<(u64, &mut T)> {
        let piece = self.piece_of(at)?;
        let piece = self.pieces.get_mut(piece)?;
        let nth = piece
            .starts
            .partition_point(|start| *start <= at)
            .checked_sub(1)?;
        Some((*piece.starts.get(nth)?, piece.values.get_mut(nth)?))
    }

    /// The start of the first one that starts at `at` or after it.
    pub(crate) fn first_from(&self, at: u64) -> Option<u64> {
        let piece = self.piece_of(at).unwrap_or(0);
        let starts = &self.pieces.get(piece)?.starts;
        let nth = starts.partition_point(|start| *start < at);
        starts.get(nth).or_else(|| self.firsts.get(piece + 1)).copied()
    }

    /// Those that start before `end`, the last one first.
    pub(crate) fn before(&self, end: u64) -> impl Iterator<Item = (u64, &T)> {
        let n_pieces = self.firsts.partition_point(|first| *first < end);
        let pieces = self.pieces.iter().take(n_pieces).rev();
        pieces
            .flat_map(|piece| piece.iter().rev())
            .skip_while(move |(start, _)| end <= *start)
    }

    /// Those that start before `end`, the last one first.
    pub(crate) fn before_mut(&mut self, end: u64) -> impl Iterator<Item = (u64, &mut T)> {
        let n_pieces = self.firsts.partition_point(|first| *first < end);
        let pieces = self.pieces.iter_mut().take(n_pieces).rev();
        pieces
            .flat_map(|piece| piece.iter_mut().rev())
            .skip_while(move |(start, _)| end <= *start)
    }

    /// Those that start in a range, in their order.
    pub(crate) fn range_mut(&mut self, range: Range<u64>) -> impl Iterator<Item = (u64, &mut T)> {
        let first = self.piece_of(range.start).unwrap_or(0);
        let inside = self.pieces.iter_mut().skip(first).flat_map(move |piece| {
            let n_before = piece.starts.partition_point(|start| *start < range.start);
            piece.iter_mut().skip(n_before)
        });
        inside.take_while(move |(start, _)| *start < range.end)
    }

    /// All in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.pieces.iter().flat_map(Piece::iter)
    }

    /// All in their order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.pieces.iter_mut().flat_map(Piece::iter_mut)
    }

    /// All in their order.
    pub(crate) fn into_each(self) -> impl Iterator<Item = (u64, T)> {
        let pieces = self.pieces.into_iter();
        pieces.flat_map(|piece| piece.starts.into_iter().zip(piece.values))
    }

    /// The one that starts at `start`.
    pub(crate) fn get_mut(&mut self, start: u64) -> Option<&mut T> {
        let (found, value) = self.last_upto_mut(start)?;
        (found == start).then_some(value)
    }

    /// Adds one, replacing another with its start.
    pub(crate) fn insert(&mut self, start: u64, value: T) {
        if self.pieces.is_empty() {
            self.pieces.push(Piece::new());
            self.firsts.push(start);
        }
        let mut nth = self.piece_of(start).unwrap_or(0);
        if self
            .pieces
            .get(nth)
            .is_some_and(|piece| PIECE <= piece.starts.len())
        {
            self.split(nth);
            nth = self.piece_of(start).unwrap_or(0);
        }
        let (Some(piece), Some(first)) = (self.pieces.get_mut(nth), self.firsts.get_mut(nth)) else {
            return;
        };
        *first = start.min(*first);
        let at = piece.starts.partition_point(|other| *other < start);
        match piece.values.get_mut(at) {
            Some(there) if piece.starts.get(at) == Some(&start) => *there = value,
            _ => {
                piece.starts.insert(at, start);
                piece.values.insert(at, value);
            }
        }
    }

    /// Makes two pieces of one; the upper one is short where text is met in the order of its addresses.
    fn split(&mut self, nth: usize) {
        const UPPER: usize = PIECE / 4;
        let Some(piece) = self.pieces.get_mut(nth) else {
            return;
        };
        let keep = piece.starts.len() - UPPER;
        let mut upper = Piece::new();
        upper.starts.extend(piece.starts.drain(keep..));
        upper.values.extend(piece.values.drain(keep..));
        if let Some(first) = upper.starts.first() {
            self.firsts.insert(nth + 1, *first);
            self.pieces.insert(nth + 1, upper);
        }
    }

    /// The piece that holds the last start up to `at`.
    fn piece_of(&self, at: u64) -> Option<usize> {
        self.firsts.partition_point(|first| *first <= at).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The same as a tree, for any order of insertion.
        #[test]
        fn what_is_found_is_what_a_tree_finds(
            added in prop::collection::vec(0u64..900, 0..700),
            in_order in any::<bool>(),
            asked in prop::collection::vec((0u64..1000, 0u64..50), 1..20),
        ) {
            let mut added = added;
            if in_order {
                added.sort_unstable();
            }
            let (mut all, mut tree) = (RangeTable::default(), BTreeMap::new());
            for (start, value) in added.into_iter().zip(0..) {
                all.insert(start, value);
                tree.insert(start, value);
            }
            prop_assert_eq!(all.is_empty(), tree.is_empty());
            let row = |(start, value): (u64, &i32)| (start, *value);
            let expected = |(start, value): (&u64, &i32)| (*start, *value);
            prop_assert!(all.iter().map(row).eq(tree.iter().map(expected)));
            for (at, len) in asked {
                let last = tree.range(..=at).next_back().map(expected);
                prop_assert_eq!(all.last_upto(at).map(row), last);
                prop_assert_eq!(all.last_upto_mut(at).map(|(start, value)| (start, *value)), last);
                prop_assert_eq!(all.first_from(at), tree.range(at..).next().map(|(start, _)| *start));
                prop_assert!(all.before(at).map(row).eq(tree.range(..at).rev().map(expected)));
                let before: Vec<_> = all.before_mut(at).map(|(start, value)| (start, *value)).collect();
                prop_assert!(before.into_iter().eq(tree.range(..at).rev().map(expected)));
                let inside: Vec<_> = all.range_mut(at..at + len).map(|(start, value)| (start, *value)).collect();
                prop_assert!(inside.into_iter().eq(tree.range(at..at + len).map(expected)));
                prop_assert_eq!(all.get_mut(at).copied(), tree.get(&at).copied());
            }
            prop_assert!(all.into_each().eq(tree));
        }
    }
}
