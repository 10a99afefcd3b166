//! All text of a snapshot, decoded and split into blocks.

use std::sync::{Arc, OnceLock};

use super::flow::Flow;
use super::form::Forms;
use super::leaders::{
    Held, at_or_after, observed, offset, offsets, starts_in, symbol_starts, targets_in_overlaps,
};
use super::map::{BlockMap, TextBlocks};
use super::split;
use super::sweep::{Sweep, sweep};
use crate::locate::{Located, Location, TextIdx};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{ModuleIdx, Snapshot, Text};

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
pub(super) fn split_texts(
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

#[cfg(test)]
mod tests {
    use super::super::map::BlockId;
    use super::*;
    use crate::locate::{LocatedIp, Unresolved};
    use hbbp_model::addr::ImageAddr;
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
