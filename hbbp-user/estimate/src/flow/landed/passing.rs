//! What retired before each start of the recorded flow, by the time since then, and so what samples a stream leaves on each of its
//! instructions.
//!
//! Of what leads to a start, all ways have their recorded part. What ran before it is the mean over them, followed back over as many
//! branches as pass in the longest skid.

use super::super::super::sources::stream::Stream;
use super::super::chain::{self, Chain, STEADY, add_at, add_later, add_row, row};
use super::super::graph::FlowGraph;
use crate::kinds_of_forms::kinds_of_forms;
use crate::sums::at;
use crate::timing::Model;
use hbbp_code::blocks::BlockMap;
use hbbp_model::kinds::{N_KINDS, kind};

/// Bins of time.
const BINS: usize = 61;

/// By time: instructions that are no longer ago.
type Row = chain::Row<BINS>;

/// Branches that are looked back over: as many hardly pass in the longest skid.
const FARTHEST: usize = 30;

/// Cycles of a bin: for skids that are short, and for long ones.
pub(super) const BIN: [f64; 2] = [1.0, 2.0];

/// The longest skid that bins of these cycles hold.
pub(super) const fn longest(bin: f64) -> f64 {
    (BINS - 1) as f64 * bin
}

/// Streams, the kinds of their instructions, and what follows what.
pub(super) struct Passing<'a> {
    chain: Chain<'a>,
    kinds: Vec<u8>,
    /// Where the kinds of each stream end.
    ends: Vec<usize>,
}

/// What retired before.
pub(super) struct Before {
    /// Cycles of a bin.
    bin: f64,
    /// Before each branch, which is included.
    branches: Vec<Row>,
    /// By start: integrals over the time from now on, in cycles.
    starts: Vec<Row>,
}

impl<'a> Passing<'a> {
    pub(super) fn new<'s>(
        map: &BlockMap,
        graph: &'a FlowGraph,
        streams: impl IntoIterator<Item = &'s Stream>,
    ) -> Self {
        let of_forms = kinds_of_forms(&map.forms);
        let plain = u8::try_from(kind::PLAIN).unwrap_or_default();
        let (mut kinds, mut ends) = (Vec::new(), Vec::new());
        for stream in streams {
            let text = map.text(stream.text);
            let instructions = text.map(|text| text.instructions(stream.first..stream.end));
            let forms = instructions.unwrap_or_default().iter().map(|it| it.form.0);
            kinds.extend(forms.map(|form| of_forms.get(usize::from(form)).copied().unwrap_or(plain)));
            ends.push(kinds.len());
        }
        Self {
            chain: Chain::new(graph, vec![0.0; ends.len()]),
            kinds,
            ends,
        }
    }

    /// Kinds of which no stream has an instruction.
    pub(super) fn unused(&self) -> Vec<usize> {
        let is_unused = |kind: &usize| !self.kinds.iter().any(|used| usize::from(*used) == *kind);
        (0..N_KINDS).filter(is_unused).collect()
    }

    fn kinds_of(&self, stream: usize) -> &[u8] {
        let end = |n: usize| self.ends.get(n).copied().unwrap_or_default();
        let begin = stream.checked_sub(1).map_or(0, end);
        self.kinds.get(begin..end(stream)).unwrap_or_default()
    }

    /// When each instruction of a stream retires, since its start; the last one is a taken branch.
    fn retire(&self, stream: usize, model: &Model, times: &mut Vec<f64>) {
        times.clear();
        let mut now = 0.0;
        times.extend(self.kinds_of(stream).iter().map(|kind| {
            now += model.time(*kind);
            now
        }));
        if let Some(last) = times.last_mut() {
            *last += at(&model.times, kind::TAKEN);
        }
    }

    /// What retired before each start, in bins of as many cycles.
    pub(super) fn before(&mut self, model: &Model, bin: f64) -> Before {
        let branches = vec![[0.0; BINS]; self.chain.share.len()];
        let none = Before {
            bin,
            branches,
            starts: Vec::new(),
        };
        self.carried(&none, model, FARTHEST)
    }

    /// The same from what was found before, carried on over as many branches.
    pub(super) fn carried(&mut self, before: &Before, model: &Model, n_branches: usize) -> Before {
        let bin = before.bin;
        let own = self.own(model, bin);
        let (mut branches, mut starts): (Vec<Row>, Vec<Row>) = (Vec::new(), Vec::new());
        let mut found = 0.0;
        for _ in 0..n_branches {
            let known = if branches.is_empty() {
                &before.branches
            } else {
                &branches
            };
            self.chain.to_starts(known, &mut starts);
            let last = found;
            found = self.chain.mean_of_starts(&starts);
            if (found - last).abs() < STEADY * found {
                break;
            }
            branches.clone_from(&own);
            for (edge, duration, _, part) in self.chain.streams() {
                add_later(&mut branches, edge.to, part, row(&starts, edge.from), duration);
            }
        }
        starts.iter_mut().for_each(|row| integrate(row, bin));
        Before {
            bin,
            branches,
            starts,
        }
    }

    /// For each branch, what retired in the stream that it ends, in the mean. Streams take their times by this model from here on.
    fn own(&mut self, model: &Model, bin: f64) -> Vec<Row> {
        let (mut durations, mut times) = (Vec::with_capacity(self.ends.len()), Vec::new());
        let mut own = vec![[0.0; BINS]; self.chain.share.len()];
        for (stream, (edge, _, _, part)) in self.chain.streams().enumerate() {
            self.retire(stream, model, &mut times);
            let duration = times.last().copied().unwrap_or_default();
            let mut retired = [0.0; BINS];
            let ago = times.iter().rev().map(|time| duration - time);
            for ago in ago.take_while(|ago| *ago < longest(bin)) {
                add_at(&mut retired, ago / bin, 1.0);
            }
            let mut sum = 0.0;
            for retired in &mut retired {
                sum += *retired;
                *retired = sum;
            }
            add_row(&mut own, edge.to, part, &retired);
            durations.push(duration / bin);
        }
        self.chain.set_durations(durations);
        own
    }

    /// The samples that a stream leaves on each of its instructions, in samples of as many instructions: those that wait when the one
    /// before retires and its own, less those that wait when it retires.
    pub(super) fn left(&self, stream: usize, model: &Model, before: &Before, left: &mut Vec<f64>) {
        left.clear();
        let start = self.chain.start_of(stream);
        let mut times = Vec::new();
        self.retire(stream, model, &mut times);
        let integrals = row(&before.starts, start);
        let (low, high) = model.skid;
        let waiting = |now: f64, n: usize| {
            let until = |skid: f64| integral(integrals, skid - now, before.bin);
            let own = times.get(..n).unwrap_or_default().iter().rev();
            let own = own.take_while(|time| now - *time < high);
            let own: f64 = own.map(|time| 1.0 - model.taken(now - time)).sum();
            (until(high) - until(low)) / (high - low) + own
        };
        let mut last = waiting(0.0, 0);
        for (n, time) in (1..).zip(&times) {
            let now = waiting(*time, n);
            left.push((last + 1.0 - now).max(0.0));
            last = now;
        }
    }
}

/// Integrals over the time from now on, of numbers that change at the begin of a bin.
fn integrate(row: &mut Row, bin: f64) {
    let mut sum = 0.0;
    for value in row {
        let here = *value;
        *value = sum;
        sum += bin * here;
    }
}

/// An integral until a time, which goes on as it ends.
#[expect(
    clippy::cast_sign_loss,
    reason = "the time is positive, and a number of bins that is too large is none"
)]
fn integral(integrals: &Row, until: f64, bin: f64) -> f64 {
    if until <= 0.0 {
        return 0.0;
    }
    let bins = until / bin;
    let below = (bins.floor() as usize).min(BINS - 2);
    let (low, high) = (at(integrals, below), at(integrals, below + 1));
    low + (high - low) * (bins - below as f64)
}
