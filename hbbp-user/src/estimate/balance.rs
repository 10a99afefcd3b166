//! Streams weighed so that what arrives at each place is what leads there, and what runs what eventing IPs show.
//!
//! Were branch stacks taken at any moment alike, each branch would be found in the oldest slot as often as in any other.
//! Where a branch sits there out of proportion (paper section III.C), the stacks show what runs within one stack's depth
//! behind it too often and the rest too seldom; all blocks near it suffer, not only the one that it ends.
//! But how branches follow each other is recorded truly: each stack shows it, whatever moment it was taken at.
//! So there are two measurements of what arrives at the target of a branch: the streams that start there, and the
//! branches that lead there, as often as what ran before them arrived ([`super::chain`]). Both have errors, and least
//! squares reconciles them, each with the inverse of its variance.
//! Where the successions are certain, in a block or in a chain of calls, they decide; where they are a matter of chance,
//! the streams do. Without a bias there is nothing to reconcile but chance.
//!
//! Successions by chance are not quite beyond the bias: of a loop that a biased branch leads to, the stacks behind that
//! branch show the first rounds and never the exit, so that it seems to be left less often than it is. How often regions
//! run, against each other, then hangs on too little, and streams and branches are wrong together. Eventing IPs have no
//! part in that bias; they are the third measurement, good for regions where the other two are good within them
//! ([`super::skid`]).

use super::chain::{Chain, add, at};
use super::skid::{Due, Ips};
use super::solve::{Symmetric, solve};
use super::{Counted, Roles, Stream};
use crate::blocks::BlockMap;
use crate::locate::Located;
use crate::snapshot::Snapshot;

/// Variance of a certain succession, as a share of the variance of a Poisson count. With a stack's 15 streams as the
/// variance of what is measured, it is carried on over the root of 15 / 0.01, some 40 branches, either way. Tried from 1e-4
/// to 1e-1 on the emulated machine: less lets rare successions outweigh what was measured, more leaves long loops uneven.
const CERTAIN: f64 = 1e-2;

/// Rounds in which the variances are taken from the last result. They are proportional to the true arrivals, and with
/// those that were measured instead, small ones would weigh too much. The skid is settled to a twentieth in the third.
const ROUNDS: usize = 3;

/// Fewest streams that a variance is taken for: of no place can less than half a stream be known.
const FEWEST: f64 = 0.5;

/// What is known of all streams.
pub(super) struct Known<'a> {
    /// Eventing IPs by block.
    pub(super) ebs: &'a [Counted],
    /// Streams of a stack: so many together tell as much as one alone.
    pub(super) streams_per_stack: f64,
    /// The share of the oldest slots that branches hold beyond what is due to them.
    pub(super) excess: f64,
}

/// Weighs the streams. False where no targets of branches were recorded, and the streams stay as they are.
pub(super) fn balance(
    snapshot: &Snapshot,
    located: &Located,
    map: &BlockMap,
    roles: &Roles,
    known: &Known<'_>,
    streams: &mut [Stream],
) -> bool {
    let Some(chain) = Chain::new(located, map, roles, streams) else {
        return false;
    };
    let ips = Ips::new(snapshot, located, map, roles, (&chain, streams), known.ebs);
    let errors = Errors {
        streams_per_stack: known.streams_per_stack.max(1.0),
        // Of two measurements that are both biased neither can tell how much the other one is: then chance is what they
        // are weighed by. Without any samples that leaves 1.1 % in the mean on the emulated machine, and the bias 1.3 %.
        excess: if known.ebs.is_empty() {
            0.0
        } else {
            known.excess.max(0.0)
        },
    };
    let balanced = balanced(&chain, &ips, errors);
    for (stream, start) in streams.iter_mut().zip(&chain.starts) {
        if let (Some(balanced), Some(measured)) = (balanced.get(*start), chain.arrivals.get(*start))
            && 0.0 < *measured
        {
            stream.weight *= balanced / measured;
        }
    }
    true
}

/// What arrives at each place, reconciled; in all as much as was measured.
fn balanced(chain: &Chain, ips: &Ips, errors: Errors) -> Vec<f64> {
    let n_places = chain.arrivals.len();
    let mut balanced = chain.arrivals.clone();
    let mut skids = vec![0.0; ips.n_passages()];
    for _ in 0..ROUNDS {
        let equations = Equations::new(chain, ips, errors, &balanced);
        let first = [balanced.as_slice(), &skids].concat();
        let mut solved = solve(
            |x| equations.apply(x),
            &equations.right(),
            &first,
            equations.squares(),
        );
        skids = solved.split_off(n_places);
        let all: f64 = chain.arrivals.iter().sum();
        let sum: f64 = solved.iter().map(|a| a.max(0.0)).sum();
        if !sum.is_finite() || sum <= 0.0 {
            return chain.arrivals.clone();
        }
        balanced = solved.iter().map(|a| a.max(0.0) * all / sum).collect();
    }
    balanced
}

/// How wrong streams and their successions can be.
///
/// By chance, and by the bias: a share `excess` of the stacks was not taken where it was due, so that what they show of a
/// place can be all there is of it or nothing. Of what is measured that is this share; of a succession with probability p,
/// whose odds can be off by this share, it is p (1-p) times as much.
#[derive(Clone, Copy)]
struct Errors {
    streams_per_stack: f64,
    excess: f64,
}

impl Errors {
    /// Variance of what is measured at a place.
    fn measured(self, arrivals: f64) -> f64 {
        let bias = self.excess * arrivals;
        self.streams_per_stack * arrivals.max(FEWEST) + bias * bias
    }

    /// Variance of how often one succession of several was taken: which one it is to be is drawn anew each time, and of a
    /// draw with probability p the variance is p (1-p).
    fn drawn(self, times: f64, probability: f64) -> f64 {
        let draws = times * probability * (1.0 - probability);
        let bias = self.excess * draws;
        draws + bias * bias
    }

    /// Variances of what is led to each place, by streams that begin and branches that go somewhere by chance.
    fn led(self, chain: &Chain, arrivals: &[f64]) -> Vec<f64> {
        let mut leaves = vec![0.0; chain.n_branches];
        let mut leaves_variance = vec![0.0; chain.n_branches];
        for s in &chain.streams {
            let from = at(arrivals, s.from);
            add(&mut leaves, s.to, from * s.share);
            add(&mut leaves_variance, s.to, self.drawn(from, s.share));
        }
        let unseen = arrivals.iter().zip(&chain.unexplained);
        let mut variances: Vec<f64> = unseen
            .map(|(arrives, unexplained)| {
                CERTAIN * arrives.max(FEWEST) + self.streams_per_stack * unexplained
            })
            .collect();
        for b in &chain.branches {
            let leaves = at(&leaves, b.from);
            let variance = at(&leaves_variance, b.from);
            add(
                &mut variances,
                b.to,
                self.drawn(leaves, b.share) + variance * b.share * b.share,
            );
        }
        variances
    }
}

/// The equations of one round. Unknown are the arrivals `a` and, behind them, the skids in their standard deviations; least
/// is to be
///
/// ```text
/// sum measured (a - arrivals)^2 + sum led (a - unexplained - successions of a)^2 + sum skids^2 + squares of the samples
/// ```
struct Equations<'a> {
    chain: &'a Chain,
    ips: &'a Ips,
    /// Inverse variances.
    measured: Vec<f64>,
    /// Inverse variances.
    led: Vec<f64>,
    due: Due,
}

impl<'a> Equations<'a> {
    fn new(chain: &'a Chain, ips: &'a Ips, errors: Errors, arrivals: &[f64]) -> Self {
        let led = errors.led(chain, arrivals);
        Self {
            chain,
            ips,
            measured: arrivals.iter().map(|a| 1.0 / errors.measured(*a)).collect(),
            led: led.iter().map(|variance| 1.0 / variance).collect(),
            due: ips.due(arrivals),
        }
    }

    fn apply(&self, x: &[f64]) -> Vec<f64> {
        let (arrivals, skids) = x.split_at(self.measured.len().min(x.len()));
        let mut sum = self
            .chain
            .transposed(&product(&self.chain.residual(arrivals), &self.led));
        for (sum, measured) in sum.iter_mut().zip(product(arrivals, &self.measured)) {
            *sum += measured;
        }
        sum.extend(skids);
        self.ips.apply(&self.due, (arrivals, skids), &mut sum);
        sum
    }

    fn right(&self) -> Vec<f64> {
        let mut sum = self
            .chain
            .transposed(&product(&self.chain.unexplained, &self.led));
        for (sum, measured) in sum.iter_mut().zip(product(&self.chain.arrivals, &self.measured)) {
            *sum += measured;
        }
        sum.extend(vec![0.0; self.ips.n_passages()]);
        self.ips.right(&self.due, self.measured.len(), &mut sum);
        sum
    }

    fn squares(&self) -> Symmetric {
        let n_places = self.measured.len();
        let mut squares = Symmetric::new(n_places + self.ips.n_passages());
        let skids = vec![1.0; self.ips.n_passages()];
        for (n, weight) in self.measured.iter().chain(&skids).enumerate() {
            squares.add(&[(n, 1.0)], *weight);
        }
        for (terms, weight) in self.chain.terms().iter().zip(&self.led) {
            squares.add(terms, *weight);
        }
        self.ips.add_squares(&self.due, n_places, &mut squares);
        squares
    }
}

fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::chain::Share;
    use crate::estimate::skid::tests::ips;

    const FAIR: Errors = Errors {
        streams_per_stack: 15.0,
        excess: 0.0,
    };

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
        let balanced = balanced(&chain, &Ips::default(), FAIR);
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
        for (balanced, measured) in balanced(&chain, &Ips::default(), FAIR)
            .iter()
            .zip(&chain.arrivals)
        {
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
        let balanced = balanced(&chain, &Ips::default(), FAIR);
        assert_near(balanced[..20].iter().sum(), 20_000.0, 0.05);
        assert_near(balanced[20..].iter().sum(), 8_000.0, 0.05);
    }

    /// Two loops that are left for each other, the first of which looks half again as frequent and half again as hard to
    /// leave as it is: both were run through as often. Places of ten instructions each.
    fn seemingly_long() -> Chain {
        let mut out = [vec![0.0; 20], vec![0.0; 20]];
        out[0][19] = 0.10 / 1.5;
        out[1][19] = 0.10;
        loops([&[30_000.0; 20], &[20_000.0; 20]], [&out[0], &out[1]])
    }

    const BIASED: Errors = Errors {
        streams_per_stack: 15.0,
        excess: 0.3,
    };

    /// What the first loop has of all arrivals, which should be half.
    fn first_loop(balanced: &[f64]) -> f64 {
        balanced[..20].iter().sum::<f64>() / balanced.iter().sum::<f64>()
    }

    #[test]
    fn eventing_ips_decide_between_regions() {
        let chain = seemingly_long();
        let ways: Vec<_> = (0..40)
            .map(|n| (n, n / 20 * 20 + (n + 1) % 20, 20_000.0))
            .collect();
        assert!(0.59 < first_loop(&balanced(&chain, &Ips::default(), BIASED)));
        let exact = ips(10.0, &[1000.0; 40], &ways);
        let share = first_loop(&balanced(&chain, &exact, BIASED));
        assert!((share - 0.5).abs() < 0.01, "{share}");
        // Half of the samples of each second block are found in the next one.
        let samples: Vec<f64> = (0..40).map(|n| if n % 2 == 0 { 500.0 } else { 1500.0 }).collect();
        let skidded = balanced(&chain, &ips(10.0, &samples, &ways), BIASED);
        let share = first_loop(&skidded);
        assert!((share - 0.5).abs() < 0.02, "{share}");
        for side in [&skidded[..20], &skidded[20..]] {
            let mean = side.iter().sum::<f64>() / 20.0;
            side.iter().for_each(|place| assert_near(*place, mean, 0.02));
        }
    }

    #[test]
    fn samples_that_skid_from_one_region_to_the_other_weigh_little() {
        // Every passage goes to and fro between the loops, and half of the samples of the first stand in the second.
        let chain = seemingly_long();
        let ways: Vec<_> = (0..20)
            .flat_map(|n| [(n, n + 20, 20_000.0), (n + 20, n, 20_000.0)])
            .collect();
        let samples: Vec<f64> = (0..40).map(|n| if n < 20 { 500.0 } else { 1500.0 }).collect();
        let without = first_loop(&balanced(&chain, &Ips::default(), BIASED));
        let share = first_loop(&balanced(&chain, &ips(10.0, &samples, &ways), BIASED));
        assert!((share - without).abs() < 0.1, "{share} is not {without}");
    }
}
