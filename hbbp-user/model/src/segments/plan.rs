//! What becomes of segments, decided from their names, their sizes and the time: a plain function of each.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::iter::once;
use std::ops::Range;
use std::time::Duration;

use super::name::Name;

/// What segments are merged to, the shortest first, in ms: hours, and days.
const LEVELS: [u64; 2] = [HOUR, 24 * HOUR];
const HOUR: u64 = 3_600_000;

/// What a folder may hold. The newest segment always stays.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Limits {
    /// Most bytes of all segments.
    pub disk: Option<u64>,
    /// Age at which a segment is removed, from its end.
    pub age: Option<Duration>,
}

/// The segments whose intervals others hold as well: they were merged, and are not removed yet.
pub fn superseded(names: &BTreeSet<Name>) -> BTreeSet<Name> {
    let mut by_first: Vec<Name> = names.iter().copied().collect();
    by_first.sort_by_key(|name| (name.first, Reverse(name.last)));
    let mut found = BTreeSet::new();
    let mut longest: Option<Name> = None;
    for name in by_first {
        match longest {
            Some(longest) if longest.supersedes(&name) => {
                found.insert(name);
            }
            _ => longest = Some(name),
        }
    }
    found
}

/// The next segments to merge: those of an hour, or of a day, after which another one has begun. Those of `left_alone` are
/// never merged, nor others across them.
pub fn to_merge(names: &BTreeSet<Name>, left_alone: &BTreeSet<Name>) -> Option<Vec<Name>> {
    let newest = names.last()?;
    LEVELS.into_iter().find_map(|level| {
        let part = |name: &Name| {
            let over = name.start / level < newest.start / level;
            let merges = over && name.length <= level && !left_alone.contains(name);
            merges.then_some(name.start / level)
        };
        let names: Vec<Name> = names.iter().copied().collect();
        let mut groups = names.chunk_by(|a, b| part(a) == part(b));
        let group =
            groups.find(|group| 1 < group.len() && group.first().is_some_and(|it| part(it).is_some()));
        group.map(<[Name]>::to_vec)
    })
}

/// The segments to remove at a time in ms since 1970, the oldest first; each has its size in bytes.
pub fn expired(segments: &[(Name, u64)], limits: Limits, now: u64) -> Vec<Name> {
    let mut oldest_first = segments.to_vec();
    oldest_first.sort_unstable();
    // The newest stays.
    oldest_first.pop();
    let mut size: u64 = segments.iter().map(|(_, size)| size).sum();
    let age = limits
        .age
        .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    let mut expired = Vec::new();
    for (name, bytes) in oldest_first {
        let is_old = age.is_some_and(|age| name.end().saturating_add(age) < now);
        let is_beyond = limits.disk.is_some_and(|most| most < size);
        if is_old || is_beyond {
            size -= bytes;
            expired.push(name);
        }
    }
    expired
}

/// The parts of a range of time that nothing covers, if they are longer than `least`; all in one unit.
pub(crate) fn gaps(mut covered: Vec<Range<u64>>, range: Range<u64>, least: u64) -> Vec<Range<u64>> {
    covered.sort_unstable_by_key(|it| it.start);
    let mut gaps = Vec::new();
    let mut until = range.start;
    for it in covered.into_iter().chain(once(range.end..range.end)) {
        let start = it.start.min(range.end);
        if until.saturating_add(least) < start {
            gaps.push(until..start);
        }
        until = until.max(it.end);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    /// Intervals of a minute each, from a time in minutes on.
    fn minutes(first: u64, start: u64, n: u64) -> BTreeSet<Name> {
        let name = |n: u64| Name {
            first: first + n,
            last: first + n,
            start: (start + n) * MINUTE + 12,
            length: MINUTE,
        };
        (0..n).map(name).collect()
    }

    fn merge(names: &mut BTreeSet<Name>, group: &[Name]) {
        names.insert(Name::of_all(group).unwrap());
        let done = superseded(names);
        assert_eq!(done, group.iter().copied().collect());
        names.retain(|name| !done.contains(name));
    }

    #[test]
    fn segments_become_hours_and_hours_days() {
        // From 00:30 of one day to 02:10 of the next.
        let mut names = minutes(0, 30, 25 * 60 + 40);
        let mut n_merged = 0;
        while let Some(group) = to_merge(&names, &BTreeSet::new()) {
            merge(&mut names, &group);
            n_merged += 1;
        }
        // The first day, an hour of the second, which is not over, and the minutes of the hour at hand.
        let lengths: Vec<u64> = names.iter().map(|name| name.length / MINUTE).collect();
        let expected: Vec<u64> = [23 * 60 + 30, 60, 60].into_iter().chain([1; 10]).collect();
        assert_eq!((n_merged, lengths), (24 + 2 + 1, expected));
        let numbers: Vec<u64> = names.iter().flat_map(Name::intervals).collect();
        assert!(numbers.iter().copied().eq(0..25 * 60 + 40));
    }

    #[test]
    fn what_cannot_be_merged_stays_between_what_can() {
        let mut names = minutes(0, 0, 61);
        let left_alone = minutes(20, 20, 1);
        while let Some(group) = to_merge(&names, &left_alone) {
            merge(&mut names, &group);
        }
        let numbers: Vec<_> = names.iter().map(Name::intervals).collect();
        assert_eq!(numbers, [0..=19, 20..=20, 21..=59, 60..=60]);
    }

    #[test]
    fn oldest_segments_are_removed_first() {
        let segments: Vec<(Name, u64)> = minutes(5, 100, 10).into_iter().map(|name| (name, 1000)).collect();
        let now = 110 * MINUTE + 12;
        let removed = |limits| {
            let names = expired(&segments, limits, now);
            names.into_iter().map(|name| name.first).collect::<Vec<u64>>()
        };
        let disk = |bytes| Limits {
            disk: Some(bytes),
            age: None,
        };
        assert!(removed(Limits::default()).is_empty());
        assert!(removed(disk(10_000)).is_empty());
        assert_eq!(removed(disk(9_999)), [5]);
        assert_eq!(
            removed(disk(0)),
            (5..14).collect::<Vec<u64>>(),
            "the newest stays"
        );
        let age = |minutes: u64| Limits {
            disk: None,
            age: Some(Duration::from_millis(minutes * MINUTE)),
        };
        // The first ended nine minutes ago.
        assert!(removed(age(9)).is_empty());
        assert_eq!(removed(age(8)), [5]);
        assert_eq!(removed(age(0)), (5..14).collect::<Vec<u64>>());
    }

    #[test]
    fn gaps_are_what_nothing_covers() {
        let covered = vec![30..40, 10..20, 20..25, 12..14];
        let found = |range, least| {
            let found = gaps(covered.clone(), range, least).into_iter();
            found.map(|gap| (gap.start, gap.end)).collect::<Vec<_>>()
        };
        assert_eq!(found(5..50, 0), [(5, 10), (25, 30), (40, 50)]);
        assert_eq!(found(5..50, 5), [(40, 50)]);
        assert_eq!(found(12..35, 0), [(25, 30)]);
        assert_eq!(gaps(Vec::new(), 1..3, 0).len(), 1);
    }
}
