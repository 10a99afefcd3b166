//! The factor of a symmetric quasi-definite matrix: a lower triangle, pivots, and the triangle transposed.
//!
//! A quasi-definite matrix has such a factor in any order of its rows (Vanderbei, SIAM Journal on Optimization 5, 1995).
//! Approximate minimum degree orders them for few entries (Amestoy, Davis and Duff, SIAM Journal on Matrix Analysis and
//! Applications 17, 1996). Rows of the triangle are then found one by one, along the elimination tree (Davis, Direct Methods for
//! Sparse Linear Systems, 2006, chapter 4).

use amd::Control;

use crate::sums::{add, at, merged};

/// A pivot that is a smaller share of its scale is lost to rounding; the scale replaces it.
const LEAST_PIVOT: f64 = 1e-12;

/// Most entries of a triangle, of 16 bytes each.
const MOST_ENTRIES: usize = 8 << 20;

/// Most products that make a triangle: some seconds.
const MOST_PRODUCTS: usize = 1 << 31;

/// No row.
const NONE: usize = usize::MAX;

/// A symmetric matrix by its lower half, and a scale of each pivot with the sign that the pivot has.
pub(super) struct Symmetric {
    /// For each row what is left of the diagonal, as column and amount; of one column there may be several.
    left: Vec<Vec<(usize, f64)>>,
    diagonal: Vec<f64>,
    scale: Vec<f64>,
}

impl Symmetric {
    pub(super) fn new(n: usize) -> Self {
        Self {
            left: vec![Vec::new(); n],
            diagonal: vec![0.0; n],
            scale: vec![0.0; n],
        }
    }

    /// Adds an amount in two places, or on the diagonal.
    pub(super) fn add(&mut self, a: usize, b: usize, amount: f64) {
        if a == b {
            add(&mut self.diagonal, a, amount);
            add(&mut self.scale, a, amount);
        } else if let Some(row) = self.left.get_mut(a.max(b)) {
            row.push((a.min(b), amount));
        }
    }

    /// Adds to the scale of a pivot alone.
    pub(super) fn add_scale(&mut self, n: usize, amount: f64) {
        add(&mut self.scale, n, amount);
    }

    /// The factor; `None` if it would be too large.
    pub(super) fn factor(self) -> Option<Factor> {
        let permuted = self.ordered();
        let tree = Tree::new(&permuted.left, MOST_ENTRIES)?;
        let products = tree.counts.iter().map(|count| count.saturating_mul(*count));
        let is_small = products.fold(0, usize::saturating_add) <= MOST_PRODUCTS;
        is_small.then(|| Factor::new(&permuted, &tree))
    }

    /// The same matrix in an order of few entries of the triangle; each row sorted, with one entry for a column.
    fn ordered(self) -> Permuted {
        let n = self.diagonal.len();
        let rows = self.left.into_iter();
        let rows: Vec<Vec<(usize, f64)>> = rows
            .map(|row| merged(row, |(column, _)| *column, |kept, next| kept.1 += next.1))
            .collect();
        let place = order(&rows);
        let mut permuted = Permuted {
            left: vec![Vec::new(); n],
            diagonal: vec![0.0; n],
            scale: vec![0.0; n],
            place,
        };
        for (row, entries) in rows.into_iter().enumerate() {
            let to = permuted.place_of(row);
            add(&mut permuted.diagonal, to, at(&self.diagonal, row));
            add(&mut permuted.scale, to, at(&self.scale, row));
            for (column, amount) in entries {
                let other = permuted.place_of(column);
                if let Some(left) = permuted.left.get_mut(to.max(other)) {
                    left.push((to.min(other), amount));
                }
            }
        }
        permuted
    }
}

/// The place of each row in an order by approximate minimum degree.
fn order(rows: &[Vec<(usize, f64)>]) -> Vec<usize> {
    let signed = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
    let (mut ends, mut columns) = (vec![0], Vec::new());
    for (n, row) in rows.iter().enumerate() {
        // The library wants the diagonal as well.
        columns.extend(row.iter().map(|(column, _)| signed(*column)).chain([signed(n)]));
        ends.push(signed(columns.len()));
    }
    let places = amd::order(signed(rows.len()), &ends, &columns, &Control::default());
    places.map_or_else(
        |_| (0..rows.len()).collect(),
        |(_, places, _)| places.into_iter().map(isize::unsigned_abs).collect(),
    )
}

/// A matrix in the order in which it is factored.
struct Permuted {
    left: Vec<Vec<(usize, f64)>>,
    diagonal: Vec<f64>,
    scale: Vec<f64>,
    /// Where each row of the original is.
    place: Vec<usize>,
}

impl Permuted {
    fn place_of(&self, row: usize) -> usize {
        self.place.get(row).copied().unwrap_or(row)
    }
}

/// The elimination tree: the parent of a row is the first one below with an entry in its column of the triangle.
struct Tree {
    parents: Vec<usize>,
    /// Entries of each column of the triangle.
    counts: Vec<usize>,
}

impl Tree {
    /// The tree of a triangle; `None` if that has more than `most` entries.
    fn new(rows: &[Vec<(usize, f64)>], most: usize) -> Option<Self> {
        let mut left = most;
        let mut tree = Self {
            parents: vec![NONE; rows.len()],
            counts: vec![0; rows.len()],
        };
        let mut seen = vec![NONE; rows.len()];
        for (row, entries) in rows.iter().enumerate() {
            for (column, _) in entries {
                let mut at = *column;
                while at < row && seen.get(at) != Some(&row) {
                    if let (Some(seen), Some(count), Some(parent)) = (
                        seen.get_mut(at),
                        tree.counts.get_mut(at),
                        tree.parents.get_mut(at),
                    ) {
                        *seen = row;
                        *count += 1;
                        left = left.checked_sub(1)?;
                        if *parent == NONE {
                            *parent = row;
                        }
                        at = *parent;
                    }
                }
            }
        }
        Some(tree)
    }
}

/// The triangle by columns, its pivots, and the order of its rows.
pub(super) struct Factor {
    entries: Vec<(u32, f64)>,
    /// Where each column begins in `entries`, and where it ends.
    columns: Vec<(usize, usize)>,
    pivots: Vec<f64>,
    place: Vec<usize>,
}

impl Factor {
    fn new(permuted: &Permuted, tree: &Tree) -> Self {
        let n = permuted.diagonal.len();
        let mut begin = 0;
        let columns = tree.counts.iter().map(|count| {
            let column = (begin, begin);
            begin += count;
            column
        });
        let columns: Vec<(usize, usize)> = columns.collect();
        let mut factor = Self {
            entries: vec![(0, 0.0); begin],
            columns,
            pivots: Vec::with_capacity(n),
            place: permuted.place.clone(),
        };
        let mut sums = vec![0.0; n];
        let mut seen = vec![NONE; n];
        let (mut pattern, mut path) = (Vec::new(), Vec::new());
        for (row, entries) in permuted.left.iter().enumerate() {
            // The columns of the row, each before those that it adds to.
            pattern.clear();
            for (column, amount) in entries {
                add(&mut sums, *column, *amount);
                let mut at = *column;
                while at < row
                    && let Some(seen) = seen.get_mut(at).filter(|seen| **seen != row)
                {
                    *seen = row;
                    path.push(at);
                    at = tree.parents.get(at).copied().unwrap_or(NONE);
                }
                pattern.extend(path.drain(..).rev());
            }
            factor.add_row(row, &pattern, &mut sums, permuted);
        }
        factor
    }

    /// Adds a row whose sums stand in these columns, last ones first; the sums become 0.
    fn add_row(&mut self, row: usize, pattern: &[usize], sums: &mut [f64], permuted: &Permuted) {
        let mut pivot = at(&permuted.diagonal, row);
        for &column in pattern.iter().rev() {
            let Some((begin, end)) = self.columns.get_mut(column) else {
                continue;
            };
            let sum = sums.get_mut(column).map_or(0.0, std::mem::take);
            for (other, entry) in self.entries.get(*begin..*end).unwrap_or_default() {
                add(sums, *other as usize, -entry * sum);
            }
            let entry = sum / at(&self.pivots, column);
            pivot -= sum * entry;
            if let Some(place) = self.entries.get_mut(*end) {
                *place = (u32::try_from(row).unwrap_or(u32::MAX), entry);
                *end += 1;
            }
        }
        let scale = at(&permuted.scale, row);
        let is_lost = pivot * scale.signum() <= LEAST_PIVOT * scale.abs();
        // The scale is zero for an unknown that is in no equation.
        self.pivots.push(match (is_lost, scale == 0.0) {
            (_, true) => 1.0,
            (true, _) => scale,
            (false, _) => pivot,
        });
    }

    /// Solves for the matrix. Rows beyond those of `right` have 0 on the right side, and are left out of the result.
    pub(super) fn solve(&self, right: &[f64]) -> Vec<f64> {
        let mut solved = vec![0.0; self.pivots.len()];
        for (right, place) in right.iter().zip(&self.place) {
            add(&mut solved, *place, *right);
        }
        for (column, (begin, end)) in self.columns.iter().enumerate() {
            let here = at(&solved, column);
            for (row, entry) in self.entries.get(*begin..*end).unwrap_or_default() {
                add(&mut solved, *row as usize, -entry * here);
            }
        }
        for (solved, pivot) in solved.iter_mut().zip(&self.pivots) {
            *solved /= pivot;
        }
        for (column, (begin, end)) in self.columns.iter().enumerate().rev() {
            let entries = self.entries.get(*begin..*end).unwrap_or_default();
            let below: f64 = entries
                .iter()
                .map(|(row, entry)| entry * at(&solved, *row as usize))
                .sum();
            add(&mut solved, column, -below);
        }
        let places = self.place.iter().take(right.len());
        places.map(|place| at(&solved, *place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row has an entry in the first column, so that its elimination fills the triangle.
    #[test]
    fn no_more_entries_are_counted_than_a_triangle_may_have() {
        let full: Vec<Vec<(usize, f64)>> = (0..100)
            .map(|row| (0..row).take(1).map(|column| (column, 1.0)).collect())
            .collect();
        let entries = Tree::new(&full, usize::MAX).unwrap().counts.iter().sum::<usize>();
        assert_eq!(entries, 100 * 99 / 2);
        assert!(Tree::new(&full, entries).is_some());
        assert!(Tree::new(&full, entries - 1).is_none());
    }
}
