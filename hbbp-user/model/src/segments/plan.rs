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

/// A segment, and those whose intervals it holds as well by its name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nest {
    /// The one with most intervals.
    pub outer: Name,
    /// The others. They were merged and are not removed yet, unless the name of the first is that of a damaged file or
    /// of another host's: its contents decide ([`compare`](super::read::compare)).
    pub inner: BTreeSet<Name>,
}

/// Segments by whose names hold those of others, in the order of their intervals.
pub fn nests(names: &BTreeSet<Name>) -> Vec<Nest> {
    let mut by_first: Vec<Name> = names.iter().copied().collect();
    by_first.sort_by_key(|name| (name.first, Reverse(name.last)));
    let mut nests: Vec<Nest> = Vec::new();
    for name in by_first {
        match nests.last_mut() {
            Some(nest) if nest.outer.supersedes(&name) => {
                nest.inner.insert(name);
            }
            _ => nests.push(Nest {
                outer: name,
                inner: BTreeSet::new(),
            }),
        }
    }
    nests
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
///
/// A segment is too old where the clock says so and as much was measured after it. A clock that was set forward removes
/// nothing, and time without a daemon does not count.
pub fn expired(segments: &[(Name, u64)], limits: Limits, now: u64) -> Vec<Name> {
    let mut newest_first = segments.to_vec();
    newest_first.sort_unstable_by(|a, b| b.cmp(a));
    let age = limits
        .age
        .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    let (mut measured, mut size) = (0_u64, 0_u64);
    let mut expired = Vec::new();
    for (index, (name, bytes)) in newest_first.into_iter().enumerate() {
        size = size.saturating_add(bytes);
        let is_beyond = limits.disk.is_some_and(|most| most < size);
        let is_old = age.is_some_and(|age| age < measured && name.end().saturating_add(age) < now);
        measured = measured.saturating_add(name.length);
        // The newest stays.
        if 0 < index && (is_old || is_beyond) {
            expired.push(name);
        }
    }
    expired.reverse();
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
        let done: BTreeSet<Name> = nests(names).into_iter().flat_map(|nest| nest.inner).collect();
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
        // The first day, one hour of the second, which is not over, and the minutes of the current hour.
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
    fn clock_that_jumps_removes_nothing() {
        let hour = Limits {
            disk: None,
            age: Some(Duration::from_millis(HOUR)),
        };
        let mut segments: Vec<(Name, u64)> = minutes(0, 0, 10).into_iter().map(|name| (name, 1)).collect();
        let now = 26 * HOUR;
        assert_eq!(expired(&segments, hour, now), []);
        // The next one carries the new time.
        segments.extend(minutes(10, 26 * 60, 50).into_iter().map(|name| (name, 1)));
        assert_eq!(expired(&segments, hour, now + HOUR), []);
        // An hour was measured after the first two.
        segments.extend(minutes(60, 26 * 60 + 50, 3).into_iter().map(|name| (name, 1)));
        let removed: Vec<u64> = expired(&segments, hour, now + HOUR)
            .iter()
            .map(|name| name.first)
            .collect();
        assert_eq!(removed, [0, 1]);
        // A clock that was set back keeps them until it is right again.
        assert_eq!(expired(&segments, hour, HOUR), []);
    }

    #[test]
    fn names_nest() {
        let name = |first, last| Name {
            first,
            last,
            start: 0,
            length: 1,
        };
        let names = BTreeSet::from([
            name(0, 9),
            name(0, 3),
            name(2, 2),
            name(9, 12),
            name(10, 11),
            name(14, 14),
        ]);
        let found = nests(&names);
        let outer: Vec<Name> = found.iter().map(|nest| nest.outer).collect();
        assert_eq!(outer, [name(0, 9), name(9, 12), name(14, 14)]);
        assert_eq!(found[0].inner, BTreeSet::from([name(0, 3), name(2, 2)]));
        assert_eq!(found[1].inner, BTreeSet::from([name(10, 11)]));
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
