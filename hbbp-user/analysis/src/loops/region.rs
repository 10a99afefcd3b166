//! A part of a function, and what it executed.

use crate::time::cpi;
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::TextIdx;
use hbbp_estimate::Figure;
use hbbp_model::addr::{ImageAddr, Ring};
use hbbp_model::snapshot::ModuleIdx;

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
    /// The time that passed in them and in what they called, of what called itself once; `None` if no call chains were
    /// sampled.
    pub inclusive: Option<Figure>,
    /// Their source lines as `file:first-last`, once [`super::Loops::locate`] has looked up locations.
    pub lines: Option<String>,
}

impl Region {
    /// What it is sorted by.
    pub(super) fn weight(&self) -> f64 {
        self.inclusive.or(self.time).unwrap_or(self.amount).value
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
