//! Starts of instructions and blocks that the text itself does not show: functions, addresses that the CPU reported, and targets
//! of branches in other text.

use std::ops::Range;

use super::map::TextBlocks;
use crate::locate::{Located, Location, TextIdx};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Module, ModuleIdx, Text};

/// The addresses that are in known text: most targets of calls are not.
pub(super) struct Held(Vec<(ModuleIdx, Range<ImageAddr>)>);

impl Held {
    /// Of texts in the order of their addresses.
    pub(super) fn new(texts: &[Text]) -> Self {
        let mut held: Vec<(ModuleIdx, Range<ImageAddr>)> = Vec::with_capacity(texts.len());
        for text in texts {
            let end = ImageAddr(text.start.0.saturating_add(text.bytes.len() as u64));
            match held.last_mut() {
                Some((module, last)) if *module == text.module && text.start <= last.end => {
                    last.end = last.end.max(end);
                }
                _ => held.push((text.module, text.start..end)),
            }
        }
        Self(held)
    }

    /// Those of the targets (sorted) that are held.
    pub(super) fn targets(
        &self,
        module: ModuleIdx,
        targets: &[ImageAddr],
    ) -> impl Iterator<Item = (ModuleIdx, ImageAddr)> {
        let mut later = self.0.as_slice();
        targets
            .iter()
            .map(move |target| (module, *target))
            .filter(move |(module, target)| {
                let passed = later.partition_point(|(of, range)| (*of, range.end) <= (*module, *target));
                later = later.get(passed..).unwrap_or_default();
                later
                    .first()
                    .is_some_and(|(of, range)| of == module && range.contains(target))
            })
    }
}

/// The branch targets within texts that overlap the next one.
///
/// Most branches stay in their text and need no sorting; other versions of it have the same targets.
pub(super) fn targets_in_overlaps(texts: &[Text], decoded: &[TextBlocks]) -> Vec<(ModuleIdx, ImageAddr)> {
    let mut targets = Vec::new();
    for (pair, decoded) in texts.windows(2).zip(decoded.windows(2)) {
        let [text, next] = pair else { continue };
        if text.module == next.module && offset(text, next.start).is_some() {
            for (text, decoded) in pair.iter().zip(decoded) {
                let target = |offset: &u32| ImageAddr(text.start.0.saturating_add(u64::from(*offset)));
                let inside = decoded.sweep.inside.iter();
                targets.extend(inside.map(|offset| (text.module, target(offset))));
            }
        }
    }
    targets
}

/// Every address that the CPU reported, sorted: each is the start of an instruction.
pub(super) fn observed(located: &Located) -> Vec<Location> {
    let ips = located.ips.iter().map(|c| c.location);
    let starts = located.streams.iter().map(|c| c.start);
    let ends = located.streams.iter().map(|c| Location {
        text: c.start.text,
        addr: c.end,
    });
    let sources = located.branches.iter().map(|c| c.from);
    let targets = located.branches.iter().filter_map(|c| c.to);
    let mut observed: Vec<Location> = ips
        .chain(starts)
        .chain(ends)
        .chain(sources)
        .chain(targets)
        .collect();
    observed.sort_unstable();
    observed.dedup();
    observed
}

/// The part of a sorted list from `bound` on.
pub(super) fn at_or_after<T: Ord + Copy>(sorted: &[T], bound: T) -> &[T] {
    sorted
        .get(sorted.partition_point(|item| *item < bound)..)
        .unwrap_or(&[])
}

/// The offsets of the locations (sorted) that lie in a text.
pub(super) fn offsets<'a>(
    locations: &'a [Location],
    text: &'a Text,
    idx: TextIdx,
) -> impl Iterator<Item = u32> + 'a {
    let locations = at_or_after(
        locations,
        Location {
            text: idx,
            addr: text.start,
        },
    )
    .iter();
    locations.map_while(move |location| {
        if location.text == idx {
            offset(text, location.addr)
        } else {
            None
        }
    })
}

/// Offset of an address in a text, if it lies there.
pub(super) fn offset(text: &Text, addr: ImageAddr) -> Option<u32> {
    let offset = addr.since(text.start)?;
    let inside = usize::try_from(offset).is_ok_and(|offset| offset < text.bytes.len());
    u32::try_from(offset).ok().filter(|_| inside)
}

/// Where the functions of each module start. Many may start at one address, and many texts may hold it.
pub(super) fn symbol_starts(modules: &[Module]) -> Vec<Vec<ImageAddr>> {
    let starts = |module: &Module| {
        let mut starts: Vec<ImageAddr> = module.symbols.iter().map(|symbol| symbol.start).collect();
        starts.dedup();
        starts
    };
    modules.iter().map(starts).collect()
}

/// The offsets of functions that start in a text.
pub(super) fn starts_in<'a>(starts: &'a [Vec<ImageAddr>], text: &'a Text) -> impl Iterator<Item = u32> + 'a {
    let starts = starts.get(text.module.0 as usize).map_or(&[][..], Vec::as_slice);
    let starts = at_or_after(starts, text.start).iter();
    starts.map_while(|start| offset(text, *start))
}
