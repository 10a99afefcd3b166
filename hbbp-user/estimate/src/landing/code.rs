//! The static control flow graph of the text around samples: what can have run before a block, as its code alone tells.
//!
//! Without branch stacks nothing says where control came from. But most blocks have one or two ways in: from the block above,
//! from a jump, or from the returns of a callee. What comes by an indirect branch comes from any of them.

use hbbp_code::blocks::{BlockId, Flow};

/// A basic block.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: BlockId,
    pub(super) is_kernel: bool,
    /// The kinds of its instructions, and their samples.
    pub(super) kinds: Box<[u8]>,
    pub(super) samples: Box<[f64]>,
    /// How it ends.
    pub(super) flow: Flow,
    /// Whether a symbol or a call says that a function begins here.
    pub(super) is_entry: bool,
    /// Where its branch leads to, and the block behind it.
    pub(super) target: Option<usize>,
    pub(super) next: Option<usize>,
}

/// What ran before a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Before {
    Block(usize),
    /// The blocks that return from a callee, by its number in [`Code::callees`].
    Returns(usize),
    /// Indirect calls and jumps.
    Indirect,
    /// Returns from callees that are not known.
    Return,
    /// A system call, or the return from one.
    System,
}

/// A way into a block, and the number of the unknown that says how often it was gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Way {
    pub(super) unknown: usize,
    pub(super) before: Before,
}

/// A block that ends with a conditional branch, and the unknowns of its ways out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Conditional {
    pub(super) node: usize,
    pub(super) taken: usize,
    pub(super) falls: usize,
}

/// Where control comes from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct External {
    pub(super) node: usize,
    pub(super) unknown: usize,
    /// No other way leads there.
    pub(super) is_alone: bool,
}

/// The graph. The executions of its nodes are the first unknowns, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub(super) nodes: Vec<Node>,
    /// By node.
    pub(super) ways: Vec<Vec<Way>>,
    pub(super) conditionals: Vec<Conditional>,
    pub(super) external: Vec<External>,
    /// For each entry that is called, the nodes that return from it.
    pub(super) callees: Vec<Vec<usize>>,
    /// For each unknown, its place along the code; those that are the same number have the same.
    pub(super) places: Vec<usize>,
    pub(super) n_places: usize,
}

impl Node {
    /// Samples in it.
    pub(super) fn hits(&self) -> f64 {
        self.samples.iter().sum()
    }

    /// Its instructions.
    pub(super) fn length(&self) -> f64 {
        self.kinds.len() as f64
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use hbbp_code::locate::TextIdx;

    /// Blocks one after the other, by the kinds of their instructions, how each ends and where it leads.
    pub(crate) fn code(blocks: &[(&[usize], Flow, Option<usize>)]) -> Code {
        let node = |(n, &(kinds, flow, target)): (usize, &(&[usize], Flow, Option<usize>))| Node {
            id: BlockId {
                text: TextIdx(0),
                block: n as u32,
            },
            is_kernel: false,
            kinds: kinds.iter().map(|kind| *kind as u8).collect(),
            samples: vec![0.0; kinds.len()].into(),
            flow,
            is_entry: false,
            target,
            next: (n + 1 < blocks.len()).then_some(n + 1),
        };
        let mut code = Code {
            nodes: blocks.iter().enumerate().map(node).collect(),
            ..Code::default()
        };
        code.connect();
        code
    }
}
