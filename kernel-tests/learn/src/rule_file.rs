//! A tree as a rule file of `hbbp-sys` (`--rule`): the first line that holds decides.

use std::fmt::Write as _;

use crate::tree::Tree;

/// The text of the rule: comments, name, weighting of streams (`recorded`, `balanced`), lines.
pub(crate) fn text(tree: &Tree, features: &[String], streams: &str, comments: &[String]) -> String {
    let mut text = String::new();
    for comment in comments {
        let _ = writeln!(text, "# {comment}");
    }
    let _ = writeln!(text, "name learnt\nstreams {streams}");
    add(&mut text, tree, features, 0, &mut Vec::new());
    text
}

/// Adds the lines of a node. The side above a bound needs no condition of its own: what is at most the bound is decided by
/// the lines before.
fn add(text: &mut String, tree: &Tree, features: &[String], node: usize, conditions: &mut Vec<String>) {
    match (tree.only_method(node), tree.nodes[node].split) {
        (None, Some(split)) => {
            conditions.push(format!("{} <= {}", features[split.feature], split.bound));
            add(text, tree, features, split.at_most, conditions);
            conditions.pop();
            add(text, tree, features, split.above, conditions);
        }
        (method, _) => {
            let word = method.unwrap_or_else(|| tree.nodes[node].method()).word();
            let _ = match conditions.as_slice() {
                [] => writeln!(text, "{word}"),
                _ => writeln!(text, "{word} if {}", conditions.join(" and ")),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use hbbp_estimate::rule::{Feature, Features};
    use hbbp_estimate::{Method, Rule};
    use proptest::prelude::*;

    use super::*;
    use crate::pairs;
    use crate::tree::{Node, Split};

    fn names() -> Vec<String> {
        Feature::NAMED.map(|(name, _)| name.to_owned()).to_vec()
    }

    /// Trees of up to eight leaves: each step splits a leaf.
    fn trees() -> impl Strategy<Value = Tree> {
        let leaf = || (0..3u8, 0..3u8);
        let steps = prop::collection::vec(
            (
                any::<prop::sample::Index>(),
                0..Feature::NAMED.len(),
                0..8u8,
                leaf(),
                leaf(),
            ),
            0..8,
        );
        (leaf(), steps).prop_map(|(root, steps)| {
            let node = |(ebs, lbr): (u8, u8)| Node {
                blocks: 1,
                weights: [f64::from(ebs), f64::from(lbr)],
                split: None,
            };
            let mut nodes = vec![node(root)];
            for (leaf, feature, bound, at_most, above) in steps {
                let n = nodes.len();
                let leaves: Vec<usize> = (0..n).filter(|at| nodes[*at].split.is_none()).collect();
                nodes[*leaf.get(&leaves)].split = Some(Split {
                    feature,
                    bound: f64::from(bound) / 2.0,
                    at_most: n,
                    above: n + 1,
                });
                nodes.extend([node(at_most), node(above)]);
            }
            Tree { nodes }
        })
    }

    proptest! {
        #[test]
        fn a_rule_chooses_as_its_tree_does(
            tree in trees(),
            blocks in prop::collection::vec(prop::array::uniform4(0..9u8), 1..20),
        ) {
            let text = text(&tree, &names(), "balanced", &["Of a test.".to_owned()]);
            let rule: Rule = text.parse().map_err(|err| TestCaseError::fail(format!("{err}\n{text}")))?;
            for values in blocks {
                let [instructions, biased, ebs_hits, lbr_hits] = values.map(|value| f64::from(value) / 2.0);
                let features = Features { instructions, biased, ebs_hits, lbr_hits };
                let values = Feature::NAMED.map(|(_, feature)| features.value(feature));
                let expected = match tree.choose(&values) {
                    pairs::Method::Ebs => Method::Ebs,
                    pairs::Method::Lbr => Method::Lbr,
                };
                prop_assert_eq!(rule.choose(&features).0, expected, "{:?}\n{}", features, text);
            }
        }
    }

    #[test]
    fn rule_next_to_the_results_is_read() {
        let rule: Rule = include_str!("../../results/learnt.rule").parse().unwrap();
        let of = |instructions| {
            let block = Features {
                instructions,
                ..Features::default()
            };
            rule.choose(&block).0
        };
        assert_eq!([8.0, 9.0].map(of), [Method::Lbr, Method::Ebs]);
    }

    #[test]
    fn leaves_of_one_method_are_one_line() {
        let node = |ebs, split| Node {
            blocks: 1,
            weights: [ebs, 1.0],
            split,
        };
        let split = |bound, at_most| {
            Some(Split {
                feature: 0,
                bound,
                at_most,
                above: at_most + 1,
            })
        };
        let nodes = vec![
            node(0.5, split(18.0, 1)),
            node(0.0, split(4.0, 3)),
            node(2.0, None),
            node(0.0, None),
            node(0.5, None),
        ];
        let text = text(&Tree { nodes }, &names(), "recorded", &[]);
        assert_eq!(
            text,
            "name learnt\nstreams recorded\nlbr if instructions <= 18\nebs\n"
        );
    }
}
