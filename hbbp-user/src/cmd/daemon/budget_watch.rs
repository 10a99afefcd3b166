//! Detects successive intervals that took more CPU time than the budget. Periods and intervals are then as long as control makes
//! them, so the excess is logged.

use super::counters::{Counter, Counters};
use super::service_log::tell;
use hbbp_model::snapshot::Run;

/// Intervals in a row above the budget from which on it counts as missed: a single one is that of a program that was new.
const IN_A_ROW: u32 = 3;

/// Note of an interval that is the last of several above the budget.
const MISSED: &str = "the CPU budget was exceeded in three intervals in a row or more: a larger --cpu-budget or longer intervals \
                      are needed here";

/// The intervals before this one that were above the budget.
#[derive(Debug, Default)]
pub(super) struct BudgetWatch {
    in_a_row: u32,
}

impl BudgetWatch {
    /// Looks at an interval, and says in it, in a counter and once in the log where the budget is missed.
    pub(super) fn look(&mut self, run: &mut Run, counters: &Counters) {
        let was_missed = IN_A_ROW <= self.in_a_row;
        let Some((share, budget)) = spent(run).filter(|(share, budget)| budget < share) else {
            self.in_a_row = 0;
            if was_missed {
                tell("the CPU budget is kept again");
            }
            return;
        };
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row < IN_A_ROW {
            return;
        }
        counters.add(Counter::BudgetMissed, 1);
        run.notes.push(MISSED.to_owned());
        if !was_missed {
            tell(&format!(
                "the CPU budget of {budget} % was exceeded in {IN_A_ROW} intervals in a row: {share:.2} % in the last one"
            ));
        }
    }
}

/// What was taken, and what may be, in percent of the time of all CPUs; `None` without a budget.
fn spent(run: &Run) -> Option<(f64, f64)> {
    let budget = f64::from(run.overhead.budget.as_ref()?.share) / 1e4;
    let all = run.duration as f64 * f64::from(run.host.n_cpus.max(1));
    let own = run.overhead.cpu.saturating_add(run.overhead.sampling) as f64;
    (0.0 < all).then(|| (100.0 * own / all, budget))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::run::{CpuBudget, RunTime};
    use hbbp_model::snapshot::{HostFacts, Overhead};

    /// An interval of five seconds on two CPUs that took these parts of its budget.
    fn interval(user: f64, sampling: f64) -> Run {
        const BUDGET: f64 = 0.003 * 2.0 * 5e9;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number"
        )]
        let part = |part: f64| (part * BUDGET) as u64;
        Run {
            duration: 5_000_000_000,
            host: HostFacts {
                n_cpus: 2,
                ..HostFacts::default()
            },
            overhead: Overhead {
                cpu: part(user),
                memory: 0,
                sampling: part(sampling),
                budget: Some(CpuBudget {
                    share: 3_000,
                    programs: RunTime::Measured,
                }),
            },
            ..Run::default()
        }
    }

    /// The intervals of some, by number, that say that the budget was missed, and the counter.
    fn missed(intervals: impl IntoIterator<Item = Run>) -> (Vec<usize>, u64) {
        let (mut watch, counters) = (BudgetWatch::default(), Counters::default());
        let mut said = Vec::new();
        for (number, mut run) in intervals.into_iter().enumerate() {
            watch.look(&mut run, &counters);
            if run.notes.iter().any(|note| note.contains("CPU budget")) {
                said.push(number);
            }
        }
        (said, counters.get(Counter::BudgetMissed))
    }

    #[test]
    fn third_interval_in_a_row_above_the_budget_is_missed() {
        let parts = [1.1, 1.1, 0.9, 1.1, 1.1, 1.1, 1.1, 0.9, 1.1, 1.1];
        let intervals = parts.map(|part| interval(part, 0.0));
        assert_eq!(missed(intervals), (vec![5, 6], 2));
    }

    #[test]
    fn samples_and_user_space_count_together() {
        assert_eq!(missed([(); 4].map(|()| interval(0.6, 0.6))), (vec![2, 3], 2));
        assert_eq!(missed([(); 4].map(|()| interval(0.4, 0.5))), (Vec::new(), 0));
    }

    #[test]
    fn without_a_budget_or_time_nothing_is_missed() {
        let without = |mut run: Run| {
            run.overhead.budget = None;
            run
        };
        assert_eq!(
            missed([(); 4].map(|()| without(interval(9.0, 0.0)))),
            (Vec::new(), 0)
        );
        let empty = |run: Run| Run { duration: 0, ..run };
        assert_eq!(
            missed([(); 4].map(|()| empty(interval(9.0, 0.0)))),
            (Vec::new(), 0)
        );
    }
}
