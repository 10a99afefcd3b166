//! Weighted least squares over equations that tie unknowns to each other: conjugate gradients on the normal equations, preconditioned by a
//! factor of them.
//!
//! The square of an equation of many terms would tie all of them to each other, so its residual is an unknown of its own. See Duff
//! and Reid, A Comparison of Some Methods for the Solution of Sparse Overdetermined Systems of Linear Equations, 1976.
//!
//! ```text
//! [ N    J'   ] [ unknowns  ]   N: the normal equations of those of few terms
//! [ J  -1 / W ] [ residuals ]   J: the equations of many terms, W: their weights
//! ```
//!
//! Such a matrix has a [factor](factor) in any order. With it a single step of the gradients would do but for rounding. If
//! other weights of the same equations follow, some steps make up for the difference, and the factor is kept.

mod factor;

use crate::sums::{add, at};
use factor::{Factor, Symmetric};

/// Most steps with one factor. With one of the same equations, three do.
const MOST_STEPS: usize = 20;

/// Most steps without any: on so large a matrix, some seconds.
const MOST_STEPS_ALONE: usize = 300;

/// The square of the residual that is small enough. The equations are in units of their standard deviations, and so is
/// the residual: what is left is a thirtieth of one. On the emulated machine a third of one costs 0.002 to 0.013 points
/// of the mix, a whole one 0.01 to 0.08.
const SMALL: f64 = 1e-3;

/// The same by a factor of other weights, in whose deviations it is then: they may be ten times as large.
const SMALL_BY_OTHERS: f64 = 1e-5;

/// Terms from which on the residual of an equation is an unknown. With 290 equations of one load apart, its factor took 0.27 s, and 12.6 s
/// with their squares in the matrix.
const MANY_TERMS: usize = 8;

/// Starts that may run through one block, or into and out of one branch, before its equation is left out: terms are some tens
/// for each stream then.
pub(super) const LONG: usize = 32;

/// An equation: the sum of the terms, unknown and factor, should be `value`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Equation {
    pub(crate) terms: Vec<(usize, f64)>,
    pub(crate) value: f64,
    /// Inverse variance.
    pub(crate) weight: f64,
}

/// Solves equations of one kind, with weights that differ from time to time.
#[derive(Default)]
pub(crate) struct Solver {
    kept: Option<Preconditioner>,
}

/// What nearly solves the normal equations.
enum Preconditioner {
    Factor(Factor),
    /// The diagonal of the normal equations, where their factor would be too large.
    Diagonal(Vec<f64>),
}

impl Solver {
    /// The unknowns that satisfy the equations best, beginning with `first`. Where the numbers overflow, what was reached before is
    /// returned.
    pub(crate) fn solve(&mut self, equations: &[Equation], first: &[f64]) -> Vec<f64> {
        let mut gradients = Gradients::new(equations, first);
        if let Some(kept) = &self.kept
            && gradients.descend(kept, SMALL_BY_OTHERS)
        {
            return gradients.x;
        }
        let new = Preconditioner::new(first.len(), equations);
        gradients.descend(self.kept.insert(new), SMALL);
        gradients.x
    }
}

impl Preconditioner {
    /// For `n` unknowns.
    fn new(n: usize, equations: &[Equation]) -> Self {
        match system(n, equations).factor() {
            Some(factor) => Self::Factor(factor),
            None => Self::Diagonal(diagonal(n, equations)),
        }
    }

    const fn most_steps(&self) -> usize {
        match self {
            Self::Factor(_) => MOST_STEPS,
            Self::Diagonal(_) => MOST_STEPS_ALONE,
        }
    }

    fn solve(&self, right: &[f64]) -> Vec<f64> {
        match self {
            Self::Factor(factor) => factor.solve(right),
            Self::Diagonal(diagonal) => right.iter().zip(diagonal).map(|(a, b)| a / b).collect(),
        }
    }
}

/// The equations for `n` unknowns and for the residuals of those with many terms.
fn system(n: usize, equations: &[Equation]) -> Symmetric {
    let is_long = |equation: &Equation| MANY_TERMS <= equation.terms.len();
    let mut residual = n;
    let mut symmetric = Symmetric::new(n + equations.iter().filter(|equation| is_long(equation)).count());
    for equation in equations {
        let Equation { terms, weight, .. } = equation;
        if is_long(equation) {
            symmetric.add(residual, residual, -1.0 / weight);
            for (column, factor) in terms {
                symmetric.add(residual, *column, *factor);
                symmetric.add_scale(*column, weight * factor * factor);
            }
            residual += 1;
            continue;
        }
        for (n, &(column, factor)) in terms.iter().enumerate() {
            symmetric.add(column, column, weight * factor * factor);
            for &(other, also) in terms.iter().take(n) {
                // The square of a sum in which an unknown is twice has their product twice on the diagonal.
                let twice = if column == other { 2.0 } else { 1.0 };
                symmetric.add(column, other, twice * weight * factor * also);
            }
        }
    }
    symmetric
}

/// The diagonal of the normal equations, 1 for an unknown that is in none.
fn diagonal(n: usize, equations: &[Equation]) -> Vec<f64> {
    let mut diagonal = vec![0.0; n];
    for Equation { terms, weight, .. } in equations {
        for (column, factor) in terms {
            add(&mut diagonal, *column, weight * factor * factor);
        }
    }
    let positive = diagonal.into_iter().map(|sum| if 0.0 < sum { sum } else { 1.0 });
    positive.collect()
}

/// Conjugate gradients on their way.
struct Gradients {
    matrix: Matrix,
    x: Vec<f64>,
    residual: Vec<f64>,
}

impl Gradients {
    fn new(equations: &[Equation], first: &[f64]) -> Self {
        let matrix = Matrix::new(equations);
        let x = first.to_vec();
        let right = transposed(equations, x.len(), |equation| equation.value);
        let applied = matrix.applied(&x);
        let residual = right.iter().zip(applied).map(|(r, a)| r - a).collect();
        Self { matrix, x, residual }
    }

    /// Goes on until the residual is small; whether it became so.
    fn descend(&mut self, preconditioner: &Preconditioner, small: f64) -> bool {
        let mut z = preconditioner.solve(&self.residual);
        let mut direction = z.clone();
        let mut rz = dot(&self.residual, &z);
        for _ in 0..preconditioner.most_steps() {
            if rz <= small {
                return true;
            }
            let applied = self.matrix.applied(&direction);
            let length = rz / dot(&direction, &applied);
            if !length.is_finite() {
                return false;
            }
            let both = direction.iter().zip(&applied);
            for ((x, r), (d, a)) in self.x.iter_mut().zip(&mut self.residual).zip(both) {
                *x += length * d;
                *r -= length * a;
            }
            z = preconditioner.solve(&self.residual);
            let next = dot(&self.residual, &z);
            for (d, z) in direction.iter_mut().zip(&z) {
                *d = z + next / rz * *d;
            }
            rz = next;
        }
        rz <= small
    }
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

    fn factor(n: usize, equations: &[Equation]) -> Factor {
        system(n, equations).factor().unwrap()
    }

    fn assert_exact(n: usize, equations: &[Equation]) {
        let right: Vec<f64> = (0..n).map(|i| (i % 7) as f64).collect();
        let solved = factor(n, equations).solve(&right);
        for (applied, right) in apply(equations, &solved).iter().zip(&right) {
            assert!((applied - right).abs() < 1e-6, "{applied} is not {right}");
        }
    }

    #[test]
    fn the_factor_of_a_chain_is_exact() {
        let mut equations: Vec<Equation> = (1..500)
            .map(|i| equation(vec![(i - 1, -1.0), (i, 1.0)], 1e4))
            .collect();
        equations.push(equation(vec![(0, 1.0)], 1.0));
        assert_exact(500, &equations);
    }

    /// Each of a hundred equations of a thousand unknowns would tie a million pairs.
    #[test]
    fn the_factor_of_equations_of_many_terms_is_exact() {
        let n = 1000;
        let mut equations: Vec<Equation> = (0..n).map(|i| equation(vec![(i, 1.0)], 1.0)).collect();
        let of_all = |nth: usize| (0..n).map(|i| (i, ((i * nth) % 11) as f64)).collect();
        equations.extend((1..100).map(|nth| equation(of_all(nth), 10.0)));
        assert_exact(n, &equations);
    }

    #[test]
    fn the_factor_of_other_weights_does() {
        let wanted: Vec<f64> = (0..200).map(|i| (i % 5) as f64).collect();
        let weighted = |weight: f64| -> Vec<Equation> {
            let pairs = (1..200).map(|i| equation(vec![(i - 1, -1.0), (i, 1.0)], weight));
            let equations = pairs.chain((0..200).step_by(10).map(|i| equation(vec![(i, 1.0)], 1.0)));
            satisfied(equations.collect(), &wanted)
        };
        let mut solver = Solver::default();
        for weight in [100.0, 103.0, 20.0, 300.0] {
            let solved = solver.solve(&weighted(weight), &[0.0; 200]);
            let off = solved.iter().zip(&wanted).map(|(x, wanted)| (x - wanted).abs());
            assert!(off.fold(0.0, f64::max) < 0.1, "{weight}: {solved:?}");
        }
    }

    #[test]
    fn without_a_factor_the_diagonal_does() {
        let mut equations: Vec<Equation> = (0..64).map(|i| equation(vec![(i, 1.0)], 1.0)).collect();
        equations.push(equation((0..64).map(|i| (i, 1.0)).collect(), 100.0));
        let mut gradients = Gradients::new(&satisfied(equations.clone(), &[3.0; 64]), &[0.0; 64]);
        assert!(gradients.descend(&Preconditioner::Diagonal(diagonal(64, &equations)), SMALL));
        assert!(
            gradients.x.iter().all(|x| (x - 3.0).abs() < 0.1),
            "{:?}",
            gradients.x
        );
    }

    fn drawn(most: usize) -> impl Strategy<Value = Vec<Equation>> {
        let terms = prop::collection::vec((0usize..20, -3.0f64..3.0), 1..12);
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
            let x = Solver::default().solve(&satisfied(equations.clone(), &wanted), &[0.0; 20]);
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
            let solved = factor(20, &equations).solve(&right);
            prop_assert!(0.0 <= dot(&right, &solved));
        }
    }
}
