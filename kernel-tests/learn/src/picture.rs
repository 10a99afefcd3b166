//! A tree as a picture: a box for each node, as in Figure 1 of the paper. SVG, since browsers and code hosts show it as it is;
//! linfa-trees writes TikZ, which takes a TeX installation to look at.

use std::fmt::Write as _;

use crate::pairs::Method;
use crate::tree::Tree;

/// Width and height of a box, and the gaps between boxes, in pixels.
const BOX: (f64, f64) = (170.0, 72.0);
const GAP: (f64, f64) = (16.0, 44.0);

/// Distance of lines of text.
const LINE: f64 = 16.0;

/// A picture in progress.
struct Drawing<'a> {
    tree: &'a Tree,
    features: &'a [String],
    /// Boxes and edges.
    body: String,
    /// Leaves so far: each has a column.
    leaves: u32,
    /// Rows so far.
    rows: u32,
}

/// The tree as SVG.
pub(crate) fn svg(tree: &Tree, features: &[String], title: &str) -> String {
    let mut drawing = Drawing {
        tree,
        features,
        body: String::new(),
        leaves: 0,
        rows: 0,
    };
    drawing.node(0, 0);
    let width = f64::from(drawing.leaves) * (BOX.0 + GAP.0) + GAP.0;
    let height = f64::from(drawing.rows) * (BOX.1 + GAP.1) + LINE;
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\" text-anchor=\"middle\">\n<title>{title}</title>\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n{}</svg>\n",
        drawing.body
    )
}

impl Drawing<'_> {
    /// Draws a node and what is below it; returns the middle of its box.
    fn node(&mut self, node: usize, row: u32) -> f64 {
        self.rows = self.rows.max(row + 1);
        let top = f64::from(row) * (BOX.1 + GAP.1) + LINE;
        // As in the rule file, leaves that name the same method are one.
        let split = self.tree.nodes[node].split;
        let split = split.filter(|_| self.tree.only_method(node).is_none());
        let Some(split) = split else {
            let column = f64::from(self.leaves);
            self.leaves += 1;
            let middle = GAP.0 + column * (BOX.0 + GAP.0) + BOX.0 / 2.0;
            self.rectangle(node, middle, top, None);
            return middle;
        };
        let sides = [(split.at_most, "yes"), (split.above, "no")];
        let below = sides.map(|(side, answer)| (self.node(side, row + 1), answer));
        let middle = below.iter().map(|(x, _)| x).sum::<f64>() / 2.0;
        for (x, answer) in below {
            let (from, to) = (top + BOX.1, top + BOX.1 + GAP.1);
            let _ = writeln!(
                self.body,
                "<line x1=\"{middle}\" y1=\"{from}\" x2=\"{x}\" y2=\"{to}\" stroke=\"black\"/>\n\
                 <text x=\"{}\" y=\"{}\">{answer}</text>",
                f64::midpoint(middle, x) + if x < middle { -16.0 } else { 16.0 },
                f64::midpoint(from, to)
            );
        }
        let condition = format!("{} ≤ {}", self.features[split.feature], split.bound);
        self.rectangle(node, middle, top, Some(&condition));
        middle
    }

    fn rectangle(&mut self, node: usize, middle: f64, top: f64, condition: Option<&str>) {
        let node = &self.tree.nodes[node];
        let (name, fill) = match node.method() {
            Method::Ebs => ("EBS", "#fbe3c8"),
            Method::Lbr => ("LBR", "#d3e5f7"),
        };
        let [ebs, lbr] = node.weights.map(|weight| 100.0 * weight / node.weight());
        let all = 100.0 * node.weight() / self.tree.nodes[0].weight();
        let lines = [
            condition.unwrap_or(name).to_owned(),
            format!("gini {:.3}, {} blocks", node.gini(), node.blocks),
            format!("{all:.1} % of the weight"),
            format!("EBS {ebs:.0} %, LBR {lbr:.0} %"),
        ];
        let (left, (width, height)) = (middle - BOX.0 / 2.0, BOX);
        let _ = writeln!(
            self.body,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"{fill}\" stroke=\"black\"/>"
        );
        for (line, nth) in lines.iter().zip(1u8..) {
            let weight = if nth == 1 { "bold" } else { "normal" };
            let _ = writeln!(
                self.body,
                "<text x=\"{middle}\" y=\"{}\" font-weight=\"{weight}\">{}</text>",
                top + f64::from(nth) * LINE,
                escaped(line)
            );
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Node, Split};

    #[test]
    fn each_node_has_a_box_and_each_side_an_edge() {
        let node = |weights, split| Node {
            blocks: 10,
            weights,
            split,
        };
        let split = Split {
            feature: 0,
            bound: 18.0,
            at_most: 1,
            above: 2,
        };
        let nodes = vec![
            node([1.0, 3.0], Some(split)),
            node([0.0, 3.0], None),
            node([1.0, 0.0], None),
        ];
        let text = svg(&Tree { nodes }, &["a<b".to_owned()], "A & B");
        let count = |what: &str| text.matches(what).count();
        assert_eq!(
            (count("rx="), count("<line"), count("<svg"), count("</svg>")),
            (3, 2, 1, 1),
            "{text}"
        );
        for said in [
            "a&lt;b ≤ 18",
            "gini 0.375, 10 blocks",
            "25.0 % of the weight",
            "EBS 25 %, LBR 75 %",
            "A &amp; B",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
