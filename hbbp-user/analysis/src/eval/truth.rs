//! The exact counts by instruction: mnemonic, location and executions.

use std::collections::{BTreeMap, HashMap};

use crate::mix::mnemonics;
use hbbp_code::blocks::{Instruction, blocks};
use hbbp_code::locate::{AddressMap, Located, Site, agrees, sites};
use hbbp_model::addr::{ImageAddr, Ring, Va};
use hbbp_model::snapshot::{Module, ModuleIdx, ModuleKind, ProcessIdx, Snapshot, Text};
use hbbp_reference::{Block, KERNEL, Reference};

use super::amounts::amount;
use super::exact::AddressCounts;

/// An instruction of the reference.
pub(super) struct Ran {
    pub(super) ring: Ring,
    /// Its location, if the profile has a mapping there.
    pub(super) site: Option<Site>,
    pub(super) mnemonic: String,
    /// Itself, where its code is known.
    pub(super) instruction: Option<Instruction>,
    pub(super) executions: f64,
}

/// All instructions of all blocks; an instruction in several blocks occurs several times.
pub(super) fn ran(snapshot: &Snapshot, reference: &Reference) -> Vec<Ran> {
    let text = texts(reference);
    let map = blocks(&text, &Located::default());
    let mnemonics = mnemonics(&map);
    let sites = block_sites(snapshot, reference);
    let mut all = Vec::new();
    for ((block, text), site) in reference.blocks.iter().zip(&map.texts).zip(sites) {
        for instruction in text.all_instructions() {
            let addr = |site: Site| site.addr.checked_add(instruction.offset.into());
            let site = site.and_then(|site| {
                Some(Site {
                    addr: addr(site)?,
                    ..site
                })
            });
            let mnemonic = mnemonics.get(usize::from(instruction.form.0));
            all.push(Ran {
                ring: Va(block.start).ring(),
                site,
                mnemonic: mnemonic.cloned().unwrap_or_default(),
                instruction: Some(*instruction),
                executions: amount(block.executions),
            });
        }
    }
    all
}

/// All instructions that are listed by address; their mnemonics are those of the profile's text.
pub(super) fn listed<'a>(
    snapshot: &'a Snapshot,
    counts: &'a AddressCounts,
) -> impl Iterator<Item = Ran> + 'a {
    counts.modules.iter().flat_map(|(name, counts)| {
        let module = module(snapshot, name);
        counts.iter().map(move |(address, executions)| Ran {
            ring: Ring::User,
            site: module.map(|module| Site {
                module,
                addr: ImageAddr(*address),
            }),
            mnemonic: String::new(),
            instruction: None,
            executions: amount(*executions),
        })
    })
}

/// The module of a path, or of a file name that only one module has; without a name, the one of user code that was seen most.
pub(super) fn module(snapshot: &Snapshot, name: &str) -> Option<ModuleIdx> {
    if name.is_empty() {
        return most_seen(snapshot);
    }
    let numbered = || snapshot.modules.iter().zip((0..).map(ModuleIdx));
    let exact = numbered().find(|(module, _)| module.name == name);
    if let Some((_, idx)) = exact {
        return Some(idx);
    }
    let file = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let mut alike = numbered().filter(|(module, _)| file(&module.name) == file(name));
    let (_, first) = alike.next()?;
    alike.next().is_none().then_some(first)
}

/// By samples and streams.
fn most_seen(snapshot: &Snapshot) -> Option<ModuleIdx> {
    let mut addresses = AddressMap::new(snapshot);
    let mut seen: BTreeMap<ModuleIdx, u64> = BTreeMap::new();
    for (interval, n) in snapshot.intervals.iter().zip(0..) {
        addresses.set_interval(n);
        let ips = interval
            .ips
            .iter()
            .map(|count| (count.process, count.ip, count.hits));
        let streams = interval
            .streams
            .iter()
            .map(|count| (count.process, count.start, count.hits));
        for (process, at, hits) in ips.chain(streams).filter(|(_, at, _)| at.ring() == Ring::User) {
            if let Some((module, _)) = addresses.module_at(process, at) {
                *seen.entry(module).or_default() += hits;
            }
        }
    }
    seen.into_iter()
        .max_by_key(|(_, hits)| *hits)
        .map(|(module, _)| module)
}

/// The code of the reference as a snapshot, one text for each block, so that the usual decoder applies.
fn texts(reference: &Reference) -> Snapshot {
    let module = Module {
        name: String::new(),
        kind: ModuleKind::Kernel,
        build_id: Vec::new(),
        symbols: Vec::new(),
    };
    let text = |block: &Block| Text {
        module: ModuleIdx(0),
        start: ImageAddr(block.start),
        bytes: block.bytes.clone(),
        since: 0,
    };
    Snapshot {
        modules: vec![module],
        text: reference.blocks.iter().map(text).collect(),
        ..Snapshot::default()
    }
}

/// Location of each block. If a process executed several programs, the one with the same bytes applies.
fn block_sites(snapshot: &Snapshot, reference: &Reference) -> Vec<Option<Site>> {
    let mut of_owner: HashMap<u32, Vec<usize>> = HashMap::new();
    for (n, block) in reference.blocks.iter().enumerate() {
        of_owner.entry(block.owner).or_default().push(n);
    }
    let mut found: Vec<Option<Site>> = vec![None; reference.blocks.len()];
    for (owner, members) in of_owner {
        let blocks: Vec<&Block> = members.iter().filter_map(|n| reference.blocks.get(*n)).collect();
        let addresses: Vec<Va> = blocks.iter().map(|block| Va(block.start)).collect();
        let mut sure = vec![false; blocks.len()];
        for process in images(snapshot, owner) {
            let candidates = sites(snapshot, process, &addresses);
            for (((n, block), site), sure) in members.iter().zip(&blocks).zip(candidates).zip(&mut sure) {
                let Some(site) = site.filter(|_| !*sure) else {
                    continue;
                };
                *sure = agrees(snapshot, site, &block.bytes);
                if let Some(slot) = found.get_mut(*n).filter(|slot| *sure || slot.is_none()) {
                    *slot = Some(site);
                }
            }
        }
    }
    found
}

/// The process images of an owner.
fn images(snapshot: &Snapshot, owner: u32) -> Vec<ProcessIdx> {
    if owner == KERNEL {
        return vec![ProcessIdx::KERNEL];
    }
    let numbered = snapshot.processes.iter().zip((0u32..).map(ProcessIdx)).skip(1);
    let of_owner = numbered.filter(|(process, _)| process.tgid == owner);
    of_owner.map(|(_, idx)| idx).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::{Interval, Mapping, Process};

    #[test]
    fn truth_picks_the_process_image_with_the_same_bytes() {
        let image = |module| Process {
            tgid: 7,
            mappings: vec![Mapping {
                start: Va(0x1000),
                end: Va(0x2000),
                module: ModuleIdx(module),
                image_start: ImageAddr(0x1000),
                from: 0,
            }],
            ..Process::default()
        };
        let text = |module, bytes: &[u8]| Text {
            module: ModuleIdx(module),
            start: ImageAddr(0x1000),
            bytes: bytes.to_vec(),
            since: 0,
        };
        // dec ecx; jne -4
        let code = vec![0xff, 0xc9, 0x75, 0xfc];
        let snapshot = Snapshot {
            processes: vec![Process::default(), image(0), image(1)],
            text: vec![text(0, &[0x90; 4]), text(1, &code)],
            intervals: vec![Interval::default()],
            ..Snapshot::default()
        };
        let block = |owner, start| Block {
            owner,
            n_instructions: 2,
            start,
            executions: 5,
            bytes: code.clone(),
        };
        let reference = Reference {
            blocks: vec![block(7, 0x1000), block(9, 0x1000)],
            ..Reference::default()
        };
        let ran = ran(&snapshot, &reference);
        let found: Vec<_> = ran
            .iter()
            .map(|ran| {
                (
                    ran.mnemonic.as_str(),
                    ran.site.map(|s| (s.module.0, s.addr.0)),
                    ran.executions,
                )
            })
            .collect();
        let expected = [
            ("DEC", Some((1, 0x1000)), 5.0),
            ("JNE", Some((1, 0x1002)), 5.0),
            ("DEC", None, 5.0),
            ("JNE", None, 5.0),
        ];
        assert_eq!(found, expected);
    }
}
