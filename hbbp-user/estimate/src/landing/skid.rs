//! Where samples land: the forward model of skid.
//!
//! An instruction that retires at a time triggers a sample. It is taken a skid later, on the instruction that is next to retire
//! then (papers: HBBP, section III.A; "Can We Trust Profiling Results?", ICS 2019, equation 1). So an instruction that takes a
//! time c has the samples of all that retired within a span of c, one skid before. Of a block that is known but for what ran
//! before it, and that is a mean over the ways into it.

use super::super::timing::{LONGEST, Model};
use super::code::{Before, Code, Node};
use crate::sums::at;
use hbbp_code::blocks::Flow;

impl Model {
    /// The samples that are not taken yet at a time since the start of a block. They are of what retired `before` it, by the time
    /// since then, and of what `retired` in it, at these times.
    fn waiting(&self, time: f64, before: &[f64], retired: &[f64]) -> f64 {
        let (_, longest) = self.skid;
        let mut waiting = 0.0;
        for (since, amount) in (0u32..).map(f64::from).zip(before) {
            if longest <= time + since {
                break;
            }
            waiting += amount * (1.0 - self.taken(time + since));
        }
        for retired in retired.iter().rev() {
            if longest <= time - retired {
                break;
            }
            waiting += 1.0 - self.taken(time - retired);
        }
        waiting
    }

    fn duration(&self, node: &Node) -> f64 {
        node.kinds.iter().map(|kind| self.time(*kind)).sum()
    }

    /// Bins of one cycle that hold all that may still be sampled.
    fn n_bins(&self) -> usize {
        (0u16..)
            .find(|n| LONGEST.min(self.skid.1) < f64::from(*n))
            .map_or(0, |n| usize::from(n) + 1)
    }
}

/// Rows of bins: instructions that retired, by the time since then.
#[derive(Clone, Debug, Default)]
struct Rows {
    n_bins: usize,
    bins: Vec<f64>,
}

impl Rows {
    fn new(n: usize, n_bins: usize, all: f64) -> Self {
        Self {
            n_bins,
            bins: vec![all; n.saturating_mul(n_bins)],
        }
    }

    fn row(&self, n: usize) -> &[f64] {
        self.bins
            .chunks_exact(self.n_bins.max(1))
            .nth(n)
            .unwrap_or_default()
    }

    fn row_mut(&mut self, n: usize) -> &mut [f64] {
        self.bins
            .chunks_exact_mut(self.n_bins.max(1))
            .nth(n)
            .unwrap_or_default()
    }
}

/// The mean of rows by their weights.
#[derive(Clone, Debug)]
struct Mean {
    sum: Vec<f64>,
    weight: f64,
}

impl Mean {
    fn new(n_bins: usize) -> Self {
        Self {
            sum: vec![0.0; n_bins],
            weight: 0.0,
        }
    }

    fn add(&mut self, row: &[f64], weight: f64) {
        self.weight += weight;
        for (sum, amount) in self.sum.iter_mut().zip(row) {
            *sum += weight * amount;
        }
    }

    /// Writes it into a row, which stays as it is where there is nothing.
    fn write(&self, row: &mut [f64]) {
        if 0.0 < self.weight {
            for (to, sum) in row.iter_mut().zip(&self.sum) {
                *to = sum / self.weight;
            }
        }
    }
}

/// Adds amounts that are this much later, each shared between the bins on either side.
#[expect(
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "it is not negative, and far below what a usize holds"
)]
fn deposit(row: &mut [f64], later: f64, amounts: &[f64]) {
    let later = later.max(0.0);
    let below = later as usize;
    let part = later - below as f64;
    for (first, share) in [(below, 1.0 - part), (below + 1, part)] {
        for (bin, amount) in row.get_mut(first..).unwrap_or_default().iter_mut().zip(amounts) {
            *bin += amount * share;
        }
    }
}

/// Instructions that retired before blocks and before their ends, by the time since then.
#[derive(Clone, Debug)]
pub(super) struct Histories {
    durations: Vec<f64>,
    before: Rows,
    at_end: Rows,
    /// By callee.
    returns: Rows,
    /// By ring: user code, kernel.
    indirect: Rows,
    returned: Rows,
    system: Vec<f64>,
}

impl Histories {
    /// Begins with as much before each block as retires in the mean.
    pub(super) fn new(code: &Code, model: &Model, x: &[f64]) -> Self {
        let durations: Vec<f64> = code.nodes.iter().map(|node| model.duration(node)).collect();
        let time: f64 = durations.iter().zip(x).map(|(duration, x)| duration * x).sum();
        let retired: f64 = code.nodes.iter().zip(x).map(|(node, x)| node.length() * x).sum();
        let density = if 0.0 < time { retired / time } else { 1.0 };
        let n_bins = model.n_bins();
        let rows = |n| Rows::new(n, n_bins, density);
        Self {
            before: rows(code.nodes.len()),
            at_end: rows(code.nodes.len()),
            returns: rows(code.callees.len()),
            indirect: rows(2),
            returned: rows(2),
            // A system call takes longer than any skid of precise events: of what was before it nothing is left.
            system: (0..n_bins).map(|bin| if bin == 0 { 1.0 } else { 0.0 }).collect(),
            durations,
        }
    }

    /// The same for another model, to go on from.
    pub(super) fn with(&self, code: &Code, model: &Model, x: &[f64]) -> Self {
        if model.n_bins() != self.before.n_bins {
            return Self::new(code, model, x);
        }
        Self {
            durations: code.nodes.iter().map(|node| model.duration(node)).collect(),
            ..self.clone()
        }
    }

    /// Carries what retired one block further.
    pub(super) fn carry(&mut self, code: &Code, model: &Model, x: &[f64]) {
        let n_bins = self.before.n_bins;
        for (n, node) in code.nodes.iter().enumerate() {
            let duration = at(&self.durations, n);
            let row = self.at_end.row_mut(n);
            row.fill(0.0);
            let mut since = 0.0;
            for kind in node.kinds.iter().rev() {
                if n_bins as f64 <= since {
                    break;
                }
                deposit(row, since, &[1.0]);
                since += model.time(*kind);
            }
            deposit(row, duration, self.before.row(n));
        }
        for (n, callee) in code.callees.iter().enumerate() {
            let mut mean = Mean::new(n_bins);
            for from in callee {
                mean.add(self.at_end.row(*from), at(x, *from));
            }
            mean.write(self.returns.row_mut(n));
        }
        let mut means = [(); 4].map(|()| Mean::new(n_bins));
        for (n, node) in code.nodes.iter().enumerate() {
            let ring = usize::from(node.is_kernel);
            let of = match node.flow {
                Flow::IndirectCall | Flow::IndirectJump => ring,
                Flow::Return => 2 + ring,
                _ => continue,
            };
            if let Some(mean) = means.get_mut(of) {
                mean.add(self.at_end.row(n), at(x, n));
            }
        }
        let [user, kernel, to_user, to_kernel] = means;
        for (ring, (indirect, returned)) in [(user, to_user), (kernel, to_kernel)].iter().enumerate() {
            indirect.write(self.indirect.row_mut(ring));
            returned.write(self.returned.row_mut(ring));
        }
        for (n, ways) in code.ways.iter().enumerate() {
            let mut mean = Mean::new(n_bins);
            for way in ways {
                mean.add(self.source(code, n, way.before), at(x, way.unknown));
            }
            mean.write(self.before.row_mut(n));
        }
    }
}

impl Histories {
    /// What retired before a way into a node.
    fn source(&self, code: &Code, n: usize, before: Before) -> &[f64] {
        let ring = usize::from(code.nodes.get(n).is_some_and(|node| node.is_kernel));
        match before {
            Before::Block(from) => self.at_end.row(from),
            Before::Returns(callee) if code.callees.get(callee).is_some_and(|from| !from.is_empty()) => {
                self.returns.row(callee)
            }
            Before::Returns(_) | Before::Return => self.returned.row(ring),
            Before::Indirect => self.indirect.row(ring),
            Before::System => &self.system,
        }
    }

    /// The samples in a node, as unknowns and what each of their executions adds.
    pub(super) fn terms(&self, code: &Code, model: &Model, n: usize) -> Vec<(usize, f64)> {
        let (Some(node), Some(ways)) = (code.nodes.get(n), code.ways.get(n)) else {
            return Vec::new();
        };
        let duration = at(&self.durations, n);
        let mut retired = 0.0;
        let own = node.kinds.iter().map(|kind| {
            retired += model.time(*kind);
            model.taken(duration - retired)
        });
        let mut terms = vec![(n, own.sum())];
        for way in ways {
            let source = (0u32..).map(f64::from).zip(self.source(code, n, way.before));
            let taken =
                source.map(|(since, amount)| amount * (model.taken(since + duration) - model.taken(since)));
            terms.push((way.unknown, taken.sum()));
        }
        terms
    }

    /// The samples on each instruction of a node for each of its executions: those that wait at its start and the one that it
    /// triggers, less those that wait at its end.
    pub(super) fn landed(&self, model: &Model, n: usize, node: &Node) -> Vec<f64> {
        let before = self.before.row(n);
        let mut ends: Vec<f64> = Vec::with_capacity(node.kinds.len());
        let mut time = 0.0;
        let mut waiting = model.waiting(time, before, &ends);
        let mut landed = Vec::with_capacity(node.kinds.len());
        for kind in &node.kinds {
            time += model.time(*kind);
            ends.push(time);
            let at_end = model.waiting(time, before, &ends);
            landed.push(waiting + 1.0 - at_end);
            waiting = at_end;
        }
        landed
    }
}
