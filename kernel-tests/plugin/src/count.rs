//! The exact counts: sums up what the blocks counted and writes the reference file.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use kernel_tests::reference;

use crate::block::Block;
use crate::cpu::Span;

/// Part of an executed block, by owner: block (as address of its allocation), first instruction, end.
type Part = (u32, usize, u32, u32);

/// Counts that left their blocks.
#[derive(Default)]
pub(crate) struct Accounts {
    whole: HashMap<(u32, usize), (&'static Block, u64)>,
    parts: HashMap<Part, (&'static Block, u64)>,
    names: BTreeMap<u32, String>,
}

impl Accounts {
    /// Moves a block's own count to its owner's account.
    pub(crate) fn flush(&mut self, block: &'static Block) {
        let count = block.count.replace(0);
        if 0 < count {
            self.whole
                .entry((block.owner.get(), identity(block)))
                .or_insert((block, 0))
                .1 += count;
        }
    }

    /// One execution of a part of a block.
    pub(crate) fn part(&mut self, owner: u32, block: &'static Block, first: u32, end: u32) {
        if first < end {
            self.parts
                .entry((owner, identity(block), first, end))
                .or_insert((block, 0))
                .1 += 1;
        }
    }

    /// Remembers the name of a thread group; the last one wins, as after an exec.
    pub(crate) fn name(&mut self, tgid: u32, comm: &[u8]) {
        let comm = comm.split(|byte| *byte == 0).next().unwrap_or_default();
        if self.names.get(&tgid).is_none_or(|known| known.as_bytes() != comm) {
            self.names
                .insert(tgid, String::from_utf8_lossy(comm).into_owned());
        }
    }

    /// Writes everything counted so far and forgets it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(
        &mut self,
        path: &Path,
        blocks: impl Iterator<Item = &'static Block>,
        totals: &Span,
    ) -> std::io::Result<()> {
        for block in blocks {
            self.flush(block);
        }
        let whole = self
            .whole
            .drain()
            .map(|((owner, _), (block, count))| (owner, block, 0, block.n, count));
        let parts = self
            .parts
            .drain()
            .map(|((owner, _, first, end), (block, n))| (owner, block, first, end, n));
        let mut all: Vec<reference::Block> = whole
            .chain(parts)
            .map(|(owner, block, first, end, executions)| run(owner, block, first, end, executions))
            .collect();
        all.sort_by(|a, b| (a.owner, a.start, &a.bytes).cmp(&(b.owner, b.start, &b.bytes)));
        all.dedup_by(|later, kept| {
            let same = (later.owner, later.start, &later.bytes) == (kept.owner, kept.start, &kept.bytes);
            if same {
                kept.executions += later.executions;
            }
            same
        });
        let owners: std::collections::BTreeSet<u32> = all.iter().map(|block| block.owner).collect();
        let processes = self.names.iter().filter(|(tgid, _)| owners.contains(tgid));
        let reference = reference::Reference {
            processes: processes.map(|(tgid, name)| (*tgid, name.clone())).collect(),
            instructions: totals.executed,
            taken: totals.taken,
            blocks: all,
        };
        fs::write(path, reference.to_bytes())
    }
}

fn identity(block: &'static Block) -> usize {
    std::ptr::from_ref(block) as usize
}

fn run(owner: u32, block: &Block, first: u32, end: u32, executions: u64) -> reference::Block {
    let start = block.address(first);
    let from = (start - block.start) as usize;
    let to = (block.address(end) - block.start) as usize;
    reference::Block {
        owner,
        n_instructions: end - first,
        start,
        executions,
        bytes: block.bytes.get(from..to).unwrap_or_default().to_vec(),
    }
}
