//! Lookup of executed addresses in the mappings and text of a snapshot, for one interval of the run.

use std::collections::HashMap;

use hbbp_ebpf::stream::Stream;

use super::location::{Location, TextIdx};
use super::reason::{Discard, Unresolved};
use hbbp_model::addr::{ImageAddr, Ring, Va};
use hbbp_model::snapshot::layout::Layout;
use hbbp_model::snapshot::{ModuleIdx, ProcessIdx, Snapshot, StreamCount, Text};

/// The mappings and the text of a snapshot, as of one interval.
#[derive(Debug)]
pub struct AddressMap<'a> {
    snapshot: &'a Snapshot,
    interval: u32,
    /// The latest end of an interval so far: intervals are in the order of time.
    end: u64,
    /// For each text the first version of its range that has the same bytes.
    first_same: Vec<u32>,
    /// The memory layout of each process image, at the last interval that looked it up.
    layouts: Vec<Option<Layout>>,
}

impl<'a> AddressMap<'a> {
    /// The address map of the first interval.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let layouts = snapshot.processes.iter().map(|_| None).collect();
        let mut map = Self {
            snapshot,
            interval: 0,
            end: 0,
            first_same: first_same(&snapshot.text),
            layouts,
        };
        map.set_interval(0);
        map
    }

    /// Selects the same interval or a later one.
    pub fn set_interval(&mut self, interval: u32) {
        self.interval = interval;
        let end = self.snapshot.intervals.get(interval as usize).map(|i| i.end);
        self.end = self.end.max(end.unwrap_or(0));
    }

    /// Module of an address in a process image, and the address in that module, whether its text is known or not.
    pub fn module_at(&mut self, process: ProcessIdx, va: Va) -> Option<(ModuleIdx, ImageAddr)> {
        let ring = va.ring();
        let owner = match ring {
            Ring::Kernel => ProcessIdx::KERNEL,
            Ring::User => process,
        };
        let (module, addr) = self.image_addr(owner, va)?;
        // A module of one ring mapped at addresses of the other cannot have run.
        let kind = self.snapshot.modules.get(module.0 as usize)?.kind;
        (kind.is_kernel() == (ring == Ring::Kernel)).then_some((module, addr))
    }

    /// Location of an executed address in a process image.
    pub fn location(&mut self, process: ProcessIdx, va: Va) -> Result<Location, Unresolved> {
        let (module, addr) = self.module_at(process, va).ok_or(Unresolved::NoMapping)?;
        let text = self.text(module, addr).ok_or(Unresolved::NoText)?;
        Ok(Location { text, addr })
    }

    fn image_addr(&mut self, process: ProcessIdx, va: Va) -> Option<(ModuleIdx, ImageAddr)> {
        let mappings = &self.snapshot.processes.get(process.0 as usize)?.mappings;
        let slot = self.layouts.get_mut(process.0 as usize)?;
        let layout = slot.get_or_insert_with(|| Layout::new(mappings));
        layout.advance(self.end);
        layout.find(va)
    }

    /// Versions of one text range are adjacent, sorted by `since`. Of versions with the same bytes (a static key that was
    /// switched on and off again), the first gets all counts.
    fn text(&self, module: ModuleIdx, addr: ImageAddr) -> Option<TextIdx> {
        let text = &self.snapshot.text;
        let before = |bound: usize| bound.checked_sub(1).and_then(|i| Some((i, text.get(i)?)));
        let (_, range) = before(text.partition_point(|t| (t.module, t.start) <= (module, addr)))?;
        let version = (module, range.start, self.interval);
        let (i, text) = before(text.partition_point(|t| (t.module, t.start, t.since) <= version))?;
        let here = text.module == module && text.start == range.start && covers(text, addr);
        let first = self.first_same.get(i).filter(|_| here)?;
        Some(TextIdx(*first))
    }

    /// The location of a stream's start, and the address of its end in the same text.
    pub fn span(&mut self, count: &StreamCount) -> Result<(Location, ImageAddr), Discard> {
        let stream = Stream {
            from: 0,
            start: count.start.0,
            end: count.end.0,
        };
        if let Some(refusal) = stream.refusal() {
            return Err(refusal.into());
        }
        let start = self.location(count.process, count.start).map_err(discard)?;
        let end = self.location(count.process, count.end).map_err(discard)?;
        if start.text == end.text && start.addr <= end.addr {
            Ok((start, end.addr))
        } else {
            Err(Discard::CrossesText)
        }
    }
}

fn first_same(text: &[Text]) -> Vec<u32> {
    let mut first: Vec<u32> = Vec::with_capacity(text.len());
    for versions in text.chunk_by(|a, b| (a.module, a.start) == (b.module, b.start)) {
        if let [_] = versions {
            first.push(u32::try_from(first.len()).unwrap_or(u32::MAX));
            continue;
        }
        let mut by_bytes: HashMap<&[u8], u32> = HashMap::new();
        for version in versions {
            let idx = u32::try_from(first.len()).unwrap_or(u32::MAX);
            first.push(*by_bytes.entry(&version.bytes).or_insert(idx));
        }
    }
    first
}

fn covers(text: &Text, addr: ImageAddr) -> bool {
    let offset = addr
        .since(text.start)
        .and_then(|offset| usize::try_from(offset).ok());
    offset.is_some_and(|offset| offset < text.bytes.len())
}

const fn discard(why: Unresolved) -> Discard {
    match why {
        Unresolved::NoMapping => Discard::NoMapping,
        Unresolved::NoText => Discard::NoText,
        Unresolved::NotOnInstruction => Discard::NotOnInstruction,
        Unresolved::Undecodable | Unresolved::Halted => Discard::Undecodable,
    }
}
