//! Classification trees over training pairs: grown split by split, by the splits that linfa-trees finds.
//!
//! A tree is grown to a number of leaves: the split that takes most weighted impurity away is made first. So a tree with
//! fewer leaves is the beginning of one with more, and one growth serves to choose their number.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use linfa::prelude::{Dataset, Fit as _};
use linfa_trees::{DecisionTree, SplitQuality};
use ndarray::{Array1, Array2};

use crate::pairs::{Method, Pair};

/// The least part of all weight in a leaf. A small kernel is a workload like a compiler, and has a twenty-sixth of the weight in
/// five blocks: a leaf is to be more than the half of one of these.
const LEAST_LEAF: f32 = 0.005;

/// A node: what reaches it, and how it divides that.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) blocks: usize,
    /// Their weight by the method that was nearer: EBS, LBR.
    pub(crate) weights: [f64; 2],
    /// `None` of a leaf.
    pub(crate) split: Option<Split>,
}

/// A condition on a feature, and the nodes of both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Split {
    pub(crate) feature: usize,
    /// The greatest value on the side of `at_most`.
    pub(crate) bound: f64,
    pub(crate) at_most: usize,
    pub(crate) above: usize,
}

/// A tree; its root is the first node, and each split added two nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
}

/// A leaf that grows: its pairs, and the best split of these.
struct Bud<'a> {
    node: usize,
    members: Vec<&'a Pair>,
    cut: Option<Cut>,
}

/// A split to be.
#[derive(Clone, Copy, Debug)]
struct Cut {
    feature: usize,
    bound: f64,
    /// The weight of the node times the impurity that the split takes away.
    gain: f64,
}

impl Tree {
    /// Grows a tree with at most `leaves` leaves.
    ///
    /// # Errors
    /// When linfa-trees does not take the pairs.
    pub(crate) fn grow(pairs: &[&Pair], leaves: usize) -> Result<Self> {
        let all: f64 = pairs.iter().map(|pair| pair.weight).sum();
        let mut tree = Self {
            nodes: vec![Node::of(pairs)],
        };
        let mut buds = vec![Bud::new(0, pairs.to_vec(), all)?];
        while buds.len() < leaves {
            let gain = |bud: &Bud<'_>| bud.cut.map_or(0.0, |cut| cut.gain);
            let best = (0..buds.len()).max_by(|a, b| gain(&buds[*a]).total_cmp(&gain(&buds[*b])));
            let Some((bud, cut)) = best.and_then(|at| Some((at, buds.get(at)?.cut?))) else {
                break;
            };
            let Bud { node, members, .. } = buds.swap_remove(bud);
            let (at_most, above): (Vec<_>, Vec<_>) = members
                .into_iter()
                .partition(|pair| pair.features[cut.feature] <= cut.bound);
            let first = tree.nodes.len();
            tree.nodes[node].split = Some(Split {
                feature: cut.feature,
                bound: cut.bound,
                at_most: first,
                above: first + 1,
            });
            for (node, members) in [(first, at_most), (first + 1, above)] {
                tree.nodes.push(Node::of(&members));
                buds.push(Bud::new(node, members, all)?);
            }
        }
        Ok(tree)
    }

    /// The same tree as it was when it had `leaves` leaves.
    pub(crate) fn with_leaves(&self, leaves: usize) -> Self {
        let mut nodes = self.nodes.clone();
        nodes.truncate(2 * leaves.max(1) - 1);
        let n = nodes.len();
        for node in &mut nodes {
            node.split = node.split.filter(|split| split.above < n);
        }
        Self { nodes }
    }

    /// The method for a block.
    pub(crate) fn choose(&self, features: &[f64]) -> Method {
        let mut node = &self.nodes[0];
        while let Some(split) = node.split {
            let goes_left = features[split.feature] <= split.bound;
            node = &self.nodes[if goes_left { split.at_most } else { split.above }];
        }
        node.method()
    }

    /// The method that all leaves below a node name, if it is one.
    pub(crate) fn only_method(&self, node: usize) -> Option<Method> {
        match self.nodes[node].split {
            None => Some(self.nodes[node].method()),
            Some(split) => {
                let [at_most, above] = [split.at_most, split.above].map(|side| self.only_method(side));
                at_most.filter(|_| at_most == above)
            }
        }
    }
}

impl Node {
    fn of(pairs: &[&Pair]) -> Self {
        let weight = |method| {
            let nearer = pairs.iter().filter(|pair| pair.nearer == method);
            nearer.map(|pair| pair.weight).sum()
        };
        Self {
            blocks: pairs.iter().map(|pair| pair.blocks).sum(),
            weights: [Method::Ebs, Method::Lbr].map(weight),
            split: None,
        }
    }

    /// The method with the greater weight.
    pub(crate) fn method(&self) -> Method {
        let [ebs, lbr] = self.weights;
        if lbr < ebs { Method::Ebs } else { Method::Lbr }
    }

    /// All weight.
    pub(crate) fn weight(&self) -> f64 {
        self.weights.iter().sum()
    }

    /// How often a pair would be given the wrong method, if that was drawn by the weights of both.
    pub(crate) fn gini(&self) -> f64 {
        let all = self.weight();
        let squares = self.weights.iter().map(|weight| (weight / all).powi(2));
        if 0.0 < all {
            1.0 - squares.sum::<f64>()
        } else {
            0.0
        }
    }
}

impl<'a> Bud<'a> {
    fn new(node: usize, members: Vec<&'a Pair>, all: f64) -> Result<Self> {
        let cut = best_cut(&members, all)?;
        Ok(Self { node, members, cut })
    }
}

/// The split at the root of a tree of these pairs.
///
/// Below its root, linfa-trees 0.8.1 tries a bound only after values whose last holder, among all pairs in their order, has
/// reached the node: of a flag with two values it finds none there, as a rule. So each split is the root of its own tree.
fn best_cut(members: &[&Pair], all: f64) -> Result<Option<Cut>> {
    let methods: BTreeSet<Method> = members.iter().map(|pair| pair.nearer).collect();
    let Some(first) = members.first().filter(|_| 1 < methods.len()) else {
        return Ok(None);
    };
    let features: Vec<f64> = members
        .iter()
        .flat_map(|pair| pair.features.iter().copied())
        .collect();
    let records = Array2::from_shape_vec((members.len(), first.features.len()), features)
        .context("pairs have different features")?;
    let targets: Array1<bool> = members.iter().map(|pair| pair.nearer == Method::Ebs).collect();
    #[expect(clippy::cast_possible_truncation, reason = "weights are f32 in linfa")]
    let weights: Array1<f32> = members.iter().map(|pair| (pair.weight / all) as f32).collect();
    let data = Dataset::new(records, targets).with_weights(weights);
    let fitted = DecisionTree::params()
        .split_quality(SplitQuality::Gini)
        .max_depth(Some(1))
        .min_weight_leaf(LEAST_LEAF)
        .fit(&data)
        .context("linfa-trees does not take the pairs")?;
    let (feature, middle, decrease) = fitted.root_node().split();
    // Zero where there is no split. Where both sides name the same method, the node is a leaf, and yet says its split.
    if decrease <= 0.0 {
        return Ok(None);
    }
    let values = || members.iter().map(|pair| pair.features[feature]);
    let at_most = values().filter(|value| *value <= middle).fold(f64::MIN, f64::max);
    let above = values().filter(|value| middle < *value).fold(f64::MAX, f64::min);
    let weight: f64 = members.iter().map(|pair| pair.weight).sum();
    Ok(Some(Cut {
        feature,
        bound: shortest(at_most, above),
        gain: weight * decrease,
    }))
}

/// The number with the fewest digits that is at least `lower` and less than `upper`.
fn shortest(lower: f64, upper: f64) -> f64 {
    let rounded = (-9..=9).map(|digits| {
        let scale = 10f64.powi(digits);
        (lower * scale).ceil() / scale
    });
    let mut rounded = rounded.filter(|number| (lower..upper).contains(number));
    rounded.next().unwrap_or(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(features: [f64; 2], nearer: Method, weight: f64) -> Pair {
        let errors = match nearer {
            Method::Ebs => [0.0, weight],
            Method::Lbr => [weight, 0.0],
        };
        Pair {
            workload: 0,
            features: features.to_vec(),
            blocks: 1,
            nearer,
            weight,
            errors,
        }
    }

    fn grown(pairs: &[Pair], leaves: usize) -> Tree {
        Tree::grow(&pairs.iter().collect::<Vec<_>>(), leaves).unwrap()
    }

    /// Long blocks are nearer by EBS, short ones where they are not flagged by LBR: as the flag is in any order, a tree of
    /// linfa-trees alone finds it at the root only.
    fn flagged() -> Vec<Pair> {
        let features = |n: u32| [f64::from(n % 40), f64::from(n / 40 % 2)];
        let blocks = (0..400).map(features).map(|[length, flag]| {
            let nearer = if 18.0 < length || flag == 1.0 {
                Method::Ebs
            } else {
                Method::Lbr
            };
            pair([length, flag], nearer, 1.0)
        });
        blocks.collect()
    }

    #[test]
    fn a_tree_finds_length_and_flag() {
        let pairs = flagged();
        let tree = grown(&pairs, 8);
        assert_eq!(tree.nodes.len(), 5, "{tree:#?}");
        assert!(
            pairs.iter().all(|it| tree.choose(&it.features) == it.nearer),
            "{tree:#?}"
        );
        let bounds: Vec<_> = tree.nodes.iter().filter_map(|node| node.split).collect();
        let mut bounds: Vec<_> = bounds.iter().map(|split| (split.feature, split.bound)).collect();
        bounds.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert_eq!(bounds, [(0, 18.0), (1, 0.0)]);
    }

    #[test]
    fn fewer_leaves_are_the_beginning_of_the_growth() {
        let pairs = flagged();
        let tree = grown(&pairs, 8);
        for leaves in 1..4 {
            assert_eq!(tree.with_leaves(leaves), grown(&pairs, leaves), "{leaves}");
        }
        let all: Vec<&Pair> = pairs.iter().collect();
        let error = |tree: &Tree| -> f64 { all.iter().map(|it| it.error(tree.choose(&it.features))).sum() };
        // All of EBS: wrong for the 19 short lengths in the five rounds without a flag.
        assert_eq!([error(&tree.with_leaves(1)), error(&tree)], [95.0, 0.0]);
    }

    #[test]
    fn weights_decide_and_not_the_number_of_blocks() {
        let of = |weight| {
            let mut pairs = vec![pair([5.0, 0.0], Method::Lbr, 1.0); 30];
            pairs.extend(vec![pair([20.0, 0.0], Method::Lbr, 1.0); 30]);
            pairs.extend(vec![pair([20.0, 0.0], Method::Ebs, weight); 10]);
            grown(&pairs, 8)
        };
        assert_eq!(of(1.0).only_method(0), Some(Method::Lbr));
        let heavy = of(9.0);
        assert_eq!(heavy.only_method(0), None);
        assert_eq!(
            [5.0, 20.0].map(|length| heavy.choose(&[length, 0.0])),
            [Method::Lbr, Method::Ebs]
        );
        assert!((heavy.nodes[0].gini() - (1.0 - 0.36 - 0.16)).abs() < 1e-12);
    }

    #[test]
    fn light_pairs_get_no_leaf() {
        let mut pairs = vec![pair([5.0, 0.0], Method::Lbr, 1.0); 300];
        pairs.push(pair([20.0, 0.0], Method::Ebs, 1.0));
        assert_eq!(grown(&pairs, 8).nodes.len(), 1);
        assert_eq!(grown(&pairs[300..], 8).nodes.len(), 1);
    }

    #[test]
    fn bounds_have_few_digits() {
        assert_eq!(shortest(18.0, 19.0), 18.0);
        assert_eq!(shortest(1234.5, 1301.0), 1300.0);
        assert_eq!(shortest(0.125, 0.126), 0.125);
        assert_eq!(shortest(0.0, 1.0), 0.0);
    }
}
