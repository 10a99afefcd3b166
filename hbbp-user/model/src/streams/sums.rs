//! What is summed up for each distinct stream: of live stacks the fields of the collector's counts, of recordings also
//! those of their entries.

use hbbp_ebpf::Tally;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::key::WEIGHT_ONE;

/// How a stack was taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken<P> {
    /// The period of the sample, in units of the event.
    pub period: P,
    /// How often an equal one was taken.
    pub times: u64,
    /// When the first one was, in ns.
    pub time: u64,
}

/// What is summed up for each distinct stream.
pub trait Sums: Copy + Default {
    /// The period of a sample: live in units of the event, of a recording times the relative weight of the stack.
    type Period;
    /// What one stack, or several equal ones, adds to each of its streams.
    type Each: Copy;
    /// What a branch reports of the stream that it ends.
    type Detail: Copy;
    /// What each of the `n_streams` of a stack adds, if `n_triggers` branches would have triggered the stack: its share of
    /// their periods (paper section III.B).
    fn each(taken: &Taken<Self::Period>, n_streams: u64, n_triggers: u64) -> Self::Each;
    /// Reads what the branch reports of the stream that it ends.
    fn detail(branch: &BranchEntry) -> Self::Detail;
    /// The first occurrences.
    fn begin(each: &Self::Each, detail: Self::Detail) -> Self;
    /// More of them.
    fn add(&mut self, each: &Self::Each, detail: Self::Detail);
    /// Occurrences; none in what was not counted yet.
    fn hits(&self) -> u64;
    /// Their weight, in a unit of its own.
    fn weight(&self) -> f64;
    /// Multiplies their weight.
    fn scale(&mut self, factor: f64);
    /// The same for occurrences of a branch in the oldest slot, which have no weight.
    fn in_oldest_slot(self, hits: u64) -> Self;
}

/// For a live collection: weights are in 1 / [`WEIGHT_ONE`] of a unit. Its counts are bounded by its duration and cannot
/// overflow.
impl Sums for Tally {
    type Period = u64;
    type Each = Self;
    type Detail = ();

    #[inline(always)]
    fn each(taken: &Taken<u64>, n_streams: u64, n_triggers: u64) -> Self {
        let units = taken.period.saturating_mul(WEIGHT_ONE);
        let unit = units.checked_div(n_streams).unwrap_or(0);
        Self {
            hits: taken.times,
            weight: unit.saturating_mul(n_triggers).saturating_mul(taken.times),
            first_time: taken.time,
        }
    }

    #[inline(always)]
    fn detail(_branch: &BranchEntry) {}

    #[inline(always)]
    fn begin(each: &Self, (): ()) -> Self {
        *each
    }

    #[inline(always)]
    fn add(&mut self, each: &Self, (): ()) {
        self.hits += each.hits;
        self.weight = self.weight.wrapping_add(each.weight);
    }

    #[inline(always)]
    fn hits(&self) -> u64 {
        self.hits
    }

    #[expect(clippy::cast_precision_loss, reason = "sums of weights stay far below 2^53")]
    fn weight(&self) -> f64 {
        self.weight as f64
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "factors are at least 1, and a cast of a float saturates"
    )]
    fn scale(&mut self, factor: f64) {
        self.weight = (self.weight as f64 * factor).round() as u64;
    }

    fn in_oldest_slot(self, hits: u64) -> Self {
        Self {
            hits,
            weight: 0,
            ..self
        }
    }
}

/// For a recording: weights are in units of the event, and may be any number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Occurrences.
    pub hits: u64,
    /// Their weight.
    pub weight: f64,
    /// Cycles from the older branch to the younger one; 0 if the processor does not count them.
    pub cycles: u64,
}

impl Sums for Recorded {
    type Period = f64;
    type Each = Self;
    /// Cycles of one occurrence.
    type Detail = u64;

    #[expect(
        clippy::cast_precision_loss,
        reason = "counts stay far below 2^53, and a recording with other ones is hostile"
    )]
    fn each(taken: &Taken<f64>, n_streams: u64, n_triggers: u64) -> Self {
        Self {
            hits: taken.times,
            weight: taken.period / n_streams.max(1) as f64 * n_triggers as f64 * taken.times as f64,
            cycles: 0,
        }
    }

    fn detail(branch: &BranchEntry) -> u64 {
        branch.cycles()
    }

    fn begin(each: &Self, cycles: u64) -> Self {
        let cycles = cycles.saturating_mul(each.hits);
        Self { cycles, ..*each }
    }

    fn add(&mut self, each: &Self, cycles: u64) {
        self.hits = self.hits.saturating_add(each.hits);
        self.weight += each.weight;
        self.cycles = self.cycles.saturating_add(cycles.saturating_mul(each.hits));
    }

    fn hits(&self) -> u64 {
        self.hits
    }

    fn weight(&self) -> f64 {
        self.weight
    }

    fn scale(&mut self, factor: f64) {
        self.weight *= factor;
    }

    fn in_oldest_slot(self, hits: u64) -> Self {
        Self {
            hits,
            weight: 0.0,
            cycles: 0,
        }
    }
}
