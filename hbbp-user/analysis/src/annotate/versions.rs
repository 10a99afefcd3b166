//! The text versions of a range of code: which bytes were there, and when.

use std::ops::Range;

use super::code::Code;
use hbbp_code::locate::TextIdx;
use hbbp_model::snapshot::{Interval, Snapshot, Text};

/// The texts that have the same bytes within a range of code.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SameBytes {
    /// Each with the offsets of its bytes that belong to the code.
    pub(super) texts: Vec<(TextIdx, Range<usize>)>,
    /// When they were valid, in ns since the start of the first interval.
    pub(super) valid: Vec<Range<u64>>,
}

/// The versions of the code, in the order of time. Code that lies in several text ranges, of which none was patched, is
/// one version; patched ranges of the same code have versions of their own.
pub(super) fn versions(snapshot: &Snapshot, code: &Code) -> Vec<SameBytes> {
    let mut never_patched = SameBytes::default();
    let mut patched: Vec<SameBytes> = Vec::new();
    let first = snapshot.text.partition_point(|text| text.module < code.module);
    let after = snapshot.text.partition_point(|text| text.module <= code.module);
    let texts = snapshot.text.get(first..after).unwrap_or(&[]);
    let mut next = first;
    for same_range in texts.chunk_by(|a, b| a.start == b.start) {
        let numbers = next..;
        next += same_range.len();
        let Some(inside) = same_range.first().and_then(|text| overlap(text, code)) else {
            continue;
        };
        let mut versions: Vec<(&[u8], SameBytes)> = Vec::new();
        for ((text, number), nth) in same_range.iter().zip(numbers).zip(0..) {
            let bytes = text.bytes.get(inside.clone()).unwrap_or(&[]);
            let until = same_range.get(nth + 1).map(|next| next.since);
            let valid = valid(&snapshot.intervals, text.since, until);
            let number = (TextIdx(u32::try_from(number).unwrap_or(u32::MAX)), inside.clone());
            match versions.iter_mut().find(|(known, _)| *known == bytes) {
                Some((_, version)) => {
                    version.texts.push(number);
                    extend(&mut version.valid, valid);
                }
                None => {
                    let version = SameBytes {
                        texts: vec![number],
                        valid: vec![valid],
                    };
                    versions.push((bytes, version));
                }
            }
        }
        let mut versions = versions.into_iter().map(|(_, version)| version);
        match (versions.next(), versions.next()) {
            (Some(only), None) => {
                never_patched.texts.extend(only.texts);
                never_patched.valid = only.valid;
            }
            (first, second) => patched.extend(first.into_iter().chain(second).chain(versions)),
        }
    }
    let whole = Some(never_patched).filter(|version| !version.texts.is_empty());
    whole.into_iter().chain(patched).collect()
}

/// The bytes of a text that belong to the code.
fn overlap(text: &Text, code: &Code) -> Option<Range<usize>> {
    let len = u64::try_from(text.bytes.len()).ok()?;
    let from = code.start.0.saturating_sub(text.start.0).min(len);
    let to = code.end.0.saturating_sub(text.start.0).min(len);
    let range = usize::try_from(from).ok()?..usize::try_from(to).ok()?;
    (range.start < range.end).then_some(range)
}

/// The time from the start of an interval to that of another one, or to the end of the run.
fn valid(intervals: &[Interval], since: u32, until: Option<u32>) -> Range<u64> {
    let zero = intervals.first().map_or(0, |interval| interval.start);
    let start = |at: u32| intervals.get(at as usize).map(|interval| interval.start);
    let end = intervals.last().map_or(0, |interval| interval.end);
    let from = start(since).unwrap_or(end).saturating_sub(zero);
    let to = until.and_then(start).unwrap_or(end).saturating_sub(zero);
    from..to.max(from)
}

/// Adds a time after the others; one that follows the last at once continues it.
fn extend(valid: &mut Vec<Range<u64>>, more: Range<u64>) {
    match valid.last_mut().filter(|last| last.end == more.start) {
        Some(last) => last.end = more.end,
        None => valid.push(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::ModuleIdx;

    fn text(start: u64, bytes: &[u8], since: u32) -> Text {
        Text {
            module: ModuleIdx(1),
            start: ImageAddr(start),
            bytes: bytes.to_vec(),
            since,
        }
    }

    fn interval(start: u64, end: u64) -> Interval {
        Interval {
            start,
            end,
            ..Interval::default()
        }
    }

    #[test]
    fn versions_differ_within_the_function() {
        let snapshot = Snapshot {
            text: vec![
                text(0x1000, &[1, 2, 3, 4, 5, 6, 7, 8], 0),
                text(0x1000, &[1, 2, 3, 4, 5, 9, 7, 8], 1),
                text(0x1000, &[1, 2, 3, 4, 5, 6, 7, 8], 2),
                text(0x2000, &[7; 8], 0),
            ],
            intervals: vec![interval(100, 150), interval(150, 170), interval(170, 200)],
            ..Snapshot::default()
        };
        let code = |start, end| Code {
            module: ModuleIdx(1),
            start: ImageAddr(start),
            end: ImageAddr(end),
            name: String::new(),
        };
        let numbers = |version: &SameBytes| version.texts.iter().map(|(text, _)| text.0).collect::<Vec<_>>();
        let found = versions(&snapshot, &code(0x1004, 0x1008));
        assert_eq!(
            found.iter().map(numbers).collect::<Vec<_>>(),
            [vec![0, 2], vec![1]]
        );
        assert_eq!(found[0].valid, [0..50, 70..100]);
        let times = |version: &SameBytes| {
            version
                .valid
                .iter()
                .map(|it| (it.start, it.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(times(&found[1]), [(50, 70)]);
        // The patch is outside of this function.
        let found = versions(&snapshot, &code(0x1000, 0x1004));
        assert_eq!(found.iter().map(numbers).collect::<Vec<_>>(), [vec![0, 1, 2]]);
        assert_eq!(times(&found[0]), [(0, 100)]);
        assert_eq!(versions(&snapshot, &code(0x3000, 0x3004)).len(), 0);
    }
}
