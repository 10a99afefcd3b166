//! Weighted least squares over equations that tie a few unknowns each: conjugate gradients on the normal equations,
//! preconditioned by an incomplete Cholesky factor.
//!
//! Around a long loop each equation ties neighbours only, and plain conjugate gradients carry a change one unknown further
//! with each step. An incomplete Cholesky factor has entries only where the matrix has (Meijerink and van der Vorst,
//! Mathematics of Computation 31, 1977). It carries the change all the way, where the unknowns are numbered along the
//! code. It takes a tenth of the steps here.

use crate::sums::{add, at, merged};

/// Most steps. The recording of the emulated machine with the most unknowns, up to 61 thousand that are in any equation, takes some 500.
const MAX_STEPS: usize = 1000;

/// The square of the residual that is small enough. The equations are in units of their standard deviations, and so is
/// the residual: what is left is a thirtieth of one. On the emulated machine a third of one costs 0.002 to 0.013 points
/// of the mix, a whole one 0.01 to 0.08. A tenth costs only the kernel of one load, which is off by 6.6 instead of 5.1
/// %.
const SMALL: f64 = 1e-3;

/// The same where other rounds follow: a whole standard deviation. The mix differs by 0.001 points, and gcc is evaluated in 9.5 s, not 12.5
/// (kernel-tests/results/conservation.txt).
const ROUGH: f64 = 1.0;

/// Terms from which on an equation adds nothing to the matrix that is factored but to its diagonal: the square of what a
/// function receives from all its callers is not sparse.
pub(super) const LONG: usize = 32;

/// A pivot that is a smaller share of its diagonal comes from what the factor leaves out; then its row stands alone. Chains
/// have smaller ones than loops: a conservation equation weighs up to 1e5 times as much as a measurement.
const PIVOT: f64 = 1e-6;

/// Lookups in other rows that a row of the factor may cost for each of its entries. Rows that are long tie to short ones as
/// a rule; where long rows tie to long ones, the factor would take the square of their number, and they stand alone.
const LOOKUPS: usize = 256;

/// An equation: the sum of the terms, unknown and factor, should be `value`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Equation {
    pub(crate) terms: Vec<(usize, f64)>,
    pub(crate) value: f64,
    /// Inverse variance.
    pub(crate) weight: f64,
}

/// The unknowns that satisfy the equations best, beginning with `first`.
/// Where the numbers overflow, what was reached before is returned.
pub(super) fn solve(equations: &[Equation], first: &[f64]) -> Vec<f64> {
    solve_within(MAX_STEPS, SMALL, equations, first)
}

/// The same nearly, for a round that others follow.
pub(super) fn solve_roughly(equations: &[Equation], first: &[f64]) -> Vec<f64> {
    solve_within(MAX_STEPS, ROUGH, equations, first)
}

/// The same by `n_steps` steps at most, or until the square of the residual is small.
pub(crate) fn solve_within(n_steps: usize, small: f64, equations: &[Equation], first: &[f64]) -> Vec<f64> {
    let factor = Symmetric::new(first.len(), equations).factor();
    let matrix = Matrix::new(equations);
    let mut x = first.to_vec();
    let right = transposed(equations, x.len(), |equation| equation.value);
    let applied = matrix.applied(&x);
    let mut residual: Vec<f64> = right.iter().zip(applied).map(|(r, a)| r - a).collect();
    let mut z = factor.solve(&residual);
    let mut direction = z.clone();
    let mut rz = dot(&residual, &z);
    for _ in 0..n_steps {
        if rz <= small {
            break;
        }
        let applied = matrix.applied(&direction);
        let length = rz / dot(&direction, &applied);
        if !length.is_finite() {
            break;
        }
        for ((x, r), (d, a)) in x
            .iter_mut()
            .zip(&mut residual)
            .zip(direction.iter().zip(&applied))
        {
            *x += length * d;
            *r -= length * a;
        }
        z = factor.solve(&residual);
        let next = dot(&residual, &z);
        for (d, z) in direction.iter_mut().zip(&z) {
            *d = z + next / rz * *d;
        }
        rz = next;
    }
    x
}

/// The left sides of equations, in one piece of memory, as each step goes through all of them twice.
struct Matrix {
    /// Columns and factors, equation after equation.
    terms: Vec<(u32, f64)>,
    /// Where the terms of each equation end, and its weight.
    ends: Vec<(usize, f64)>,
}

impl Matrix {
    fn new(equations: &[Equation]) -> Self {
        let (mut terms, mut ends) = (Vec::new(), Vec::with_capacity(equations.len()));
        for equation in equations {
            let of = |(column, factor): &(usize, f64)| Some((u32::try_from(*column).ok()?, *factor));
            terms.extend(equation.terms.iter().filter_map(of));
            ends.push((terms.len(), equation.weight));
        }
        Self { terms, ends }
    }

    /// The transposed matrix, weighted, times the matrix times these numbers.
    fn applied(&self, x: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; x.len()];
        let mut begin = 0;
        for (end, weight) in &self.ends {
            let terms = self.terms.get(begin..*end).unwrap_or_default();
            let left: f64 = terms.iter().map(|(n, factor)| factor * at(x, *n as usize)).sum();
            for (n, factor) in terms {
                add(&mut sums, *n as usize, factor * weight * left);
            }
            begin = *end;
        }
        sums
    }
}

/// The transposed matrix of the equations, weighted, times a number for each equation.
fn transposed(equations: &[Equation], n: usize, number: impl Fn(&Equation) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; n];
    for equation in equations {
        let weighted = equation.weight * number(equation);
        for (n, factor) in &equation.terms {
            add(&mut sums, *n, factor * weighted);
        }
    }
    sums
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The matrix of the normal equations, nearly: long equations count on the diagonal only.
struct Symmetric {
    diagonal: Vec<f64>,
    /// For each row what is left of the diagonal, as column and amount; of one column there may be several.
    left: Vec<Vec<(usize, f64)>>,
}

impl Symmetric {
    fn new(n: usize, equations: &[Equation]) -> Self {
        let mut symmetric = Self {
            diagonal: vec![0.0; n],
            left: vec![Vec::new(); n],
        };
        for Equation { terms, weight, .. } in equations {
            let mut before: &[(usize, f64)] = &[];
            for (n, &(column, factor)) in terms.iter().enumerate() {
                symmetric.add(column, column, weight * factor * factor);
                for &(other, also) in before {
                    // The square of a sum in which an unknown is twice has their product twice on the diagonal.
                    let twice = if column == other { 2.0 } else { 1.0 };
                    symmetric.add(column, other, twice * weight * factor * also);
                }
                if terms.len() < LONG {
                    before = terms.get(..=n).unwrap_or_default();
                }
            }
        }
        symmetric
    }

    fn add(&mut self, a: usize, b: usize, amount: f64) {
        if a != b {
            if let Some(row) = self.left.get_mut(a.max(b)) {
                row.push((a.min(b), amount));
            }
        } else {
            add(&mut self.diagonal, a, amount);
        }
    }

    fn factor(self) -> Factor {
        let mut factor = Factor::default();
        for (diagonal, row) in self.diagonal.into_iter().zip(self.left) {
            let mut pivot = diagonal;
            let mut done: Vec<(usize, f64)> = Vec::with_capacity(row.len());
            let row = factor.affordable(merged(row, |(column, _)| *column, |kept, next| kept.1 += next.1));
            for (column, amount) in row {
                let divisor = factor.diagonal.get(column).copied().unwrap_or(1.0);
                let entry = (amount - common(&done, factor.row(column))) / divisor;
                pivot -= entry * entry;
                done.push((column, entry));
            }
            if pivot <= PIVOT * diagonal {
                (pivot, done) = (diagonal, Vec::new());
            }
            // The diagonal is zero for an unknown that is in no equation.
            factor.diagonal.push(if 0.0 < pivot { pivot.sqrt() } else { 1.0 });
            factor.left.append(&mut done);
            factor.ends.push(factor.left.len());
        }
        factor
    }
}

/// The scalar product of two rows, each sorted by column: the columns of the shorter one are looked up in the longer one.
fn common(a: &[(usize, f64)], b: &[(usize, f64)]) -> f64 {
    let (short, mut long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let mut sum = 0.0;
    for (column, x) in short {
        let before = long.partition_point(|(other, _)| other < column);
        long = long.get(before..).unwrap_or_default();
        if let Some((_, y)) = long.first().filter(|(other, _)| other == column) {
            sum += x * y;
        }
    }
    sum
}

/// A lower triangle whose product with its transposed is nearly a matrix.
#[derive(Default)]
struct Factor {
    diagonal: Vec<f64>,
    /// What is left of the diagonal, row after row, sorted by column.
    left: Vec<(usize, f64)>,
    /// Where each row ends in `left`.
    ends: Vec<usize>,
}

impl Factor {
    /// The next row, or none of its entries where it costs too much.
    fn affordable(&self, row: Vec<(usize, f64)>) -> Vec<(usize, f64)> {
        let lookups = row
            .iter()
            .map(|(column, _)| row.len().min(self.row(*column).len()));
        if lookups.fold(0, usize::saturating_add) <= LOOKUPS.saturating_mul(row.len()) {
            row
        } else {
            Vec::new()
        }
    }

    fn row(&self, n: usize) -> &[(usize, f64)] {
        let begin = n.checked_sub(1).and_then(|before| self.ends.get(before));
        let range = begin.copied().unwrap_or(0)..self.ends.get(n).copied().unwrap_or(0);
        self.left.get(range).unwrap_or_default()
    }

    /// Solves for the product of both triangles.
    fn solve(&self, right: &[f64]) -> Vec<f64> {
        let mut solved: Vec<f64> = Vec::with_capacity(right.len());
        for (n, (right, diagonal)) in right.iter().zip(&self.diagonal).enumerate() {
            let at = |column: &usize| solved.get(*column).copied().unwrap_or_default();
            let known: f64 = self.row(n).iter().map(|(column, entry)| entry * at(column)).sum();
            solved.push((right - known) / diagonal);
        }
        for (n, diagonal) in self.diagonal.iter().enumerate().rev() {
            let Some(here) = solved.get_mut(n) else { continue };
            *here /= diagonal;
            let here = *here;
            for (column, entry) in self.row(n) {
                if let Some(before) = solved.get_mut(*column) {
                    *before -= entry * here;
                }
            }
        }
        solved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn equation(terms: Vec<(usize, f64)>, weight: f64) -> Equation {
        Equation {
            terms,
            value: 0.0,
            weight,
        }
    }

    /// Gives each equation the value that these unknowns have.
    fn satisfied(mut equations: Vec<Equation>, x: &[f64]) -> Vec<Equation> {
        for equation in &mut equations {
            equation.value = equation.terms.iter().map(|(n, factor)| factor * at(x, *n)).sum();
        }
        equations
    }

    fn apply(equations: &[Equation], x: &[f64]) -> Vec<f64> {
        Matrix::new(equations).applied(x)
    }

    #[test]
    fn the_factor_of_a_chain_is_exact() {
        let n = 500;
        let mut equations: Vec<Equation> = (1..n)
            .map(|i| equation(vec![(i - 1, -1.0), (i, 1.0)], 1e4))
            .collect();
        equations.push(equation(vec![(0, 1.0)], 1.0));
        let right: Vec<f64> = (0..n).map(|i| (i % 7) as f64).collect();
        let solved = Symmetric::new(n, &equations).factor().solve(&right);
        for (applied, right) in apply(&equations, &solved).iter().zip(&right) {
            assert!((applied - right).abs() < 1e-6, "{applied} is not {right}");
        }
    }

    #[test]
    fn long_equations_count_although_the_factor_leaves_them_out() {
        let n = 2 * LONG;
        let mut equations: Vec<Equation> = (0..n).map(|i| equation(vec![(i, 1.0)], 1.0)).collect();
        equations.push(equation((0..n).map(|i| (i, 1.0)).collect(), 100.0));
        let x = solve(&satisfied(equations, &vec![3.0; n]), &vec![0.0; n]);
        assert!(x.iter().all(|x| (x - 3.0).abs() < 0.1), "{x:?}");
    }

    #[test]
    fn rows_that_tie_long_rows_to_each_other_stand_alone() {
        /// As many rows, each with as many entries.
        const LONG_ROWS: usize = 2 * LOOKUPS + 2;

        let row = |len: usize| -> Vec<(usize, f64)> { (0..len).map(|column| (column, 1.0)).collect() };
        let factor = |len: usize| Factor {
            diagonal: vec![1.0; LONG_ROWS],
            left: (0..LONG_ROWS).flat_map(|_| row(len)).collect(),
            ends: (1..=LONG_ROWS).map(|n| n * len).collect(),
        };
        // One unknown that is tied to many others, which are tied to few.
        assert_eq!(factor(3).affordable(row(LONG_ROWS)).len(), LONG_ROWS);
        // A few unknowns that are tied to all.
        assert_eq!(factor(LONG_ROWS).affordable(row(30)).len(), 30);
        assert!(factor(LONG_ROWS).affordable(row(LONG_ROWS)).is_empty());
    }

    fn drawn(most: usize) -> impl Strategy<Value = Vec<Equation>> {
        let terms = prop::collection::vec((0usize..20, -3.0f64..3.0), 1..5);
        let one = (terms, 0.01f64..100.0).prop_map(|(terms, weight)| equation(terms, weight));
        prop::collection::vec(one, 1..most)
    }

    proptest! {
        #[test]
        fn what_satisfies_the_equations_is_found(
            mut equations in drawn(60),
            wanted in prop::collection::vec(-10.0f64..10.0, 20),
        ) {
            equations.extend((0..20).map(|n| equation(vec![(n, 1.0)], 1.0)));
            let x = solve(&satisfied(equations.clone(), &wanted), &[0.0; 20]);
            let off: Vec<f64> = x.iter().zip(&wanted).map(|(x, w)| x - w).collect();
            // In squares of standard deviations: what the factor leaves out of it does not show in the residual.
            let squares = |off: &[f64]| dot(off, &apply(&equations, off));
            prop_assert!(squares(&off) < 1.0 + 1e-3 * squares(&wanted), "{off:?}");
        }

        #[test]
        fn the_factor_keeps_the_sign(
            equations in drawn(60),
            right in prop::collection::vec(-10.0f64..10.0, 20),
        ) {
            // Conjugate gradients need a preconditioner that is positive definite.
            let solved = Symmetric::new(20, &equations).factor().solve(&right);
            prop_assert!(0.0 <= dot(&right, &solved));
        }
    }
}
