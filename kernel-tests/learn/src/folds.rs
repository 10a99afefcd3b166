//! Cross-validation by workload: what is learnt of a workload is never judged on it.
//!
//! Blocks of one workload are alike, and the same blocks of the kernel and of libraries run in many; a fold of blocks would
//! judge a tree on what it has seen. All recordings of a workload are in one fold, whatever machine they are of.
//! Figures come from leaving out one workload at a time: there are few, and a tree from all others is nearest to that of
//! all. The number of leaves is chosen within the others, in folds of several workloads, as that takes many trees.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::pairs::Pair;
use crate::tree::Tree;

/// The most leaves of a tree: beyond, it is not simple to read (paper section IV.A).
const MOST_LEAVES: usize = 8;

/// Folds for the number of leaves.
const FOLDS: usize = 5;

/// Pairs to train on and pairs to judge by.
pub(crate) struct Fold<'a> {
    pub(crate) training: Vec<&'a Pair>,
    pub(crate) judging: Vec<&'a Pair>,
}

/// The fold in which these workloads are left out of the training.
pub(crate) fn without<'a>(pairs: &[&'a Pair], workloads: &BTreeSet<usize>) -> Fold<'a> {
    let (judging, training) = pairs.iter().partition(|pair| workloads.contains(&pair.workload));
    Fold { training, judging }
}

/// The workloads of pairs in `n` groups, or in one group each if they are fewer.
fn groups(pairs: &[&Pair], n: usize) -> Vec<BTreeSet<usize>> {
    let workloads: BTreeSet<usize> = pairs.iter().map(|pair| pair.workload).collect();
    let n = n.min(workloads.len());
    // Neighbours in the list are of a kind: they go to different groups.
    let of = |group| workloads.iter().copied().skip(group).step_by(n).collect();
    (0..n).map(of).collect()
}

/// The number of leaves, up to a bound, that serves workloads which are left out: the least number whose mean error is not
/// above the least one by more than a standard error of the difference. (L. Breiman et al., Classification and Regression
/// Trees, 1984, section 3.4.3, where the standard error is that of the error itself; differences by workload are surer.)
fn leaves(pairs: &[&Pair]) -> Result<usize> {
    let mut errors: BTreeMap<usize, [f64; MOST_LEAVES]> = BTreeMap::new();
    for group in groups(pairs, FOLDS) {
        let fold = without(pairs, &group);
        let tree = Tree::grow(&fold.training, MOST_LEAVES)?;
        for leaves in 1..=MOST_LEAVES {
            let tree = tree.with_leaves(leaves);
            for pair in &fold.judging {
                let errors = errors.entry(pair.workload).or_default();
                errors[leaves - 1] += pair.error(tree.choose(&pair.features));
            }
        }
    }
    let beyond = |leaves: usize, others: usize| -> Vec<f64> {
        let errors = errors.values();
        errors
            .map(|errors| errors[leaves - 1] - errors[others - 1])
            .collect()
    };
    let best = (2..=MOST_LEAVES).fold(1, |best, leaves| {
        if mean(&beyond(leaves, best)).0 < 0.0 {
            leaves
        } else {
            best
        }
    });
    let serves = |leaves: &usize| {
        let (mean, std_error) = mean(&beyond(*leaves, best));
        mean <= std_error
    };
    Ok((1..best).find(serves).unwrap_or(best))
}

/// The mean, and its standard error.
pub(crate) fn mean(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0) / n).sqrt())
}

/// The tree of these pairs, with the number of leaves that cross-validation chooses.
///
/// # Errors
/// When linfa-trees does not take the pairs.
pub(crate) fn learn(pairs: &[&Pair]) -> Result<Tree> {
    Tree::grow(pairs, leaves(pairs)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pairs::Method;

    /// A block of a length of a workload, to which LBR is nearer up to a length.
    fn pair(workload: usize, length: u8, longest: u8) -> Pair {
        let nearer = if length <= longest {
            Method::Lbr
        } else {
            Method::Ebs
        };
        let errors = if length <= longest { [1.0, 0.0] } else { [0.0, 1.0] };
        Pair {
            workload,
            features: vec![f64::from(length)],
            blocks: 1,
            nearer,
            weight: 1.0,
            errors,
        }
    }

    proptest! {
        #[test]
        fn folds_never_mix_a_workload(workloads in prop::collection::vec(0..12usize, 1..60), n in 1..8usize) {
            let pairs: Vec<Pair> = workloads.iter().map(|workload| pair(*workload, 1, 1)).collect();
            let pairs: Vec<&Pair> = pairs.iter().collect();
            let distinct: BTreeSet<usize> = workloads.iter().copied().collect();
            let mut judged = 0;
            for group in groups(&pairs, n) {
                let fold = without(&pairs, &group);
                let of = |pairs: &[&Pair]| -> BTreeSet<usize> { pairs.iter().map(|pair| pair.workload).collect() };
                prop_assert!(of(&fold.training).is_disjoint(&of(&fold.judging)));
                prop_assert_eq!(of(&fold.judging), group);
                prop_assert_eq!(fold.training.len() + fold.judging.len(), pairs.len());
                judged += fold.judging.len();
            }
            prop_assert_eq!(judged, pairs.len(), "each pair is judged once");
            prop_assert_eq!(groups(&pairs, n).len(), n.min(distinct.len()));
        }
    }

    #[test]
    fn number_of_leaves_suits_other_workloads() {
        // All workloads agree: a cut at 18.
        let alike: Vec<Pair> = (0..6)
            .flat_map(|workload| (1..40).map(move |length| pair(workload, length, 18)))
            .collect();
        let tree = learn(&alike.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(
            tree.nodes[0].split.map(|split| (split.feature, split.bound)),
            Some((0, 18.0))
        );
        assert_eq!(tree.nodes.len(), 3);
        // A length of its own in each, EBS there alone: what is learnt of some says nothing of others.
        let apart: Vec<Pair> = (0..6u8)
            .flat_map(|workload| {
                let longest = move |length| if length == 2 + 5 * workload { 0 } else { u8::MAX };
                (1..40).map(move |length| pair(workload.into(), length, longest(length)))
            })
            .collect();
        let apart: Vec<&Pair> = apart.iter().collect();
        assert_eq!(leaves(&apart).unwrap(), 1);
    }
}
