//! A part of a function, and what it executed.

use crate::mix::function as function_at;
use crate::time::cpi;
use hbbp_code::blocks::{BlockMap, TextBlocks};
use hbbp_code::locate::TextIdx;
use hbbp_estimate::{BlockCount, Figure};
use hbbp_model::addr::{ImageAddr, Ring};
use hbbp_model::snapshot::{ModuleIdx, Snapshot};

/// Part of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// Its module.
    pub module: ModuleIdx,
    /// Its ring.
    pub ring: Ring,
    /// The function: the name of its symbol, or of its module and address.
    pub function: String,
    /// Its text.
    pub text: TextIdx,
    /// Its blocks in that text, rising.
    pub blocks: Vec<u32>,
    /// What these executed, without what they called, in the unit of the estimate.
    pub amount: Figure,
    /// The time spent in them; `None` if it was not sampled.
    pub time: Option<Figure>,
    /// What passed in them and in what they called; `None` if no call chains were sampled.
    pub inclusive: Option<Inclusive>,
    /// Their source lines as `file:first-last`, once [`super::Loops::locate`] has looked up locations.
    pub lines: Option<String>,
}

/// What passed in code and in what it called, by call chains; what called itself counts once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inclusive {
    /// The time of the samples.
    pub time: Figure,
    /// Executed instructions, in the unit of the estimate; `None` if that does not count executions.
    pub instructions: Option<Figure>,
    /// Time for each of these; `None` as for [`Region::cpi`], or where call chains have another unit of time than the rest.
    pub cpi: Option<Figure>,
}

impl Region {
    /// These blocks of a function, which begins with the block `start`, their figures still to be filled in; `ran` are the
    /// blocks of the function that did.
    pub(super) fn new(
        snapshot: &Snapshot,
        text: TextIdx,
        of: &TextBlocks,
        start: u32,
        blocks: Vec<u32>,
        ran: &[BlockCount],
    ) -> Option<Self> {
        let first = of.addr(of.instruction(of.block(start).start)?);
        let module = snapshot.modules.get(of.module.0 as usize)?;
        let named = || format!("{}+{first}", module.name);
        Some(Self {
            module: of.module,
            ring: match ran.first() {
                Some(block) => block.ring,
                None if module.kind.is_kernel() => Ring::Kernel,
                None => Ring::User,
            },
            function: function_at(module, first).unwrap_or_else(named),
            text,
            blocks,
            amount: Figure::default(),
            time: None,
            inclusive: None,
            lines: None,
        })
    }

    /// What it is sorted by.
    pub(super) fn weight(&self) -> f64 {
        let inclusive = self.inclusive.map(|inclusive| inclusive.time);
        inclusive.or(self.time).unwrap_or(self.amount).value
    }

    /// Time for each instruction; `None` if executions are too few to divide by, or time was not sampled.
    pub fn cpi(&self) -> Option<Figure> {
        cpi(self.time?, self.amount)
    }

    /// The instructions of its blocks, by module and address.
    pub fn instructions(&self, map: &BlockMap) -> impl Iterator<Item = (ModuleIdx, ImageAddr)> {
        let text = map.text(self.text).into_iter();
        text.flat_map(|text| {
            let instructions = self
                .blocks
                .iter()
                .flat_map(|block| text.instructions(text.block(*block)));
            instructions.map(|it| (text.module, text.addr(*it)))
        })
    }
}
