//! The way from an address as executed to a stretch of text, at one interval of the run.

use super::layout::Layout;
use super::reason::{Discard, Unresolved};
use super::{Place, TextIdx};
use hbbp_ebpf::stream::Stream;

use crate::addr::{ImageAddr, Ring, Va};
use crate::snapshot::{ModuleIdx, ProcessIdx, Snapshot, StreamCount, Text};

/// The mappings and the text of a snapshot, opened at one interval.
#[derive(Debug)]
pub struct Atlas<'a> {
    snapshot: &'a Snapshot,
    interval: u32,
    /// For each text the first generation of its stretch that has the same bytes.
    first_alike: Vec<u32>,
    /// For each process image the layout that was used last, and the interval it was checked for.
    layouts: Vec<Option<(u32, Layout)>>,
}

impl<'a> Atlas<'a> {
    /// Opens it at the first interval.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let layouts = snapshot.processes.iter().map(|_| None).collect();
        Self {
            snapshot,
            interval: 0,
            first_alike: first_alike(&snapshot.text),
            layouts,
        }
    }

    /// Opens it at another interval.
    pub fn turn_to(&mut self, interval: u32) {
        self.interval = interval;
    }

    /// The module that an address of a process image belongs to, and the address there, with or without its text.
    pub fn module_at(&mut self, process: ProcessIdx, va: Va) -> Option<(ModuleIdx, ImageAddr)> {
        let ring = va.ring();
        let owner = match ring {
            Ring::Kernel => ProcessIdx::KERNEL,
            Ring::User => process,
        };
        let (module, addr) = self.image_addr(owner, va)?;
        // A mapping of one ring's module into the other's addresses is not one that can have run.
        let kind = self.snapshot.modules.get(module.0 as usize)?.kind;
        (kind.is_kernel() == (ring == Ring::Kernel)).then_some((module, addr))
    }

    /// The place of an address that ran in a process image.
    pub(super) fn place(&mut self, process: ProcessIdx, va: Va) -> Result<Place, Unresolved> {
        let (module, addr) = self.module_at(process, va).ok_or(Unresolved::NoMapping)?;
        let text = self.text(module, addr).ok_or(Unresolved::NoText)?;
        Ok(Place { text, addr })
    }

    fn image_addr(&mut self, process: ProcessIdx, va: Va) -> Option<(ModuleIdx, ImageAddr)> {
        let mappings = &self.snapshot.processes.get(process.0 as usize)?.mappings;
        let interval = self.snapshot.intervals.get(self.interval as usize)?;
        let slot = self.layouts.get_mut(process.0 as usize)?;
        let layout = match slot.take() {
            Some((checked, layout)) if checked == self.interval => layout,
            Some((_, layout)) if layout.holds_in(mappings, interval) => layout,
            _ => Layout::new(mappings, interval),
        };
        slot.insert((self.interval, layout)).1.find(va)
    }

    /// The generations of one stretch stand side by side, sorted by `since`. Of those with the same bytes, as a key that
    /// is switched on and off again leaves them, all counts belong to the first.
    fn text(&self, module: ModuleIdx, addr: ImageAddr) -> Option<TextIdx> {
        let text = &self.snapshot.text;
        let before = |bound: usize| bound.checked_sub(1).and_then(|i| Some((i, text.get(i)?)));
        let (_, stretch) = before(text.partition_point(|t| (t.module, t.start) <= (module, addr)))?;
        let generation = (module, stretch.start, self.interval);
        let (i, text) = before(text.partition_point(|t| (t.module, t.start, t.since) <= generation))?;
        let here = text.module == module && text.start == stretch.start && covers(text, addr);
        let first = self.first_alike.get(i).filter(|_| here)?;
        Some(TextIdx(*first))
    }

    /// The place of a stream's start, and its end in the same text.
    pub(super) fn span(&mut self, count: &StreamCount) -> Result<(Place, ImageAddr), Discard> {
        let stream = Stream {
            from: 0,
            start: count.start.0,
            end: count.end.0,
        };
        if let Some(refusal) = stream.refusal() {
            return Err(refusal.into());
        }
        let start = self.place(count.process, count.start).map_err(discard)?;
        let end = self.place(count.process, count.end).map_err(discard)?;
        if start.text == end.text && start.addr <= end.addr {
            Ok((start, end.addr))
        } else {
            Err(Discard::CrossesText)
        }
    }
}

fn first_alike(text: &[Text]) -> Vec<u32> {
    let mut first: Vec<u32> = Vec::with_capacity(text.len());
    for (generations, start) in text
        .chunk_by(|a, b| (a.module, a.start) == (b.module, b.start))
        .scan(0, |behind, chunk| {
            let start = *behind;
            *behind += chunk.len();
            Some((chunk, start))
        })
    {
        for generation in generations {
            let alike = generations.iter().position(|g| g.bytes == generation.bytes);
            let alike = start + alike.unwrap_or(0);
            first.push(u32::try_from(alike).unwrap_or(u32::MAX));
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
