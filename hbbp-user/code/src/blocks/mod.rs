//! Basic blocks of the text that ran: paper section III.A, "the enclosing basic block".
//!
//! A block has one entry at its first instruction and one exit at its last.
//! A REP-prefixed string instruction is one instruction, whatever its count.
//! The map is built once and read by binary search; addresses go in, indices of instructions and blocks come out.

mod classes;
mod decode;
mod decoded;
mod form;
mod layout;
mod leaders;
mod near;
mod split;
mod sweep;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::locate::{Located, Location, TextIdx, Unresolved};
pub use classes::{MemoryAccess, memory_access};
pub use decode::{Flow, Instruction, direct_target};
pub use decoded::DecodedText;
use form::Forms;
pub use form::{Form, FormIdx};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{ModuleIdx, Snapshot, Text};
use leaders::{Held, at_or_after, observed, offset, offsets, starts_in, symbol_starts, targets_in_overlaps};
use near::Near;
use sweep::{Sweep, sweep};

/// The blocks of all text of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct BlockMap {
    /// One entry for each [`Text`] of the snapshot, in its order.
    pub texts: Box<[TextBlocks]>,
    /// The instruction forms that occur.
    pub forms: Box<[Form]>,
}

/// The blocks of one text range.
#[derive(Clone, Debug)]
pub struct TextBlocks {
    /// The module of the text.
    pub module: ModuleIdx,
    /// Address of its first byte.
    pub start: ImageAddr,
    /// Its instructions.
    sweep: Arc<Sweep>,
    /// Indices of the first instruction of each block; sorted.
    firsts: Box<[u32]>,
    /// Indices of the instructions that no stream can run past; sorted. Computed lazily.
    stops: OnceLock<Box<[u32]>>,
    /// Where to search `firsts`. Computed lazily.
    near: OnceLock<Near>,
}

/// A block of the map.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BlockId {
    /// The text range.
    pub text: TextIdx,
    /// Index in that text, by rising address.
    pub block: u32,
}

/// Decodes all text and splits it into blocks.
pub fn blocks(snapshot: &Snapshot, located: &Located) -> BlockMap {
    let mut forms = Forms::default();
    let texts = split_texts(snapshot, located, |text, bits, known| {
        Arc::new(sweep(&text.bytes, bits, text.start, known, &mut forms))
    });
    BlockMap {
        texts,
        forms: forms.all().into(),
    }
}

/// Splits all text into blocks; `decode` gets each text, its bits, and the offsets that are known to start an instruction.
fn split_texts(
    snapshot: &Snapshot,
    located: &Located,
    mut decode: impl FnMut(&Text, u32, &[u32]) -> Arc<Sweep>,
) -> Box<[TextBlocks]> {
    let symbols = symbol_starts(&snapshot.modules);
    let starts_in = |text| starts_in(&symbols, text);
    let mut targets: Vec<(ModuleIdx, ImageAddr)> = Vec::new();
    let observed = observed(located);
    let held = Held::new(&snapshot.text);
    let mut texts: Vec<TextBlocks> = Vec::with_capacity(snapshot.text.len());
    for (text, n) in snapshot.text.iter().zip(0u32..) {
        let mut known: Vec<u32> = starts_in(text).collect();
        known.extend(offsets(&observed, text, TextIdx(n)));
        known.sort_unstable();
        known.dedup();
        let bits = snapshot
            .modules
            .get(text.module.0 as usize)
            .map_or(64, |m| m.kind.bits());
        let sweep = decode(text, bits, &known);
        targets.extend(held.targets(text.module, &sweep.outside));
        texts.push(TextBlocks {
            module: text.module,
            start: text.start,
            sweep,
            firsts: Box::default(),
            stops: OnceLock::new(),
            near: OnceLock::new(),
        });
    }
    targets.extend(targets_in_overlaps(&snapshot.text, &texts));
    targets.sort_unstable();
    targets.dedup();

    let targets_seen = split::observed_targets(located, |location| flow_at(&texts, location));
    for ((blocks, text), n) in texts.iter_mut().zip(&snapshot.text).zip(0u32..) {
        let targets = at_or_after(&targets, (text.module, text.start));
        let targets = targets.iter().map_while(|(module, target)| {
            if *module == text.module {
                offset(text, *target)
            } else {
                None
            }
        });
        let targets_seen = offsets(&targets_seen, text, TextIdx(n));
        let leaders = starts_in(text).chain(targets).chain(targets_seen);
        let sweep = &blocks.sweep;
        blocks.firsts = split::with_leaders(&sweep.firsts, &sweep.instructions, leaders);
    }
    texts.into()
}

fn flow_at(texts: &[TextBlocks], location: Location) -> Option<Flow> {
    let text = texts.get(location.text.0 as usize)?;
    let found = text.find(location.addr).ok()?;
    text.instruction(found).map(|i| i.flow)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locate::LocatedIp;
    use hbbp_model::snapshot::{EventIdx, Module, ModuleKind, ProcessIdx, Symbol};

    /// Two functions of one module in two texts; the first calls into the middle of the second.
    fn snapshot() -> Snapshot {
        let symbol = |start| Symbol {
            start: ImageAddr(start),
            len: 0,
            name: String::new(),
        };
        let module = Module {
            name: "a".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: vec![symbol(0x1000), symbol(0x2000), symbol(0x2004)],
        };
        let text = |start, bytes: &[u8]| Text {
            module: ModuleIdx(0),
            start: ImageAddr(start),
            bytes: bytes.to_vec(),
            since: 0,
        };
        // 1000: push rbp; call 2002; pop rbp; ret         2000: nop; nop; nop; ret; nop; ret
        let calls = text(0x1000, &[0x55, 0xe8, 0xfc, 0x0f, 0, 0, 0x5d, 0xc3]);
        let called = text(0x2000, &[0x90, 0x90, 0x90, 0xc3, 0x90, 0xc3]);
        Snapshot {
            modules: vec![module],
            text: vec![calls, called],
            ..Snapshot::default()
        }
    }

    #[test]
    fn leaders_include_symbols_and_targets_from_other_text() {
        let map = blocks(&snapshot(), &Located::default());
        let lens = |t: &TextBlocks| {
            (0u32..9)
                .map(|b| t.block(b).len())
                .filter(|n| *n != 0)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            map.texts.iter().map(lens).collect::<Vec<_>>(),
            [vec![2, 2], vec![2, 2, 2]]
        );
        let called = map.text(TextIdx(1)).unwrap();
        assert_eq!(called.find(ImageAddr(0x2003)).map(|i| called.block_of(i)), Ok(1));
        assert_eq!([0, 3, 4].map(|from| called.next_stop(from)), [3, 3, 5]);
        assert_eq!(
            map.instructions(BlockId {
                text: TextIdx(1),
                block: 1
            })
            .len(),
            2
        );
    }

    #[test]
    fn find_distinguishes_undecodable_from_mid_instruction() {
        let mut snapshot = snapshot();
        let at = |addr| LocatedIp {
            location: Location {
                text: TextIdx(0),
                addr: ImageAddr(addr),
            },
            event: EventIdx(0),
            process: ProcessIdx(0),
            hits: 1,
            weight: 1,
        };
        snapshot.text[0].bytes[0] = 0x06; // PUSH ES is invalid in 64-bit code.
        let map = blocks(
            &snapshot,
            &Located {
                ips: vec![at(0x1001)],
                ..Located::default()
            },
        );
        let text = map.text(TextIdx(0)).unwrap();
        assert_eq!(text.find(ImageAddr(0x1000)), Err(Unresolved::Undecodable));
        assert_eq!(text.find(ImageAddr(0x1001)), Ok(1));
        assert_eq!(text.find(ImageAddr(0x1002)), Err(Unresolved::NotOnInstruction));
        let ending = [0x1000, 0x1004, 0x1005].map(|at| text.ending_at(ImageAddr(at)));
        assert_eq!(ending, [None, None, Some(1)]);
    }
}
