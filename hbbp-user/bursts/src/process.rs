//! The memory of a live process that its bursts do not bring: text, and data that it cannot write.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use hbbp_model::addr::Va;
use hbbp_resolve::user::page_map::PageMap;
use procfs::process::{MMPermissions, Process};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// How old the list of mappings may be, in ns.
const OLDEST_LIST: u64 = 1_000_000_000;

/// What a page may be used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Use {
    /// Code.
    Text,
    /// Data that the process may write: what it was is only in what was read with the sample.
    Writable,
    /// Data that it cannot write.
    Constant,
}

/// A mapping.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    start: u64,
    end: u64,
    is_used_for: Use,
}

/// A process, with its mappings at one time.
#[derive(Debug)]
pub(crate) struct LiveProcess {
    memory: File,
    pages: PageMap,
    mappings: Vec<Mapping>,
    listed: u64,
    tgid: u32,
}

impl LiveProcess {
    /// Opens the memory of a process at a time in ns; `None` if it is gone, or may not be read.
    pub(crate) fn open(tgid: u32, time: u64) -> Option<Self> {
        let process = Process::new(i32::try_from(tgid).ok()?).ok()?;
        Some(Self {
            memory: process.mem().ok()?,
            pages: PageMap::open(tgid)?,
            mappings: mappings(&process)?,
            listed: time,
            tgid,
        })
    }

    /// Lists the mappings again, if that was long ago; `false` if the process is gone.
    pub(crate) fn refresh(&mut self, time: u64) -> bool {
        if time < self.listed.saturating_add(OLDEST_LIST) {
            return true;
        }
        let process = i32::try_from(self.tgid)
            .ok()
            .and_then(|pid| Process::new(pid).ok());
        let Some(mappings) = process.as_ref().and_then(mappings) else {
            return false;
        };
        self.mappings = mappings;
        self.listed = time;
        true
    }

    /// What an address may be used for; `None` where nothing is mapped that can be read.
    pub(crate) fn use_of(&self, address: u64) -> Option<Use> {
        let behind = self.mappings.partition_point(|mapping| mapping.start <= address);
        let mapping = self.mappings.get(behind.checked_sub(1)?)?;
        (address < mapping.end).then_some(mapping.is_used_for)
    }

    /// Reads a page, if it is in memory: the process would get it by this otherwise, which a measurement shall not do.
    pub(crate) fn read(&self, page: u64) -> Option<[u8; PAGE as usize]> {
        if !self.pages.is_present(Va(page)) {
            return None;
        }
        let mut bytes = [0; PAGE as usize];
        self.memory.read_exact_at(&mut bytes, page).ok()?;
        Some(bytes)
    }
}

/// The mappings of a process that can be read, in the order of their addresses.
fn mappings(process: &Process) -> Option<Vec<Mapping>> {
    let maps = process.maps().ok()?;
    let readable = maps
        .into_iter()
        .filter(|map| map.perms.contains(MMPermissions::READ));
    let mappings = readable.map(|map| Mapping {
        start: map.address.0,
        end: map.address.1,
        is_used_for: if map.perms.contains(MMPermissions::EXECUTE) {
            Use::Text
        } else if map.perms.contains(MMPermissions::WRITE) {
            Use::Writable
        } else {
            Use::Constant
        },
    });
    Some(mappings.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    static CONSTANT: [u8; 3] = *b"abc";

    #[test]
    fn own_memory_by_its_use() {
        let process = LiveProcess::open(std::process::id(), 0).unwrap();
        let local = 7_u8;
        let text = own_memory_by_its_use as fn() as usize as u64;
        let data = CONSTANT.as_ptr().addr() as u64;
        let stack = std::ptr::from_ref(&local).addr() as u64;
        assert_eq!(
            [text, data, stack, 16].map(|address| process.use_of(address)),
            [Some(Use::Text), Some(Use::Constant), Some(Use::Writable), None]
        );
        let page = process.read(data & !(PAGE - 1)).unwrap();
        let at = (data % PAGE) as usize;
        assert_eq!(page.get(at..at + 3), Some(&CONSTANT[..]));
        assert_eq!(process.read(0), None);
        assert!(LiveProcess::open(u32::MAX, 0).is_none());
    }
}
