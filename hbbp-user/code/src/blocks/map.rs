//! The blocks of text, and the instructions in them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::flow::Flow;
use super::form::{Form, Instruction};
use super::near::Near;
use super::sweep::Sweep;
use crate::locate::{TextIdx, Unresolved};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::ModuleIdx;

/// The blocks of all text of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct BlockMap {
    /// One entry for each [`hbbp_model::snapshot::Text`] of the snapshot, in its order.
    pub texts: Box<[TextBlocks]>,
    /// The instruction forms that occur.
    pub forms: Box<[Form]>,
}

impl BlockMap {
    /// The blocks of one text range.
    pub fn text(&self, idx: TextIdx) -> Option<&TextBlocks> {
        self.texts.get(idx.0 as usize)
    }

    /// The instructions of a block; none if it does not exist.
    pub fn instructions(&self, id: BlockId) -> &[Instruction] {
        let text = self.text(id.text);
        text.map_or(&[], |text| text.instructions(text.block(id.block)))
    }
}

/// The blocks of one text range.
#[derive(Clone, Debug)]
pub struct TextBlocks {
    /// The module of the text.
    pub module: ModuleIdx,
    /// Address of its first byte.
    pub start: ImageAddr,
    /// Its instructions.
    pub(super) sweep: Arc<Sweep>,
    /// Indices of the first instruction of each block; sorted.
    pub(super) firsts: Box<[u32]>,
    /// Indices of the instructions that no stream can continue after; sorted. Computed lazily.
    pub(super) stops: OnceLock<Box<[u32]>>,
    /// Where to search `firsts`. Computed lazily.
    pub(super) near: OnceLock<Near>,
}

impl TextBlocks {
    /// Index of the instruction that begins at `addr`.
    pub fn find(&self, addr: ImageAddr) -> Result<u32, Unresolved> {
        let offset = addr
            .since(self.start)
            .and_then(|offset| u32::try_from(offset).ok());
        let offset = offset.ok_or(Unresolved::NotOnInstruction)?;
        let after = self.sweep.up_to(offset);
        let at = after.checked_sub(1).ok_or(Unresolved::NotOnInstruction)?;
        let found = self
            .sweep
            .instructions
            .get(at)
            .ok_or(Unresolved::NotOnInstruction)?;
        if found.flow == Flow::Invalid {
            return Err(Unresolved::Undecodable);
        }
        if found.offset == offset {
            return u32::try_from(at).map_err(|_| Unresolved::NotOnInstruction);
        }
        match self
            .sweep
            .aliases
            .binary_search_by_key(&offset, |(alias, _)| *alias)
        {
            Ok(i) => self
                .sweep
                .aliases
                .get(i)
                .map(|(_, idx)| *idx)
                .ok_or(Unresolved::NotOnInstruction),
            Err(_) => Err(Unresolved::NotOnInstruction),
        }
    }

    /// Index of the instruction whose last byte is at `addr`.
    pub fn ending_at(&self, addr: ImageAddr) -> Option<u32> {
        let offset = u32::try_from(addr.since(self.start)?).ok()?;
        let at = self.sweep.up_to(offset).checked_sub(1)?;
        let found = self.sweep.instructions.get(at)?;
        let ends = found.offset.checked_add(found.len.into())? == offset.checked_add(1)?;
        u32::try_from(at)
            .ok()
            .filter(|_| ends && found.flow != Flow::Invalid)
    }

    /// Index of the block that holds an instruction.
    pub fn block_of(&self, instruction: u32) -> u32 {
        let near = self.near.get_or_init(|| Near::new(self.firsts.iter().copied()));
        let after = near.up_to(&self.firsts, instruction, |first| *first);
        u32::try_from(after.saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The instruction indices of a block; empty if it does not exist.
    pub fn block(&self, block: u32) -> Range<u32> {
        let n = u32::try_from(self.sweep.instructions.len()).unwrap_or(u32::MAX);
        let bound = |i: usize| self.firsts.get(i).copied().unwrap_or(n);
        bound(block as usize)..bound((block as usize).saturating_add(1))
    }

    /// Number of instructions.
    pub fn n_instructions(&self) -> usize {
        self.sweep.instructions.len()
    }

    /// Number of blocks.
    pub fn n_blocks(&self) -> usize {
        self.firsts.len()
    }

    /// The instructions with these indices.
    pub fn instructions(&self, range: Range<u32>) -> &[Instruction] {
        self.sweep
            .instructions
            .get(range.start as usize..range.end as usize)
            .unwrap_or(&[])
    }

    /// All instructions.
    pub fn all_instructions(&self) -> &[Instruction] {
        &self.sweep.instructions
    }

    /// The instruction with this index.
    pub fn instruction(&self, idx: u32) -> Option<Instruction> {
        self.sweep.instructions.get(idx as usize).copied()
    }

    /// Index of the first instruction from `idx` on that no stream can run past; the number of instructions if none.
    pub fn next_stop(&self, idx: u32) -> u32 {
        let stops = self.stops.get_or_init(|| {
            let all = self.sweep.instructions.iter().zip(0u32..);
            all.filter(|(i, _)| i.flow.stops_stream())
                .map(|(_, n)| n)
                .collect()
        });
        let at = stops.partition_point(|stop| *stop < idx);
        let n = u32::try_from(self.sweep.instructions.len()).unwrap_or(u32::MAX);
        stops.get(at).copied().unwrap_or(n)
    }

    /// Address of an instruction in the module.
    pub fn addr(&self, instruction: Instruction) -> ImageAddr {
        ImageAddr(self.start.0.saturating_add(u64::from(instruction.offset)))
    }
}

/// A block of the map.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BlockId {
    /// The text range.
    pub text: TextIdx,
    /// Index in that text, by rising address.
    pub block: u32,
}
