//! The text of successive profiles. Ranges that overlap become one, as no byte may be in two; bytes that differ become a
//! version of it, from the profile on that has them.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::addr::ImageAddr;
use crate::snapshot::Text;

/// The text of both, whose modules are those of the united profile. `next` begins with the interval `n_before`; what was
/// valid there from the beginning is taken to have been valid before, where nothing else is known.
pub(super) fn unite(mut earlier: Vec<Text>, next: Vec<Text>, n_before: u32) -> Vec<Text> {
    let mut all: Vec<Text> = Vec::with_capacity(earlier.len() + next.len());
    earlier.extend(next);
    earlier.sort_by_key(|text| (text.module, text.start, text.since));
    let mut sorted = earlier.into_iter().peekable();
    while let Some(first) = sorted.next() {
        let module = first.module;
        let mut end = end(&first);
        let mut group = vec![first];
        while let Some(text) = sorted.next_if(|text| text.module == module && text.start.0 < end) {
            end = end.max(self::end(&text));
            group.push(text);
        }
        versions(group, end, n_before, &mut all);
    }
    all
}

fn end(text: &Text) -> u64 {
    text.start.0.saturating_add(text.bytes.len() as u64)
}

/// The versions of ranges that overlap, up to `end`, as those of one range.
fn versions(mut group: Vec<Text>, end: u64, n_before: u32, all: &mut Vec<Text>) {
    let Some(first) = group.first() else { return };
    let (module, start) = (first.module, first.start);
    if group.iter().all(|text| n_before <= text.since) {
        let first = group.iter_mut().filter(|text| text.since == n_before);
        first.for_each(|text| text.since = 0);
    }
    if group.len() == 1 {
        all.append(&mut group);
        return;
    }
    group.sort_by_key(|text| text.since);
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(start.0)).unwrap_or(0)];
    // What is known first of each byte: the earliest is written last.
    for text in group.iter().rev() {
        write(text, start, &mut bytes);
    }
    let times: BTreeSet<u32> = group.iter().map(|text| text.since).collect();
    for (n, since) in times.into_iter().enumerate() {
        let of_time = || group.iter().filter(|text| text.since == since);
        let differs = |text: &Text| covered(text, start).and_then(|it| bytes.get(it)) != Some(&*text.bytes);
        if n != 0 && !of_time().any(differs) {
            continue;
        }
        for text in of_time() {
            write(text, start, &mut bytes);
        }
        all.push(Text {
            module,
            start,
            bytes: bytes.clone(),
            since,
        });
    }
}

fn write(text: &Text, start: ImageAddr, bytes: &mut [u8]) {
    if let Some(part) = covered(text, start).and_then(|it| bytes.get_mut(it)) {
        part.copy_from_slice(&text.bytes);
    }
}

/// What a text covers of the range that begins at `start`.
fn covered(text: &Text, start: ImageAddr) -> Option<Range<usize>> {
    let from = usize::try_from(text.start.since(start)?).ok()?;
    Some(from..from.checked_add(text.bytes.len())?)
}
