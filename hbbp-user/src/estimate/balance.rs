//! Streams weighed so that what arrives at each place is what leads there.
//!
//! Were branch stacks taken at any moment alike, each branch would be found in the oldest slot as often as in any other.
//! Where a branch sits there out of proportion (paper section III.C), the stacks show what runs within one stack's depth
//! behind it too often and the rest too seldom; all blocks near it suffer, not only the one that it ends.
//! But how branches follow each other is recorded truly: each stack shows it, whatever moment it was taken at.
//! So there are two measurements of what arrives at the target of a branch: the streams that start there, and the
//! branches that lead there, as often as what ran before them arrived. Both have sampling errors, and least squares
//! reconciles them, each with the inverse of its variance.
//! A call comes back, so what returns to the place behind a call has arrived as often as the call ran: that is more
//! certain than where each return goes, above all where all functions share one return instruction (return thunks,
//! arch/x86/lib/retpoline.S).
//! Where the successions are certain, in a loop or in a chain of calls, they decide; where they are a matter of chance,
//! the streams do. Without a bias there is nothing to reconcile but chance.

use std::collections::{HashMap, HashSet};

use super::{Roles, Stream};
use crate::blocks::{BlockMap, Flow};
use crate::locate::{Located, Place, TextIdx};
use crate::snapshot::ProcessIdx;

/// Variance of a certain succession, as a share of the variance of a Poisson count. With a stack's 15 streams as the
/// variance of what is measured, it is carried on over the root of 15 / 0.01, some 40 branches, either way. Tried from 1e-4
/// to 1e-1 on the emulated machine: less takes the solution of the equations many times the steps and lets rare
/// successions outweigh what was measured, more leaves long loops uneven.
const CERTAIN: f64 = 1e-2;

/// Rounds in which the variances are taken from the last result. They are proportional to the true arrivals, and with
/// those that were measured instead, small ones would weigh too much.
const ROUNDS: usize = 3;

/// Steps of conjugate gradients in each round, and the residual, as a share of the first, that is small enough: what is
/// left then is a tenth of a percent of what a round moves.
const MAX_STEPS: usize = 1000;
const SMALL: f64 = 1e-3;

/// Weighs the streams, of which a stack holds `streams_per_stack`: so many together tell as much as one alone.
/// False where no targets of branches were recorded, and the streams stay as they are.
pub(super) fn balance(
    located: &Located,
    map: &BlockMap,
    roles: &Roles,
    streams_per_stack: f64,
    streams: &mut [Stream],
) -> bool {
    let Some(chain) = Chain::new(located, map, roles, streams) else {
        return false;
    };
    let balanced = chain.balanced(streams_per_stack.max(1.0));
    for (stream, start) in streams.iter_mut().zip(&chain.starts) {
        if let (Some(balanced), Some(measured)) = (balanced.get(*start), chain.arrivals.get(*start))
            && 0.0 < *measured
        {
            stream.weight *= balanced / measured;
        }
    }
    true
}

/// A share of what is at one place that goes to another.
#[derive(Clone, Copy)]
struct Share {
    from: usize,
    to: usize,
    share: f64,
}

/// How streams and branches follow each other.
struct Chain {
    /// For each stream the place that it starts at.
    starts: Vec<usize>,
    /// The streams that start at each place.
    arrivals: Vec<f64>,
    /// Those of them that no recorded branch led to, such as what user code calls of the kernel.
    unexplained: Vec<f64>,
    /// From where streams start to the branches that end them.
    streams: Vec<Share>,
    /// From branches to where streams start.
    branches: Vec<Share>,
    n_branches: usize,
}

impl Chain {
    /// `None` where no targets of branches were recorded.
    fn new(located: &Located, map: &BlockMap, roles: &Roles, streams: &[Stream]) -> Option<Self> {
        let mut places = Numbers::default();
        let mut sources = Numbers::default();
        let starts: Vec<usize> = streams
            .iter()
            .map(|s| places.number((s.text, s.first, s.process)))
            .collect();
        let mut arrivals = vec![0.0; places.0.len()];
        for (stream, start) in streams.iter().zip(&starts) {
            add(&mut arrivals, *start, stream.hits as f64);
        }
        let ended = streams.iter().zip(&starts).map(|(stream, from)| {
            let to = sources.number((stream.text, stream.source, stream.process));
            let all = arrivals.get(*from).copied().unwrap_or(1.0);
            let (from, share) = (*from, stream.hits as f64 / all);
            Share { from, to, share }
        });
        let ended: Vec<Share> = ended.collect();
        let n_branches = sources.0.len();
        let mut branches = Vec::new();
        let mut led = vec![0.0; n_branches];
        let mut unexplained = arrivals.clone();
        for branch in located.branches.iter().filter(|b| roles.lbr.contains(&b.event)) {
            let ends = branch
                .to
                .and_then(|to| Some((spot(map, branch.from)?, spot(map, to)?)));
            let Some((from, to)) = ends else { continue };
            let (Some(from), Some(to)) = (
                sources.find(from, branch.process),
                places.find(to, branch.process),
            ) else {
                continue;
            };
            let hits = branch.hits as f64;
            add(&mut led, from, hits);
            add(&mut unexplained, to, -hits);
            branches.push(Share {
                from,
                to,
                share: hits,
            });
        }
        if branches.is_empty() {
            return None;
        }
        let calls = Calls::new(map, &places, &sources, &ended, &arrivals, &branches);
        branches.retain(|b| !(calls.returns.contains(&b.from) && calls.calls.contains_key(&b.to)));
        for branch in &mut branches {
            branch.share /= led.get(branch.from).copied().unwrap_or(1.0);
        }
        let mut behind: Vec<Share> = calls
            .calls
            .iter()
            .map(|(to, from)| Share {
                from: *from,
                to: *to,
                share: 1.0,
            })
            .collect();
        // The order of a hash map is not one to sum in: equal inputs shall give equal figures.
        behind.sort_unstable_by_key(|share| share.to);
        branches.extend(behind);
        for left in &mut unexplained {
            *left = left.max(0.0);
        }
        Some(Self {
            starts,
            arrivals,
            unexplained,
            streams: ended,
            branches,
            n_branches,
        })
    }

    /// What arrives at each place, reconciled; in all as much as was measured.
    fn balanced(&self, streams_per_stack: f64) -> Vec<f64> {
        let mut balanced = self.arrivals.clone();
        for _ in 0..ROUNDS {
            // Of no place can less than half a stream be known.
            let measured = balanced.iter().map(|b| 1.0 / (streams_per_stack * b.max(0.5)));
            let measured: Vec<f64> = measured.collect();
            let led: Vec<f64> = self
                .variances(&balanced, streams_per_stack)
                .iter()
                .map(|v| 1.0 / v)
                .collect();
            let solved = self.solve(&balanced, &measured, &led);
            let all: f64 = self.arrivals.iter().sum();
            let sum: f64 = solved.iter().map(|a| a.max(0.0)).sum();
            if !sum.is_finite() || sum <= 0.0 {
                return self.arrivals.clone();
            }
            balanced = solved.iter().map(|a| a.max(0.0) * all / sum).collect();
        }
        balanced
    }

    /// Variance of what is led to each place: which stream begins there and where its branch goes are drawn anew each
    /// time, and of a draw with probability p the variance is p (1-p).
    fn variances(&self, arrivals: &[f64], streams_per_stack: f64) -> Vec<f64> {
        let mut leaves = vec![0.0; self.n_branches];
        let mut leaves_variance = vec![0.0; self.n_branches];
        for s in &self.streams {
            let from = arrivals.get(s.from).copied().unwrap_or_default();
            add(&mut leaves, s.to, from * s.share);
            add(&mut leaves_variance, s.to, from * s.share * (1.0 - s.share));
        }
        let mut variances: Vec<f64> = arrivals
            .iter()
            .zip(&self.unexplained)
            .map(|(arrives, unexplained)| CERTAIN * arrives.max(0.5) + streams_per_stack * unexplained)
            .collect();
        for b in &self.branches {
            let leaves = leaves.get(b.from).copied().unwrap_or_default();
            let variance = leaves_variance.get(b.from).copied().unwrap_or_default();
            add(
                &mut variances,
                b.to,
                leaves * b.share * (1.0 - b.share) + variance * b.share * b.share,
            );
        }
        variances
    }

    /// The arrivals `a` with the least `sum measured (a - arrivals)^2 + sum led (a - unexplained - successions of a)^2`,
    /// by conjugate gradients on its normal equations, with their diagonal as preconditioner.
    fn solve(&self, first: &[f64], measured: &[f64], led: &[f64]) -> Vec<f64> {
        let apply = |a: &[f64]| {
            let mut residual = self.residual(a);
            scale(&mut residual, led);
            let mut sum = self.transposed(&residual);
            for ((sum, a), measured) in sum.iter_mut().zip(a).zip(measured) {
                *sum += measured * a;
            }
            sum
        };
        let mut right = self.unexplained.clone();
        scale(&mut right, led);
        let mut right = self.transposed(&right);
        for ((right, arrives), measured) in right.iter_mut().zip(&self.arrivals).zip(measured) {
            *right += measured * arrives;
        }
        let diagonal: Vec<f64> = measured.iter().zip(led).map(|(m, l)| m + l).collect();
        let mut a = first.to_vec();
        let applied = apply(&a);
        let mut residual: Vec<f64> = right.iter().zip(&applied).map(|(r, a)| r - a).collect();
        let precondition = |r: &[f64]| -> Vec<f64> { r.iter().zip(&diagonal).map(|(r, d)| r / d).collect() };
        let mut z = precondition(&residual);
        let mut direction = z.clone();
        let mut rz = dot(&residual, &z);
        let enough = rz * SMALL * SMALL;
        for _ in 0..MAX_STEPS {
            if rz <= enough || rz <= 0.0 {
                break;
            }
            let applied = apply(&direction);
            let length = rz / dot(&direction, &applied);
            if !length.is_finite() {
                break;
            }
            for ((a, r), (d, applied)) in a
                .iter_mut()
                .zip(&mut residual)
                .zip(direction.iter().zip(&applied))
            {
                *a += length * d;
                *r -= length * applied;
            }
            z = precondition(&residual);
            let next = dot(&residual, &z);
            for (d, z) in direction.iter_mut().zip(&z) {
                *d = z + next / rz * *d;
            }
            rz = next;
        }
        a
    }

    /// What arrives less what is led there.
    fn residual(&self, arrivals: &[f64]) -> Vec<f64> {
        let mut leaves = vec![0.0; self.n_branches];
        for s in &self.streams {
            add(
                &mut leaves,
                s.to,
                arrivals.get(s.from).copied().unwrap_or_default() * s.share,
            );
        }
        let mut residual = arrivals.to_vec();
        for b in &self.branches {
            add(
                &mut residual,
                b.to,
                -leaves.get(b.from).copied().unwrap_or_default() * b.share,
            );
        }
        residual
    }

    /// The transposed of [`Chain::residual`].
    fn transposed(&self, residual: &[f64]) -> Vec<f64> {
        let mut leaves = vec![0.0; self.n_branches];
        for b in &self.branches {
            add(
                &mut leaves,
                b.from,
                residual.get(b.to).copied().unwrap_or_default() * b.share,
            );
        }
        let mut arrivals = residual.to_vec();
        for s in &self.streams {
            add(
                &mut arrivals,
                s.from,
                -leaves.get(s.to).copied().unwrap_or_default() * s.share,
            );
        }
        arrivals
    }
}

/// Most times that what returns behind a call may differ from what called, either way, and still be taken for its
/// returns: a bias is less than that, and a function that does not return as a rule is more.
const RETURNS: f64 = 4.0;

/// The places behind calls.
struct Calls {
    /// Returns from functions, and from the kernel.
    returns: HashSet<usize>,
    /// By place, the call before it.
    calls: HashMap<usize, usize>,
}

impl Calls {
    fn new(
        map: &BlockMap,
        places: &Numbers,
        sources: &Numbers,
        ended: &[Share],
        arrivals: &[f64],
        branches: &[Share],
    ) -> Self {
        let flow = |text, instruction| Some(map.text(text)?.instruction(instruction)?.flow);
        let returns = sources.0.iter().filter(|((text, instruction, _), _)| {
            matches!(
                flow(*text, *instruction),
                Some(Flow::Return | Flow::InterruptReturn)
            )
        });
        let returns: HashSet<usize> = returns.map(|(_, n)| *n).collect();
        let mut returned = vec![0.0; arrivals.len()];
        for branch in branches.iter().filter(|b| returns.contains(&b.from)) {
            add(&mut returned, branch.to, branch.share);
        }
        let mut ran = vec![0.0; sources.0.len()];
        for stream in ended {
            let arrived = arrivals.get(stream.from).copied().unwrap_or_default();
            add(&mut ran, stream.to, arrived * stream.share);
        }
        let call = |(text, instruction, process): (TextIdx, u32, ProcessIdx), place: usize| {
            let before = instruction.checked_sub(1)?;
            let is_call = matches!(
                flow(text, before),
                Some(Flow::Call | Flow::IndirectCall | Flow::SystemCall)
            );
            let call = sources.0.get(&(text, before, process)).filter(|_| is_call)?;
            let (returned, ran) = (*returned.get(place)?, *ran.get(*call)?);
            (0.0 < returned && returned < RETURNS * ran && ran < RETURNS * returned).then_some((place, *call))
        };
        let calls = places.0.iter().filter_map(|(spot, n)| call(*spot, *n)).collect();
        Self { returns, calls }
    }
}

fn add(sums: &mut [f64], n: usize, amount: f64) {
    if let Some(sum) = sums.get_mut(n) {
        *sum += amount;
    }
}

fn scale(amounts: &mut [f64], by: &[f64]) {
    for (amount, by) in amounts.iter_mut().zip(by) {
        *amount *= by;
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn spot(map: &BlockMap, place: Place) -> Option<(TextIdx, u32)> {
    Some((place.text, map.text(place.text)?.find(place.addr).ok()?))
}

/// A number for each instruction of a process image, from 0 on.
#[derive(Default)]
struct Numbers(HashMap<(TextIdx, u32, ProcessIdx), usize>);

impl Numbers {
    fn number(&mut self, spot: (TextIdx, u32, ProcessIdx)) -> usize {
        let next = self.0.len();
        *self.0.entry(spot).or_insert(next)
    }

    /// Kernel code is counted once for all processes, or with the process like the rest.
    fn find(&self, (text, instruction): (TextIdx, u32), process: ProcessIdx) -> Option<usize> {
        let owners = [process, ProcessIdx::KERNEL];
        owners
            .iter()
            .find_map(|owner| self.0.get(&(text, instruction, *owner)).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places in a row, each with one stream and one branch that leads to the next place, and from the last one back to
    /// the first; the branch of the `n`-th place goes to the start of the other loop with the probability `out[n]`.
    fn loops(arrivals: [&[f64]; 2], out: [&[f64]; 2]) -> Chain {
        let lengths = arrivals.map(<[f64]>::len);
        let begins = [0, lengths[0]];
        let n = lengths[0] + lengths[1];
        let one = |place| Share {
            from: place,
            to: place,
            share: 1.0,
        };
        let mut branches = Vec::new();
        for side in 0..2 {
            for (i, out) in out[side].iter().enumerate() {
                let from = begins[side] + i;
                let next = begins[side] + (i + 1) % lengths[side];
                let other = begins[1 - side];
                branches.extend([(next, 1.0 - out), (other, *out)].map(|(to, share)| Share {
                    from,
                    to,
                    share,
                }));
            }
        }
        Chain {
            starts: Vec::new(),
            arrivals: arrivals.concat(),
            unexplained: vec![0.0; n],
            streams: (0..n).map(one).collect(),
            branches,
            n_branches: n,
        }
    }

    fn assert_near(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance * b, "{a} is not {b}");
    }

    #[test]
    fn a_loop_longer_than_a_stack_is_evened_out() {
        // Stacks of 15 streams that begin at the first branch of the loop in four cases of ten.
        let biased: Vec<f64> = (0..40).map(|i| if i < 15 { 14_000.0 } else { 6_000.0 }).collect();
        let other = vec![5_000.0; 10];
        let chain = loops([&biased, &other], [&[0.0; 40], &[0.0; 10]]);
        let balanced = chain.balanced(15.0);
        let mean = biased.iter().sum::<f64>() / 40.0;
        for (place, arrives) in balanced.iter().enumerate() {
            assert_near(*arrives, if place < 40 { mean } else { 5_000.0 }, 0.02);
        }
        assert_near(balanced.iter().sum(), biased.iter().chain(&other).sum(), 1e-9);
    }

    #[test]
    fn what_is_consistent_stays() {
        // As often as the first loop is left for the second one, the second is left for the first.
        let first = vec![1_000.0; 20];
        let second = vec![4_000.0; 8];
        let mut out = [vec![0.0; 20], vec![0.0; 8]];
        out[0][19] = 0.2;
        out[1][7] = 0.05;
        let chain = loops([&first, &second], [&out[0], &out[1]]);
        for (balanced, measured) in chain.balanced(15.0).iter().zip(&chain.arrivals) {
            assert_near(*balanced, *measured, 1e-3);
        }
    }

    #[test]
    fn one_succession_by_chance_moves_little() {
        // The load went from one loop to the other once; nothing is known of a way back.
        let sizes = [vec![1_000.0; 20], vec![1_000.0; 8]];
        let mut out = [vec![0.0; 20], vec![0.0; 8]];
        out[0][3] = 1e-3;
        let chain = loops([&sizes[0], &sizes[1]], [&out[0], &out[1]]);
        let balanced = chain.balanced(15.0);
        assert_near(balanced[..20].iter().sum(), 20_000.0, 0.05);
        assert_near(balanced[20..].iter().sum(), 8_000.0, 0.05);
    }
}
