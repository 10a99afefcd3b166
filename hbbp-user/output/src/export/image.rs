//! One image for the formats that describe one file: its counts of all runs as lines.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::counted::{Counted, WholeNumbers};
use super::flow::ImageFlow;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{ImageLayout, ModuleIdx};

/// An image as mapped in one run, with its offset in the file: kernels of two boots have different addresses.
#[derive(Clone)]
pub struct ImageRun<'a> {
    /// The run.
    pub counted: &'a Counted<'a>,
    /// The module.
    pub module: ModuleIdx,
    /// Its ranges and branches; `None` if it is in no branch stack.
    pub flow: Option<&'a ImageFlow>,
    /// Its file.
    pub layout: ImageLayout,
}

/// An image that is written: the sum of its runs, in the addresses of its file.
#[derive(Clone, Copy)]
pub struct Image<'a> {
    /// Its runs.
    pub runs: &'a [ImageRun<'a>],
    /// Its file, as one of the runs has it.
    pub layout: &'a ImageLayout,
    /// How executions become whole numbers.
    pub numbers: WholeNumbers,
}

/// What a file holds and what it could not say, in whole numbers of the unit of the profile.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Written {
    /// Sums by the kind of line.
    pub sums: BTreeMap<&'static str, u64>,
    /// What was left out, by reason: a clause that follows the number.
    pub left_out: BTreeMap<&'static str, u64>,
}

/// The kind of line of amounts of instructions, whatever their unit.
pub(super) const FOR_ALL: &str = "for all instructions";

impl Written {
    /// Adds to the sum of a kind of line.
    pub fn add(&mut self, kind: &'static str, n: u64) {
        let sum = self.sums.entry(kind).or_default();
        *sum = sum.saturating_add(n);
    }

    pub(super) fn leave_out(&mut self, why: &'static str, n: u64) {
        if 0 < n {
            let sum = self.left_out.entry(why).or_default();
            *sum = sum.saturating_add(n);
        }
    }
}

/// A range of an image in terms of its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeLine {
    pub(super) start: u64,
    pub(super) last: u64,
    pub(super) count: u64,
    /// Part of `count` that followed a return.
    pub(super) after_return: u64,
}

/// A branch of an image in terms of its file; `None` is an address outside of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct BranchLine {
    pub(super) from: Option<u64>,
    pub(super) to: Option<u64>,
    pub(super) count: u64,
    pub(super) mispredicted: u64,
}

/// Source and target of a branch.
type Ends = (Option<u64>, Option<u64>);

/// Executed text that is not in the file.
pub(super) const NOT_IN_FILE: &str = "in text that is not in the file of the image";

/// Executions of a line, and a part of them: those after a return, or those mispredicted.
#[derive(Clone, Copy, Default)]
struct Sum {
    executions: f64,
    part: f64,
    /// Executions whose prediction is unknown.
    unknown: f64,
}

impl Sum {
    fn add(&mut self, executions: f64, part: f64) {
        self.executions += executions;
        self.part += part;
    }

    /// A share of a whole number.
    fn share(amount: f64, of: f64, count: u64) -> u64 {
        part(count, amount / of)
    }
}

impl Image<'_> {
    /// The sums by key as whole numbers, sorted; what has no key is left out of the file.
    fn lines<K: Copy + Ord>(
        &self,
        sums: &BTreeMap<Option<K>, Sum>,
        written: &mut Written,
    ) -> Vec<(K, Sum, u64)> {
        let amounts: Vec<f64> = sums.values().map(|sum| sum.executions).collect();
        let mut lines = Vec::new();
        for ((key, sum), count) in sums.iter().zip(self.numbers.of(&amounts)) {
            match key {
                Some(key) if 0 < count => lines.push((*key, *sum, count)),
                Some(_) => {}
                None => written.leave_out(NOT_IN_FILE, count),
            }
        }
        lines
    }

    /// The ranges, by file addresses that `term` finds, summed and sorted.
    pub(super) fn ranges(
        &self,
        term: impl Fn(&ImageLayout, ImageAddr) -> Option<u64>,
        written: &mut Written,
    ) -> Vec<RangeLine> {
        let mut sums: BTreeMap<Option<(u64, u64)>, Sum> = BTreeMap::new();
        for run in self.runs {
            for ((start, last), range) in run.flow.into_iter().flat_map(|flow| &flow.ranges) {
                let ends = term(&run.layout, *start).zip(term(&run.layout, *last));
                let sum = sums
                    .entry(ends.filter(|(start, last)| start <= last))
                    .or_default();
                sum.add(range.executions, range.after_return);
            }
        }
        let line = |((start, last), sum, count): ((u64, u64), Sum, u64)| RangeLine {
            start,
            last,
            count,
            after_return: Sum::share(sum.part, sum.executions, count),
        };
        self.lines(&sums, written).into_iter().map(line).collect()
    }

    /// The branches, likewise.
    pub(super) fn branches(
        &self,
        term: impl Fn(&ImageLayout, ImageAddr) -> Option<u64>,
        written: &mut Written,
    ) -> Vec<BranchLine> {
        let mut sums: BTreeMap<Option<Ends>, Sum> = BTreeMap::new();
        for run in self.runs {
            for ((from, to), branch) in run.flow.into_iter().flat_map(|flow| &flow.branches) {
                let [from, to] = [from, to].map(|end| end.and_then(|at| term(&run.layout, at)));
                let is_in_file = from.is_some() || to.is_some();
                let sum = sums.entry(is_in_file.then_some((from, to))).or_default();
                sum.add(branch.executions, branch.mispredicted);
                if branch.prediction_unknown {
                    sum.unknown += branch.executions;
                }
            }
        }
        let mut lines = Vec::new();
        for ((from, to), sum, count) in self.lines(&sums, written) {
            let unknown = Sum::share(sum.unknown, sum.executions, count);
            if 0 < unknown {
                written.add("branches whose prediction is unknown", unknown);
            }
            lines.push(BranchLine {
                from,
                to,
                count,
                mispredicted: Sum::share(sum.part, sum.executions, count),
            });
        }
        lines
    }
}

/// A share of a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share between 0 and 1 of a whole number"
)]
fn part(count: u64, share: f64) -> u64 {
    let share = if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    };
    (count as f64 * share).round() as u64
}

/// Writes one image in a format that describes one.
pub type WriteImage = fn(&Image<'_>, &mut dyn Write) -> io::Result<Written>;
