//! How long instructions of each kind take, fitted to a recording.
//!
//! Where time triggers stacks, the number of stacks after a branch is its executions times the time of the stream after
//! it. Its executions, relative to those of the branches around it, are known from older slots ([`super`]). So each
//! branch shows how much longer its stream takes than those around it, and many branches determine the times of the
//! kinds of instructions in which they differ: time(stream) = sum of c(kind) x instructions of that kind. Only code
//! that stacks join is compared, so weights between loops have no part in it; the times are used to find these. Nothing
//! overlaps in this model; the difference from a processor is [`MODEL_ERROR`].
//!
//! The fit is Fisher scoring of a quasi-Poisson model in the logarithms of the times. The times that manuals state are the
//! prior ([`super::super::kinds`]): a kind that the recording has no information on keeps them.

use hbbp_model::kinds::{KNOWN_TIMES, Kinds, N_KINDS};

/// What a recording shows of one branch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Stacks that it triggered.
    pub(super) triggered: f64,
    /// Stacks that it would have triggered, did all streams around take the same time.
    pub(super) expected: f64,
    /// Stacks in whose older slots it is: how well `expected` is known.
    pub(super) seen: f64,
    /// Instructions of the stream after it.
    pub(super) behind: Kinds,
    /// The mean of streams around it.
    pub(super) around: Kinds,
}

/// Standard deviation of a stream's time from the model, as a fraction. Of every second workload of the emulated machine, where
/// the model holds, 0.1 leaves 2.15 %, 0.2 leaves 1.98 %, 0.5 leaves 1.84 % and 1 leaves 1.98 %.
const MODEL_ERROR: f64 = 0.5;

/// Steps of scoring; a dozen suffice.
const STEPS: usize = 30;

/// Largest step in the logarithm of a time.
const LONGEST_STEP: f64 = 1.0;

/// Cycles of a stream.
pub(super) fn time(times: &Kinds, instructions: &Kinds) -> f64 {
    times.iter().zip(instructions).map(|(time, n)| time * n).sum()
}

/// The time of each kind, in cycles if the prior's are right on the whole: only ratios are fitted.
pub(super) fn fit(rows: &[Row]) -> Kinds {
    let mut times = KNOWN_TIMES.map(|(time, _)| time);
    for _ in 0..STEPS {
        let (mut information, mut score) = ([[0.0; N_KINDS]; N_KINDS], [0.0; N_KINDS]);
        for (kind, (known, factor)) in KNOWN_TIMES.iter().enumerate() {
            let precision = factor.ln().powi(-2);
            information[kind][kind] += precision;
            score[kind] += precision * (known / times[kind]).ln();
        }
        for row in rows {
            let (behind, around) = (time(&times, &row.behind), time(&times, &row.around));
            if behind <= 0.0 || around <= 0.0 || row.expected <= 0.0 {
                continue;
            }
            let expected = row.expected * behind / around;
            let error = MODEL_ERROR * MODEL_ERROR + 1.0 / row.seen.max(1.0);
            // Of the logarithm of the expected number.
            let precision = expected / (1.0 + expected * error);
            let residual = precision * (row.triggered - expected) / expected;
            let slopes: Kinds = std::array::from_fn(|kind| {
                times[kind] * (row.behind[kind] / behind - row.around[kind] / around)
            });
            for (kind, slope) in slopes.iter().enumerate() {
                score[kind] += slope * residual;
                for (other, with) in slopes.iter().enumerate() {
                    information[kind][other] += slope * with * precision;
                }
            }
        }
        let steps = solve(information, score);
        let mut longest = 0.0_f64;
        for (time, step) in times.iter_mut().zip(steps) {
            let step = step.clamp(-LONGEST_STEP, LONGEST_STEP);
            longest = longest.max(step.abs());
            *time *= step.exp();
        }
        if longest < 1e-6 {
            break;
        }
    }
    times
}

/// Solves a positive definite system by Gauss's elimination; the prior makes it one.
fn solve(mut matrix: [[f64; N_KINDS]; N_KINDS], mut right: Kinds) -> Kinds {
    for pivot in 0..N_KINDS {
        let row = matrix[pivot];
        for lower in pivot + 1..N_KINDS {
            let factor = matrix[lower][pivot] / row[pivot];
            for column in pivot..N_KINDS {
                matrix[lower][column] -= factor * row[column];
            }
            right[lower] -= factor * right[pivot];
        }
    }
    for pivot in (0..N_KINDS).rev() {
        let known: f64 = (pivot + 1..N_KINDS)
            .map(|column| matrix[pivot][column] * right[column])
            .sum();
        right[pivot] = (right[pivot] - known) / matrix[pivot][pivot];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::kinds::kind;

    /// A stream of plain instructions, loads and divisions, and its branch.
    fn stream(plain: f64, loads: f64, divisions: f64) -> Kinds {
        let mut kinds = [0.0; N_KINDS];
        kinds[kind::PLAIN] = plain;
        kinds[kind::LOAD] = loads;
        kinds[kind::DIVIDE] = divisions;
        kinds[kind::TAKEN] = 1.0;
        kinds
    }

    /// Branches in one another's stacks, executed 1000 times each, on a processor whose loads take five cycles and whose
    /// divisions take forty.
    fn rows() -> [Row; 5] {
        let mut truth = KNOWN_TIMES.map(|(time, _)| time);
        truth[kind::LOAD] = 5.0;
        truth[kind::DIVIDE] = 40.0;
        let streams = [
            stream(4.0, 0.0, 0.0),
            stream(4.0, 1.0, 0.0),
            stream(2.0, 4.0, 0.0),
            stream(9.0, 2.0, 1.0),
            stream(1.0, 1.0, 2.0),
        ];
        let mut around = [0.0; N_KINDS];
        for stream in &streams {
            for (around, n) in around.iter_mut().zip(stream) {
                *around += n / streams.len() as f64;
            }
        }
        let row = |behind: &Kinds| Row {
            triggered: 1000.0 * time(&truth, behind) / time(&truth, &around),
            expected: 1000.0,
            seen: 1e6,
            behind: *behind,
            around,
        };
        streams.each_ref().map(row)
    }

    #[test]
    fn times_are_those_that_explain_the_triggers() {
        // Five streams leave the time of their branches to the prior for long, which takes four percent from the others.
        let times = fit(&[rows(); 200].concat());
        let ratio = |kind: usize| times[kind] / times[kind::PLAIN];
        assert!((ratio(kind::LOAD) / 5.0 - 1.0).abs() < 0.05, "{times:?}");
        assert!((ratio(kind::DIVIDE) / 40.0 - 1.0).abs() < 0.05, "{times:?}");
        assert!(
            (times[kind::SYSTEM] / 50.0 - 1.0).abs() < 1e-6,
            "nothing tells of it"
        );
    }

    #[test]
    fn without_rows_times_are_those_of_the_manuals() {
        assert_eq!(fit(&[]), KNOWN_TIMES.map(|(time, _)| time));
        let empty = Row {
            expected: 0.0,
            ..rows()[0]
        };
        assert_eq!(fit(&[empty]), fit(&[]));
    }

    #[test]
    fn a_branch_that_was_seldom_seen_moves_little() {
        let odd = Row {
            triggered: 1.0,
            expected: 0.5,
            seen: 1.0,
            ..rows()[0]
        };
        for (time, known) in fit(&[odd]).iter().zip(fit(&[])) {
            assert!((time / known - 1.0).abs() < 0.3, "{time} {known}");
        }
    }
}
