//! The flow graph of one function: its executed blocks, the control flow between them, and its entries.
//!
//! Where branch stacks were recorded, the nodes are the executed blocks, and the edges are the recorded ones. Direct
//! branches and fall-throughs between two executed blocks are edges too, as they may be too rare to be recorded.
//! Samples alone do not show which blocks were never executed: then all blocks of the function are nodes, and edges
//! come from the code alone. Blocks that neither the start nor a sampled block leads to, such as the targets of jump
//! tables, have none.
//!
//! A call leads to the instruction after it, as often as streams begin there; what the callee does is not part of the
//! graph. A recursive call is an entry of the function like any other, so recursion makes no loop. Interrupts return to
//! the interrupted instruction and are not edges either.
//!
//! Control comes in where the function starts. It may have done so too rarely to be seen, and a part of a function may be
//! entered from elsewhere: blocks that nothing known leads to have control come in as well, [`Function::graph`].

use std::ops::Range;

use super::edges::Edges;
use super::graph::Digraph;
use hbbp_code::blocks::{BlockId, BlockMap, Flow, TextBlocks, direct_target};
use hbbp_code::locate::TextIdx;
use hbbp_estimate::{BlockCount, Flows, Passed, TakenBranch};
use hbbp_model::snapshot::{Module, Snapshot};

/// The flow graph of a function.
pub(super) struct Function<'a> {
    /// Its text.
    pub(super) text: TextIdx,
    /// The block of each node in that text, rising.
    pub(super) nodes: Vec<u32>,
    /// By the nodes at both ends; of edges that are only known from the code, nothing.
    pub(super) edges: Edges,
    /// Those of [`Self::edges`] while they are found.
    found: Vec<((usize, usize), Passed)>,
    /// What came in at each node from outside.
    pub(super) entries: Vec<Passed>,
    /// Nodes with a branch or fall-through to them in the code, from blocks that are no nodes.
    led_to: Vec<bool>,
    blocks: &'a TextBlocks,
    /// All its blocks.
    range: Range<u32>,
    /// All its instructions.
    instructions: Range<u32>,
    /// Nodes that were seen to run.
    ran: Vec<bool>,
}

/// Which blocks of a function are nodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Nodes {
    /// Those that were seen to run.
    Ran,
    /// All: what was not seen may have run as well.
    All,
}

/// Where a function is: its blocks in a text.
pub(super) fn range_at(module: &Module, blocks: &TextBlocks, block: u32) -> Range<u32> {
    let start_of = |block: u32| {
        blocks
            .instruction(blocks.block(block).start)
            .map(|it| blocks.addr(it))
    };
    let Some(addr) = start_of(block) else {
        return block..block.saturating_add(1);
    };
    let after = module.symbols.partition_point(|symbol| symbol.start <= addr);
    let next = module.symbols.get(after).map(|symbol| symbol.start);
    let last = after.checked_sub(1).and_then(|last| module.symbols.get(last));
    let (start, end) = match (module.symbol_at(addr), last) {
        (Some(symbol), _) if symbol.len == 0 => (Some(symbol.start), next),
        (Some(symbol), _) => {
            let end = symbol.start.checked_add(symbol.len);
            (Some(symbol.start), end.min(next).or(end).or(next))
        }
        // Between two symbols.
        (None, last) => (last.and_then(|last| last.start.checked_add(last.len)), next),
    };
    let n_blocks = u32::try_from(blocks.n_blocks()).unwrap_or(u32::MAX);
    let first_from = |addr| {
        let (mut low, mut high) = (0, n_blocks);
        while low < high {
            let middle = low + (high - low) / 2;
            if start_of(middle).is_some_and(|start| start < addr) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    };
    let from = start.map_or(0, first_from).min(block);
    let to = end.map_or(n_blocks, first_from).max(block.saturating_add(1));
    from..to
}

impl<'a> Function<'a> {
    /// The graph of a range of blocks. `ran` lists the executed ones, sorted.
    pub(super) fn new(
        snapshot: &Snapshot,
        map: &'a BlockMap,
        flows: &Flows<'_>,
        text: TextIdx,
        range: Range<u32>,
        nodes: Nodes,
        ran: &[BlockCount],
    ) -> Option<Self> {
        let blocks = map.text(text)?;
        let seen: Vec<u32> = ran.iter().map(|count| count.block.block).collect();
        let nodes: Vec<u32> = match nodes {
            Nodes::Ran => seen.clone(),
            Nodes::All => range.clone().collect(),
        };
        let instructions = blocks.block(range.start).start..blocks.block(range.end.checked_sub(1)?).end;
        let mut function = Self {
            text,
            edges: Edges::default(),
            found: Vec::new(),
            entries: vec![Passed::default(); nodes.len()],
            led_to: vec![false; nodes.len()],
            ran: nodes
                .iter()
                .map(|node| seen.binary_search(node).is_ok())
                .collect(),
            nodes,
            blocks,
            range,
            instructions,
        };
        function.add_code(snapshot, map);
        function.add_flows(map, flows);
        function.edges = function.found.drain(..).collect();
        Some(function)
    }

    /// The edges as a graph of numbers, and the nodes that together lead to all others in it: the start of the function; then
    /// what nothing leads to; then what a block leads to that was not seen to run; then what was entered from outside. A block
    /// that was not seen to run is never a root, and what no root leads to has no edges.
    pub(super) fn graph(&self) -> (Digraph, Vec<usize>) {
        let edges: Vec<(usize, usize)> = self.edges.ends().collect();
        let graph = Digraph::new(self.nodes.len(), &edges);
        let mut candidates: Vec<(u8, usize)> = (0..self.nodes.len())
            .filter_map(|node| Some((self.rank(&graph, node)?, node)))
            .collect();
        candidates.sort_unstable();
        let (mut roots, mut open) = (Vec::new(), Vec::new());
        let mut reached = vec![false; self.nodes.len()];
        let is_reached = |reached: &[bool], node: usize| reached.get(node).copied().unwrap_or(false);
        for (_, candidate) in candidates {
            if !is_reached(&reached, candidate) {
                roots.push(candidate);
                open.push(candidate);
            }
            while let Some(node) = open.pop() {
                if let Some(reached) = reached.get_mut(node).filter(|reached| !**reached) {
                    *reached = true;
                    open.extend_from_slice(graph.successors(node));
                }
            }
        }
        let alive: Vec<(usize, usize)> = edges
            .into_iter()
            .filter(|(from, _)| is_reached(&reached, *from))
            .collect();
        (Digraph::new(self.nodes.len(), &alive), roots)
    }

    /// How soon a node is taken for a root; `None` if it is none.
    fn rank(&self, graph: &Digraph, node: usize) -> Option<u8> {
        let is = |all: &[bool]| all.get(node).copied().unwrap_or(false);
        let entered = self.entries.get(node).is_some_and(|entry| 0.0 < entry.hits);
        match () {
            () if self.nodes.get(node) == Some(&self.range.start) => Some(0),
            () if !is(&self.ran) => None,
            () if graph.predecessors(node).is_empty() => Some(1),
            () if is(&self.led_to) => Some(2),
            () if entered => Some(3),
            () => Some(4),
        }
    }

    /// Its first block, whether or not that is a node.
    pub(super) const fn start(&self) -> u32 {
        self.range.start
    }

    /// The blocks of its text.
    pub(super) const fn blocks(&self) -> &'a TextBlocks {
        self.blocks
    }

    fn node(&self, block: u32) -> Option<usize> {
        self.nodes.binary_search(&block).ok()
    }

    fn add_edge(&mut self, from: u32, to: u32, passed: Passed) {
        if let (Some(from), Some(to)) = (self.node(from), self.node(to)) {
            self.found.push(((from, to), passed));
        }
    }

    fn enter(&mut self, block: u32, passed: Passed) {
        let node = self.node(block);
        if let Some(entry) = node.and_then(|node| self.entries.get_mut(node)) {
            entry.add(passed);
        }
    }

    /// Adds the edges that the code has.
    fn add_code(&mut self, snapshot: &Snapshot, map: &BlockMap) {
        let bytes = snapshot
            .text
            .get(self.text.0 as usize)
            .map(|text| text.bytes.as_slice());
        let module = snapshot.modules.get(self.blocks.module.0 as usize);
        let bits = module.map_or(64, |module| module.kind.bits());
        for block in self.range.clone() {
            let id = BlockId {
                text: self.text,
                block,
            };
            let Some(last) = map.instructions(id).last() else {
                continue;
            };
            let jumps = matches!(last.flow, Flow::Jump | Flow::Conditional);
            let target = jumps.then(|| {
                let at = last.offset as usize;
                let bytes = bytes?.get(at..at + usize::from(last.len))?;
                let target = direct_target(bits, bytes, self.blocks.addr(*last))?;
                let instruction = self.blocks.find(target).ok()?;
                self.instructions
                    .contains(&instruction)
                    .then(|| self.blocks.block_of(instruction))
            });
            let next = block.saturating_add(1);
            let falls = self
                .falls_through(block)
                .then_some(next)
                .filter(|next| self.range.contains(next));
            for to in target.flatten().into_iter().chain(falls) {
                self.add_edge(block, to, Passed::default());
                if self.node(block).is_none()
                    && let Some(led_to) = self.node(to).and_then(|node| self.led_to.get_mut(node))
                {
                    *led_to = true;
                }
            }
        }
    }

    /// Whether control can come from a block to the next one, for calls through the callee.
    fn falls_through(&self, block: u32) -> bool {
        match self.last_flow(block) {
            Some(Flow::Call | Flow::IndirectCall) => true,
            Some(flow) => !flow.stops_stream(),
            None => false,
        }
    }

    /// What the last instruction of a block does.
    fn last_flow(&self, block: u32) -> Option<Flow> {
        let last = self.blocks.block(block).end.checked_sub(1)?;
        self.blocks.instruction(last).map(|it| it.flow)
    }

    /// Adds what was recorded.
    fn add_flows(&mut self, map: &BlockMap, flows: &Flows<'_>) {
        if let Some(before) = self.range.start.checked_sub(1) {
            self.enter(self.range.start, flows.crossing(self.text, before));
        }
        for block in self.nodes.clone() {
            let next = block.saturating_add(1);
            let crossing = flows.crossing(self.text, block);
            if 0.0 < crossing.hits && self.range.contains(&next) {
                self.add_edge(block, next, crossing);
            }
        }
        for branch in flows.branches_to(self.text, &self.instructions) {
            self.add_branch(map, flows, branch);
        }
        let unexplained: Vec<(u32, Passed)> = flows.unexplained_at(self.text, &self.instructions).collect();
        for (instruction, passed) in unexplained {
            let Some(block) = self.starting_at(instruction) else {
                continue;
            };
            match self.call_before(block) {
                Some(call) => self.add_edge(call, block, passed),
                None if block == self.range.start => self.enter(block, passed),
                // An interrupt came back.
                None => {}
            }
        }
    }

    fn add_branch(&mut self, map: &BlockMap, flows: &Flows<'_>, branch: &TakenBranch) {
        let passed = flows.taken(branch);
        let (text, source) = branch.from;
        let flow = map
            .text(text)
            .and_then(|text| text.instruction(source))
            .map(|it| it.flow);
        let is_inside = text == self.text && self.instructions.contains(&source);
        let Some(block) = self.starting_at(branch.to.1) else {
            return;
        };
        let from = self.blocks.block_of(source);
        match flow {
            Some(Flow::Jump | Flow::IndirectJump | Flow::Conditional | Flow::CallNext) if is_inside => {
                self.add_edge(from, block, passed);
            }
            Some(Flow::Jump | Flow::IndirectJump | Flow::Conditional) => self.enter(block, passed),
            Some(Flow::Call | Flow::IndirectCall) => self.enter(block, passed),
            // A return: to a call, or, with an address that was pushed, anywhere.
            _ => match self.call_before(block) {
                Some(call) => self.add_edge(call, block, passed),
                None if flow == Some(Flow::Return) && is_inside => self.add_edge(from, block, passed),
                None if flow == Some(Flow::Return) || block == self.range.start => self.enter(block, passed),
                None => {}
            },
        }
    }

    /// The block that starts with an instruction.
    fn starting_at(&self, instruction: u32) -> Option<u32> {
        let block = self.blocks.block_of(instruction);
        (self.blocks.block(block).start == instruction).then_some(block)
    }

    /// The block before this one, if it ends with a call of a function or of the system.
    fn call_before(&self, block: u32) -> Option<u32> {
        let before = block
            .checked_sub(1)
            .filter(|before| self.range.contains(before))?;
        let calls = matches!(
            self.last_flow(before)?,
            Flow::Call | Flow::IndirectCall | Flow::CallNext | Flow::SystemCall
        );
        calls.then_some(before)
    }
}
