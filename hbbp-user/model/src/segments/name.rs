//! The name of a segment: when it began, how long it is, and which intervals it holds.

use std::fmt;
use std::ops::RangeInclusive;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// What a segment holds. Segments are ordered by their intervals, whatever the clock said.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name {
    /// Number of its first interval. Numbers are never reused while the directory holds segments.
    pub first: u64,
    /// Number of its last interval.
    pub last: u64,
    /// Start in ms since 1970.
    pub start: u64,
    /// Length in ms, with the gaps inside.
    pub length: u64,
}

/// What all names end with.
const SUFFIX: &str = ".hbbp";

/// The last number that a daemon gives: a million a second for a hundred years stay below it. Larger ones leave no
/// number for the next interval.
const LAST: u64 = 1 << 53;

/// Form of the start in a name, without its milliseconds.
const START: &str = "%Y%m%dT%H%M%S";

impl Name {
    /// End in ms since 1970.
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }

    /// The numbers of its intervals.
    pub const fn intervals(&self) -> RangeInclusive<u64> {
        self.first..=self.last
    }

    /// Whether it holds all intervals of another one, and more.
    pub(crate) fn supersedes(&self, other: &Self) -> bool {
        self.intervals() != other.intervals() && self.first <= other.first && other.last <= self.last
    }

    /// The name of what segments are merged to; `None` of none.
    pub fn of_all(names: &[Self]) -> Option<Self> {
        let start = names.iter().map(|name| name.start).min()?;
        let end = names.iter().map(Self::end).max()?;
        Some(Self {
            first: names.iter().map(|name| name.first).min()?,
            last: names.iter().map(|name| name.last).max()?,
            start,
            length: end - start,
        })
    }

    /// The segment of a file name; `None` of a file that is none.
    pub(crate) fn parse(file: &str) -> Option<Self> {
        let fields = file.strip_suffix(SUFFIX)?;
        let (start, fields) = fields.split_once("Z+")?;
        let (length, numbers) = fields.split_once("s.")?;
        let (seconds, ms) = start.split_once('.')?;
        let start = DateTime::strptime(START, seconds).ok()?;
        let start = start.to_zoned(TimeZone::UTC).ok()?.timestamp();
        let start = u64::try_from(start.as_millisecond()).ok()?;
        let (whole, part) = length.split_once('.')?;
        let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
        let name = Self {
            first: first.parse().ok()?,
            last: last.parse().ok()?,
            start: start.checked_add(ms.parse().ok()?)?,
            length: whole
                .parse::<u64>()
                .ok()?
                .checked_mul(1000)?
                .checked_add(part.parse().ok()?)?,
        };
        // One name for each segment.
        let is_ours = name.first <= name.last && name.last <= LAST && name.to_string() == file;
        is_ours.then_some(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = i64::try_from(self.start).ok();
        let start = start.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let seconds = start.unwrap_or(Timestamp::MAX).strftime(START);
        let (ms, whole, part) = (self.start % 1000, self.length / 1000, self.length % 1000);
        write!(f, "{seconds}.{ms:03}Z+{whole}.{part:03}s.{}", self.first)?;
        if self.first != self.last {
            write!(f, "-{}", self.last)?;
        }
        f.write_str(SUFFIX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let name = Name {
            first: 17,
            last: 17,
            start: 1_795_359_600_012,
            length: 60_004,
        };
        assert_eq!(name.to_string(), "20261122T150000.012Z+60.004s.17.hbbp");
        assert_eq!(Name::parse(&name.to_string()), Some(name));
        let hour = Name { last: 76, ..name };
        assert_eq!(hour.to_string(), "20261122T150000.012Z+60.004s.17-76.hbbp");
        assert_eq!(Name::parse(&hour.to_string()), Some(hour));
        assert!(hour.supersedes(&name) && !name.supersedes(&name) && !name.supersedes(&hour));
    }

    #[test]
    fn other_names_are_no_segments() {
        for other in [
            "profile.hbbp",
            "20261122T150000.012Z+60.004s.17.hbbp.part",
            "20261122T150000.012Z+60.004s.18-17.hbbp",
            "20261122T150000.012Z+60.004s.017.hbbp",
            "20261122T150000.12Z+60.004s.17.hbbp",
            "20261322T150000.012Z+60.004s.17.hbbp",
            "20261122T150000.012Z+99999999999999999999.004s.17.hbbp",
            "20261122T150000.012Z+60.004s.18446744073709551615.hbbp",
            "20261122T150000.012Z+60.004s.0-9007199254740993.hbbp",
            "",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
