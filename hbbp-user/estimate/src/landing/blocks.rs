//! The blocks of the text around samples, as nodes of the graph, and where their branches lead.

use std::collections::{HashMap, HashSet};

use super::code::{Code, Node};
use crate::kinds_of_forms::kinds_of_forms;
use crate::sources::ebs::Hits;
use hbbp_code::blocks::{BlockId, BlockMap, Flow, TextBlocks, direct_target};
use hbbp_code::locate::TextIdx;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Module, ModuleIdx, Snapshot, Text};

/// A call that leads this few bytes ahead is part of a retpoline, and its return address is never returned to
/// (arch/x86/lib/retpoline.S, Linux v6.12).
const RETPOLINE: u64 = 32;

impl Code {
    /// The graph of all text that has one of these samples.
    pub(super) fn new(snapshot: &Snapshot, map: &BlockMap, hits: &Hits) -> Self {
        let kinds = kinds_of_forms(&map.forms);
        let sampled: HashSet<TextIdx> = hits.keys().map(|(text, _)| *text).collect();
        let mut code = Self::default();
        let mut starts: HashMap<(ModuleIdx, ImageAddr), usize> = HashMap::new();
        let mut branches = Vec::new();
        for ((blocks, text), idx) in map.texts.iter().zip(&snapshot.text).zip((0..).map(TextIdx)) {
            if !sampled.contains(&idx) {
                continue;
            }
            let module = snapshot.modules.get(text.module.0 as usize);
            let mut above: Option<usize> = None;
            for id in (0..)
                .take(blocks.n_blocks())
                .map(|block| BlockId { text: idx, block })
            {
                let found = node(module, blocks, id, &kinds, hits);
                let n = code.nodes.len();
                if let Some(above) = above.and_then(|above| code.nodes.get_mut(above)) {
                    above.next = found.as_ref().map(|_| n);
                }
                above = found.as_ref().map(|_| n);
                let Some((mut node, start)) = found else { continue };
                starts.entry((text.module, start)).or_insert(n);
                if let Some((target, is_retpoline)) = target(module, blocks, text, id) {
                    if is_retpoline && node.flow == Flow::Call {
                        node.flow = Flow::Jump;
                    }
                    branches.push((n, (text.module, target)));
                }
                code.nodes.push(node);
            }
        }
        for (from, to) in branches {
            let target = starts.get(&to).copied();
            let Some(node) = code.nodes.get_mut(from) else {
                continue;
            };
            node.target = target;
            let is_call = node.flow == Flow::Call;
            if let Some(target) = target.and_then(|target| code.nodes.get_mut(target)) {
                target.is_entry |= is_call;
            }
        }
        code.connect();
        code
    }
}

/// A block without its ways, and its address; `None` if its bytes are no code.
fn node(
    module: Option<&Module>,
    text: &TextBlocks,
    id: BlockId,
    kinds: &[u8],
    hits: &Hits,
) -> Option<(Node, ImageAddr)> {
    let range = text.block(id.block);
    let instructions = text.instructions(range.clone());
    let start = text.addr(*instructions.first()?);
    let flow = instructions.last()?.flow;
    let kind = |form| kinds.get(usize::from(form)).copied().unwrap_or_default();
    let symbols = module.map(|module| module.symbols.as_slice()).unwrap_or_default();
    let node = Node {
        id,
        is_kernel: module.is_some_and(|module| module.kind.is_kernel()),
        kinds: instructions.iter().map(|i| kind(i.form.0)).collect(),
        samples: range
            .map(|n| hits.get(&(id.text, n)).copied().unwrap_or_default())
            .collect(),
        flow,
        is_entry: symbols
            .binary_search_by_key(&start, |symbol| symbol.start)
            .is_ok(),
        target: None,
        next: None,
    };
    (flow != Flow::Invalid).then_some((node, start))
}

/// The target of the branch at the end of a block, and whether that is the next address, as in a retpoline.
fn target(
    module: Option<&Module>,
    blocks: &TextBlocks,
    text: &Text,
    id: BlockId,
) -> Option<(ImageAddr, bool)> {
    let last = blocks.instructions(blocks.block(id.block)).last()?;
    let start = last.offset as usize;
    let bytes = text.bytes.get(start..start.checked_add(last.len.into())?)?;
    let bits = module.map_or(64, |module| module.kind.bits());
    let addr = blocks.addr(*last);
    let target = direct_target(bits, bytes, addr)?;
    let ahead = target
        .since(addr)
        .and_then(|ahead| ahead.checked_sub(last.len.into()));
    Some((target, ahead.is_some_and(|ahead| 0 < ahead && ahead < RETPOLINE)))
}

#[cfg(test)]
mod tests {
    use super::super::code::Before;
    use super::*;
    use hbbp_code::blocks::blocks;
    use hbbp_code::locate::Located;
    use hbbp_model::kinds::kind;
    use hbbp_model::snapshot::{ModuleKind, Symbol};

    #[test]
    fn ways_are_those_that_the_code_tells() {
        // 1000: call 1040; je 1000; jmp *rax.   1040: call 1046; nop; 1046: test eax, [rdi]; ret
        let mut bytes = vec![0xe8, 0x3b, 0, 0, 0, 0x74, 0xf9, 0xff, 0xe0];
        bytes.resize(0x40, 0xc3);
        bytes.extend([0xe8, 1, 0, 0, 0, 0x90, 0x85, 0x07, 0xc3]);
        let module = Module {
            name: "a".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: vec![Symbol {
                start: ImageAddr(0x1000),
                len: 0,
                name: String::new(),
            }],
        };
        let text = Text {
            module: ModuleIdx(0),
            start: ImageAddr(0x1000),
            bytes,
            since: 0,
        };
        let snapshot = Snapshot {
            modules: vec![module],
            text: vec![text],
            ..Snapshot::default()
        };
        let map = blocks(&snapshot, &Located::default());
        let code = Code::new(&snapshot, &map, &Hits::from([((TextIdx(0), 0), 3.0)]));
        let at = |addr| {
            let text = map.text(TextIdx(0)).unwrap();
            text.block_of(text.find(ImageAddr(addr)).unwrap()) as usize
        };
        let before = |addr| -> Vec<Before> { code.ways[at(addr)].iter().map(|way| way.before).collect() };
        let (call, branch, rop) = (at(0x1000), at(0x1005), at(0x1040));
        assert_eq!(before(0x1000), [Before::Block(branch), Before::Indirect]);
        assert_eq!(before(0x1005), [Before::Returns(0)]);
        assert_eq!(before(0x1007), [Before::Block(branch)]);
        assert_eq!(before(0x1040), [Before::Block(call), Before::Indirect]);
        assert_eq!(before(0x1046), [Before::Block(rop), Before::Block(at(0x1045))]);
        assert_eq!(before(0x1045), [Before::Indirect], "no return from a retpoline");
        assert_eq!(code.callees, [vec![at(0x1046)]]);
        assert_eq!(
            (code.nodes[call].hits(), code.nodes[at(0x1046)].kinds[0]),
            (3.0, kind::LOAD as u8)
        );
    }
}
