//! Stacks with the same trigger, and what passes while their streams run.

/// Streams of average cost that each class is given in addition to its own.
pub(super) const PRIOR_STREAMS: f64 = 3.0;

/// Steps from branches to those in the same stacks, over which the time of streams is averaged. Each step is as long as
/// a stack. Twenty steps average out chance, and are short compared with the time that a program stays in a loop: of
/// every second workload of the emulated machine, 6 leave 2.11 %, 12 leave 1.93 %, 20 leave 1.86 % and 50 leave 2.08 %.
pub(super) const STEPS: usize = 20;

/// Stacks with the same trigger.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) event: u32,
    pub(super) is_kernel: bool,
    pub(super) costs: Costs,
    /// Stacks.
    pub(super) triggered: f64,
    /// The weight of each of them.
    pub(super) weight: f64,
}

/// What passes while streams run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Costs {
    /// What the trigger counts in the streams after the branches of a class, where these are in older slots: of the one
    /// in which a stack is taken that has such a branch in the slot [`TRIGGER`]. 0 where it is unknown.
    pub(super) passed: f64,
    pub(super) n_behind: f64,
    /// The same of all streams in the stacks of a class.
    pub(super) inside: f64,
    pub(super) n_inside: f64,
    /// Bytes of all streams in the stacks of a class. 0 where the trigger counts something else than instructions or time.
    pub(super) bytes: f64,
    pub(super) n_in_stacks: f64,
}

impl Costs {
    pub(super) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.n_behind += other.n_behind;
        self.inside += other.inside;
        self.n_inside += other.n_inside;
        self.bytes += other.bytes;
        self.n_in_stacks += other.n_in_stacks;
    }

    /// Whether what passes is known of most streams: files of a recording may be missing.
    pub(super) fn are_known(&self) -> bool {
        0.0 < self.passed && self.n_in_stacks <= 2.0 * self.n_behind
    }

    /// Execution rate of this class relative to `all`.
    pub(super) fn weight(&self, all: &Self) -> f64 {
        let (cost, n, mean) = if all.are_known() {
            (self.passed, self.n_behind, all.passed / all.n_behind)
        } else if 0.0 < all.bytes {
            (self.bytes, self.n_in_stacks, all.bytes / all.n_in_stacks)
        } else {
            return 1.0;
        };
        mean * (n + PRIOR_STREAMS) / (cost + PRIOR_STREAMS * mean)
    }
}
